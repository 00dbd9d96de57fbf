"""One nexthop as the scheduler sees it: its queue, its concurrency window, whether it is dead. Pure.

The window is Postfix's: it begins at `initial`, grows by one per window of successes, shrinks by one per
failure of the host itself, and is never above `most` nor below one. `cohorts` counts windows of host failures
without a success between them; at the limit the destination is dead until a probe succeeds.
"""

from collections import deque
from typing import NamedTuple

from queue_send.aside import Aside
from queue_send.attempt import Group
from queue_send.fifo import Keys

SLACK = 60.0  # Seconds that a clock may seem to be behind: a turn of the loop takes the time at its start.
FORGOTTEN_AFTER = 86400  # Seconds for which nothing came for a destination that has failed.


class Limits(NamedTuple):
    """What holds for every destination: jobs, windows of failures, seconds between probes."""

    initial: int = 2
    most: int = 20
    cohorts: int = 3
    probe_first: int = 60
    probe_most: int = 3600


class Destination:
    """`queue` are groups that may start, `aside` keys of messages that wait on disk for a place in it.

    `away` are keys of messages that were turned away while it is dead; they have a next attempt, too. `probe_at` is
    of one that is dead; of one that is not, it is when its host was last not there.
    """

    __slots__ = (
        "aside", "away", "cohorts", "dead", "flying", "interval", "listed", "looked_at",
        "name", "probe_at", "probing", "queue", "rate", "starts", "turned_away", "wanting", "window",
    )  # fmt: skip

    def __init__(self, name: bytes, limits: Limits, rate: tuple[int, float] | None) -> None:
        self.name = name
        self.queue: deque[Group] = deque()
        self.flying = 0
        self.window = float(min(limits.initial, limits.most))
        self.cohorts = 0.0
        self.dead = False
        self.probing = False
        self.probe_at = 0.0
        self.interval = limits.probe_first
        self.turned_away = 0
        self.listed = self.wanting = False
        self.looked_at = 0.0
        self.rate = rate
        self.starts: deque[float] = deque()
        self.aside = Aside()
        self.away = Keys()

    @property
    def room(self) -> int:
        """Groups that the queue takes beside those that are in flight: as many as the window, so none runs dry."""
        return max(2, int(self.window)) - len(self.queue)

    @property
    def waiting(self) -> int:
        """Messages that wait for room, at the most: a key may be there twice."""
        return len(self.aside)

    @property
    def idle(self) -> bool:
        """Whether nothing would be forgotten with it."""
        return not (self.queue or self.flying or self.dead or self.cohorts or self.aside or self.starts)

    def is_forgotten(self, now: float) -> bool:
        """Return whether nothing of it is here, and nobody has tried it for so long that what is known says little."""
        counts = self.next_start(now) > now or self.starts  # Asked in this order: those that are over go.
        return not (counts or self.queue or self.flying or self.aside) and now > self.probe_at + FORGOTTEN_AFTER

    def next_start(self, now: float) -> float:
        """Return when the rate allows another message, in seconds since the epoch; now or earlier is at once."""
        if self.rate is None:
            return now
        messages, seconds = self.rate
        # A start that is yet to come is of a clock that was put back.
        while self.starts and not now - seconds < self.starts[0] <= now + SLACK:
            self.starts.popleft()
        return self.starts[0] + seconds if len(self.starts) >= messages else now

    def started(self, now: float) -> None:
        """A job was started."""
        self.flying += 1
        if self.rate is not None:
            self.starts.append(now)

    def succeeded(self, limits: Limits) -> bool:
        """A job ended and the host was there; return whether it was dead."""
        self.cohorts = 0.0
        if self.dead:
            self.dead = self.probing = False
            self.window = float(min(limits.initial, limits.most))
            self.interval = limits.probe_first
            return True
        self.window = min(float(limits.most), self.window + 1.0 / self.window)
        return False

    def failed(self, limits: Limits, now: float) -> bool:
        """A job ended because the host was not there; return whether the destination is dead from now on."""
        if self.dead:
            if self.probing:
                self.probing = False
                self.interval = min(self.interval * 2, limits.probe_most)
                self.probe_at = now + self.interval
            return False
        self.probe_at = now
        self.cohorts += 1.0 / self.window
        self.window = max(1.0, self.window - 1.0)
        if self.cohorts + 1e-9 < limits.cohorts:
            return False
        self.dead = True
        self.probing = False
        self.probe_at = now + self.interval
        return True

    def refuses(self, now: float) -> bool:
        """Whether mail is turned away without an attempt: it is dead, and this is not the time for a probe."""
        # Longer before the probe than its interval is a clock that was put back.
        return self.dead and (self.probing or self.probe_at - self.interval - SLACK <= now < self.probe_at)
