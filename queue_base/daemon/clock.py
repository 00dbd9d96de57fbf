"""A clock that is not affected if somebody sets the system's clock.

It starts with the system's time. So a rate, the wait for a probe and the wait for the next attempt have their right
length if the system's clock is set meanwhile. Times on the disk are the system's: `ahead` is by how many seconds its
clock is ahead of this one, and a time that is read from the disk or written to it goes through `from_disk` or
`to_disk`. A time that was written before the clock was set cannot be recognized and is taken as it is.

A birth is recognized: a span is a time in which nobody set the system's clock, and a birth is of the span that it lies
in. If it may be of several, the message is as young as by the latest. So a clock that is wrong for a moment makes no
message old. A file, queue/lock/clock, keeps the spans for the next run, up to the next boot of the machine.
"""

import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from math import isfinite
from typing import NamedTuple

from queue_base.durable import read_file
from queue_base.queue.layout import FILE_MODE
from queue_base.queue.marks_file import BOOT_ID

CLOCK_FILE = "lock/clock"  # Below queue/.
STEP = 0.5  # Seconds that the two clocks may differ.
_STEPS_MAX = 50  # Changes of the system's clock that are remembered.
_LATEST = (1 << 40) - 1  # The largest time that scheduler.waiting can hold.
_COARSE = 2.0  # Seconds by which a birth may miss its span: births are whole seconds, and a step is noticed late.
_FILE_MAX = 65536
_FOREVER = float("inf")


# Seconds that also go on while the machine sleeps; time.monotonic stands still then.
_since_boot = partial(time.clock_gettime, time.CLOCK_BOOTTIME)


class ClockSpan(NamedTuple):
    """A time in which nobody set the system's clock, which was ahead of the one that nobody sets by `offset`."""

    offset: float
    since: float
    until: float


class Clock:
    """`system` and `even` are the system's clock, and one that nobody sets. `spans` are those so far, the latest last.
    """

    def __init__(
        self,
        system: Callable[[], float] = time.time,
        even: Callable[[], float] = _since_boot,
        earlier: Iterable[ClockSpan] = (),
    ) -> None:
        """`earlier`: those of earlier runs, by the same `even`."""
        self._system = system
        self._even = even
        self._start = system() - even()
        self.ahead = 0
        self._aheads = [0]  # What `ahead` has been, the latest first.
        self.spans = list(earlier)
        last = self.spans[-1] if self.spans else ClockSpan(self._start, -_FOREVER, _FOREVER)
        if self.spans and abs(last.offset - self._start) > STEP:
            # Set at any time since the last one began: the earlier run may have ended long ago.
            self.spans[-1] = last._replace(until=even())
            self.spans.append(ClockSpan(self._start, last.since, _FOREVER))
        elif not self.spans:
            self.spans.append(last)

    def now(self) -> float:
        """Return the time, in seconds since the epoch as they were when this began."""
        return self._start + self._even()

    def look(self) -> bool:
        """Return whether the system's clock was set since the last call; to be called once in a turn of the loop."""
        apart = self._system() - self.now() - self.ahead
        if abs(apart) <= STEP:
            return False
        self.ahead += round(apart)
        kept = [ahead for ahead in self._aheads if ahead != self.ahead]
        self._aheads = [self.ahead, *kept[: _STEPS_MAX - 1]]
        when = self._even()
        self.spans[-1] = self.spans[-1]._replace(until=when)
        self.spans = [*self.spans[1 - _STEPS_MAX :], ClockSpan(self._start + self.ahead, when, _FOREVER)]
        return True

    def to_disk(self, when: int) -> int:
        """Return the system's time for one of ours, in whole seconds."""
        return max(0, when + self.ahead)

    def from_disk(self, when: int) -> int:
        """Return our time for the system's, in whole seconds."""
        ours = when - self.ahead
        return 0 if ours < 0 else ours if ours < _LATEST else _LATEST

    def birth_from_disk(self, when: int) -> int:
        """Return our time of a message's birth, in whole seconds."""
        if len(self.spans) == 1:
            return self.from_disk(when)
        now, found, past = self.now() + _COARSE, [], []
        for span in self.spans:
            at = when - span.offset
            ours = min(max(0, round(at + self._start)), _LATEST)
            if ours <= now:
                past.append(ours)
                if span.since - _COARSE <= at <= span.until + _COARSE:
                    found.append(ours)
        return max(found or past, default=self.from_disk(when))

    def all_from_disk(self, when: int) -> list[int]:
        """Return every time of ours that may have been written to the disk as this one."""
        return [min(max(0, when - ahead), _LATEST) for ahead in self._aheads]


def read_spans(path: str) -> list[ClockSpan]:
    """Return the spans that an earlier run has kept since the machine was booted; none if there is no such file."""
    try:
        boot, *lines = read_file(path, _FILE_MAX).decode("ascii").splitlines()
        if boot != _boot():
            return []
        spans = [ClockSpan(*map(float, line.split(" "))) for line in lines[-_STEPS_MAX:]]
        return spans if all(isfinite(span.offset) for span in spans) else []
    except (OSError, ValueError, TypeError):
        return []


def keep_spans(path: str, spans: Iterable[ClockSpan]) -> None:
    """Write the spans for the next run, as far as possible: without them it takes births as they are."""
    lines = [_boot(), *(" ".join(map(repr, span)) for span in spans)]
    with suppress(OSError):
        handle = os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE_MODE)
        with open(handle, "w", encoding="ascii") as file:
            file.write("\n".join(lines) + "\n")
        os.rename(f"{path}.new", path)


def _boot() -> str:
    try:
        return read_file(BOOT_ID).decode("ascii").strip()
    except (OSError, ValueError):
        return ""
