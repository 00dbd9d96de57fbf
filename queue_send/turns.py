"""Whose turn it is: destinations one after the other, but those that hold their places for long leave some free. Pure.

A destination is quick or slow by what its jobs took of late, unproven where nothing is known. The slow ones take at
most half of the places together, the slow and the unproven three quarters, so that a tarpit, or a thousand
hosts that let connections time out, keep no place from mail that is gone in a second. A job that is in flight for
long counts as slow, whatever it began as. What has to wait for a place has its turn first when there is one.
"""

from collections import deque

from queue_send.attempt import Group
from queue_send.destination import Destination

SLOW, UNPROVEN, QUICK, ENDED = range(4)
LONG = 15.0  # Seconds that a quick destination's jobs take at the most.
KNOWN_MOST = 20_000  # Destinations whose pace is remembered, about 200 bytes each.


class Turns:
    """Destinations that have something to start, and the places that are taken."""

    def __init__(self) -> None:
        self._ready: deque[Destination] = deque()
        self._parked: tuple[deque[Destination], deque[Destination]] = (deque(), deque())  # SLOW, UNPROVEN
        self._seconds: dict[bytes, float] = {}  # What a job takes, by destination; the latest at the end.
        self._running = [0, 0, 0]
        self._young: deque[Group] = deque()  # Jobs that do not count as slow yet, and some that have ended.

    def add(self, destination: Destination) -> None:
        """Have a destination take its turn; it is in here once."""
        destination.listed = True
        self._ready.append(destination)

    def next(self, concurrency: int) -> Destination | None:
        """Take out the destination whose turn it is; None where there is none that has a place."""
        while True:
            queue = self._next_queue(concurrency)
            if queue is None:
                return None
            destination = queue.popleft()
            if self.room(destination, concurrency) > 0:
                destination.listed = False
                return destination
            self._parked[self._pace(destination)].append(destination)

    def any(self, concurrency: int) -> bool:
        """Whether `next` may have something."""
        return self._next_queue(concurrency) is not None

    def _next_queue(self, concurrency: int) -> deque[Destination] | None:
        for pace, parked in enumerate(self._parked):
            if parked and self._places(pace, concurrency) > 0:
                return parked
        return self._ready if self._ready and self._places(QUICK, concurrency) > 0 else None

    def room(self, destination: Destination, concurrency: int) -> int:
        """Return how many recipients of a destination may start."""
        return self._places(self._pace(destination), concurrency)

    def _places(self, pace: int, concurrency: int) -> int:
        slow, unproven, quick = self._running
        places = concurrency - slow - unproven - quick
        if pace != QUICK:
            places = min(places, concurrency - concurrency // 4 - slow - unproven)
        if pace == SLOW:
            places = min(places, (concurrency + 1) // 2 - slow)
        return places

    def _pace(self, destination: Destination) -> int:
        seconds = self._seconds.get(destination.name)
        return UNPROVEN if seconds is None else SLOW if seconds > LONG else QUICK

    def started(self, group: Group, destination: Destination, now: float) -> None:
        """A job was started."""
        group.pace, group.started = self._pace(destination), now
        self._running[group.pace] += len(group.recipients)
        if group.pace != SLOW:
            self._young.append(group)

    def age(self, now: float) -> None:
        """Count jobs that are in flight for long as slow."""
        while self._young and (self._young[0].pace == ENDED or self._young[0].started + LONG < now):
            group = self._young.popleft()
            if group.pace != ENDED:
                self._running[group.pace] -= len(group.recipients)
                self._running[SLOW] += len(group.recipients)
                group.pace = SLOW

    def ended(self, group: Group, now: float) -> None:
        """A job has ended; what it took counts for a quarter."""
        self._running[group.pace] -= len(group.recipients)
        group.pace = ENDED
        seconds = max(0.0, now - group.started)
        before = self._seconds.pop(group.nexthop, seconds)
        self._seconds[group.nexthop] = (3.0 * before + seconds) / 4.0
        if len(self._seconds) > KNOWN_MOST:
            del self._seconds[next(iter(self._seconds))]
