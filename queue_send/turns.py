"""Whose turn it is: destinations one after the other, but those that hold their places for long leave some free. Pure.

A destination is quick or slow by what its jobs took of late, unproven where nothing is known. A tarpit, or a thousand
hosts that let connections time out, are to keep no place from mail that is gone in a second, and a slow job cannot be
called back when there is a rush. So a slow job starts only where it leaves two fifths of the places free, and the slow
ones take at most half; but an eighth is theirs in any case, so that they are served. The slow and the unproven take
at most three quarters. A job that is in flight for long counts as slow, whatever it began as. What has to wait for
a place has its turn first when there is one.
"""

from collections import deque

from queue_send.attempt import Group
from queue_send.destination import Destination, RelayTotal

SLOW, UNPROVEN, QUICK, ENDED = range(4)
LONG = 15.0  # Seconds that a quick destination's jobs take at the most.
SPARE = 2 / 5  # Of the places, these stay free where a slow job starts,
LEAST = 1 / 8  # but so many are for slow jobs in any case.
KNOWN_MOST = 20_000  # Destinations whose pace is remembered, about 200 bytes each.
PARKED_AT_ONCE = 500  # Destinations without a place that one call looks at.


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

    def next(self, concurrency: int, now: float) -> Destination | None:
        """Take out the destination whose turn it is; None where none with a place was found."""
        if self._young:
            self._age(now)
        if not (self._ready or self._parked[SLOW] or self._parked[UNPROVEN]):
            return None
        for _ in range(PARKED_AT_ONCE):
            queue = self._next_queue(concurrency)
            if queue is None:
                return None
            destination = queue.popleft()
            if self.room(destination, concurrency) > 0:
                destination.listed = False
                return destination
            self._parked[self._pace(destination)].append(destination)
            if destination.relay is not None:
                self.call(destination.relay)
        return None

    def call(self, relay: RelayTotal) -> None:
        """Have the destination that has waited longest for a relay take its turn."""
        destination = relay.call()
        if destination is not None:
            self.add(destination)

    def any(self, concurrency: int) -> bool:
        """Whether `next` may have something."""
        return self._next_queue(concurrency) is not None

    def _next_queue(self, concurrency: int) -> deque[Destination] | None:
        slow, unproven = self._parked
        if slow and self._places(SLOW, concurrency) > 0:
            return slow
        if unproven and self._places(UNPROVEN, concurrency) > 0:
            return unproven
        return self._ready if self._ready and sum(self._running) < concurrency else None

    def room(self, destination: Destination, concurrency: int) -> int:
        """Return how many recipients of a destination may start."""
        return self._places(self._pace(destination), concurrency)

    def _places(self, pace: int, concurrency: int) -> int:
        slow, unproven, quick = self._running
        places = concurrency - slow - unproven - quick
        if pace == SLOW:
            spared = min(places - int(concurrency * SPARE), (concurrency + 1) // 2 - slow)
            places = min(places, max(spared, int(concurrency * LEAST) - slow))
        if pace != QUICK:
            places = min(places, concurrency - concurrency // 4 - slow - unproven)
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

    def _age(self, now: float) -> None:
        """Count jobs that are in flight for long as slow."""
        while self._young and (self._young[0].pace == ENDED or self._young[0].started + LONG < now):
            group = self._young.popleft()
            if group.pace != ENDED:
                self._running[group.pace] -= len(group.recipients)
                self._running[SLOW] += len(group.recipients)
                group.pace = SLOW

    def ended(self, group: Group, host_failed: bool, now: float) -> None:
        """A job has ended; what it took counts for a quarter, but for nothing if a host that is known was not there."""
        self._running[group.pace] -= len(group.recipients)
        group.pace = ENDED
        if host_failed and group.nexthop in self._seconds:
            return
        seconds = max(0.0, now - group.started)
        before = self._seconds.pop(group.nexthop, seconds)
        self._seconds[group.nexthop] = (3.0 * before + seconds) / 4.0
        if len(self._seconds) > KNOWN_MOST:
            del self._seconds[next(iter(self._seconds))]

    def forget(self, nexthop: bytes) -> None:
        """What a destination's jobs took says nothing of the next ones: nobody was there."""
        self._seconds.pop(nexthop, None)
