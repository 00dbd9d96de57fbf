"""What is waiting to be classified: ids from inotify, the trigger and scans, each once, in order of arrival."""

import os
from collections.abc import Iterable, Iterator
from itertools import islice

from queue_base.layout import Layout
from queue_wire.errors import FormatError
from queue_wire.ids import unpack_id

SCAN_EVERY = 1500.0  # Seconds: 25 minutes, qmail's SLEEP_TODO.
RETRY_AFTER = 30.0  # Seconds until a message that the disk refused is tried again.
SCAN_SLICE = 1000  # Names that one turn of the loop reads from todo/.


class Pending:
    """The waiting ids, those that wait for another try, and the scan that is going on, if one is."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._waiting: dict[int, float] = {}
        self._later: dict[int, float] = {}
        self._parked: set[int] = set()
        self._scan: Iterator[int] | None = None
        self._again = False
        self._next_scan = 0.0
        self._scan_began = 0.0

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def arrival(self) -> float | None:
        """When the next message was first seen waiting (monotonic seconds), None where none waits."""
        return next(iter(self._waiting.values()), None)

    def add(self, messages: Iterable[int], now: float) -> None:
        """Add ids that somebody named."""
        for message in messages:
            self._later.pop(message, None)
            self._waiting.setdefault(message, now)

    def defer(self, message: int, now: float) -> None:
        """Try a message again in RETRY_AFTER seconds."""
        if message:
            self._later[message] = now + RETRY_AFTER

    def park(self, message: int) -> None:
        """Leave a message out of the next scans, until somebody names it."""
        self._parked.add(message)

    def unpark(self, messages: Iterable[int]) -> list[int]:
        """Return those of the messages that have a mark in corrupt/; they are parked no more.

        The disk is asked, since queue-send makes marks too, and the number of a parked message may be used again.
        """
        found = [message for message in messages if os.path.lexists(self._layout.hashed("corrupt", message))]
        self._parked.difference_update(found)
        return found

    def take(self, most: int) -> list[int]:
        """Return at most `most` ids, the oldest first."""
        found = list(islice(self._waiting, most))
        for message in found:
            del self._waiting[message]
        return found

    def scan_soon(self) -> None:
        """Look through todo/ from its start, once what is being looked through is done."""
        self._again = True

    def run(self, now: float) -> None:
        """Do one slice: give back what waited long enough, and read a piece of todo/."""
        if self._later:
            for message in [message for message, due in self._later.items() if due <= now]:
                del self._later[message]
                self._waiting.setdefault(message, now)
        if self._scan is None and (self._again or now >= self._next_scan):
            self._again = False
            self._next_scan = now + SCAN_EVERY
            self._scan_began = now
            self._parked = set(_ids(self._layout, "corrupt"))
            self._scan = _ids(self._layout, "todo")
        if self._scan is not None:
            found = list(islice(self._scan, SCAN_SLICE))
            if len(found) < SCAN_SLICE:
                self._scan = None
            for message in found:
                if message not in self._parked and message not in self._later:
                    self._waiting.setdefault(message, self._scan_began)

    def wait(self, now: float) -> float:
        """Return the seconds until there is something to do that no descriptor will tell."""
        if self._waiting or self._scan is not None or self._again:
            return 0.0
        return max(0.0, min([self._next_scan, *self._later.values()]) - now)


def _ids(layout: Layout, kind: str) -> Iterator[int]:
    """Yield the ids that have a file of a kind; a directory that cannot be read has none."""
    for directory in layout.directories(kind):
        try:
            with os.scandir(directory) as names:
                for name in names:
                    try:
                        yield unpack_id(os.fsencode(name.name))
                    except FormatError:
                        continue  # Not a message: a person's file.
        except OSError:
            continue
