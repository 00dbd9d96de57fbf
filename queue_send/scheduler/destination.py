"""A destination: its queue, its concurrency window, its rate, and whether it is dead. Pure.

The window is Postfix's: it starts at `initial`, grows by one per window of successes, shrinks by one per failure of
the host, and stays between one and `most`. `cohorts` counts windows of host failures without a success between them;
at the limit the destination is dead until a probe succeeds.
"""

from collections import deque

from queue_base.limits import CLOCK_SLACK, Limits, RateLimited
from queue_send.scheduler.fifo import Fifo
from queue_send.scheduler.model import Entry
from queue_send.scheduler.nexthop import holder_of
from queue_send.scheduler.overflow import Overflow

EXAMINED_MAX = 100  # Entries of a queue that a search for one of another submitter examines.
FORGET_AFTER = 86400  # Seconds after the last failure until an idle destination is forgotten.


class WaitQueue:
    """The destinations that only a limit of several destinations together prevents from starting a job."""

    __slots__ = ("_lower", "_waiting")

    def __init__(self) -> None:
        self._waiting: deque[Destination] = deque()
        self._lower: deque[Destination] = deque()  # Those whose next entry is of a lower class.

    def enqueue(self, destination: "Destination") -> None:
        """Add a destination at the end of the queue; at its head if it was removed from there and did not start."""
        destination.listed = True
        destination.waits_for = self
        destination.lower = destination.next_is_lower
        waiting = self._lower if destination.lower else self._waiting
        if destination.was_first:
            waiting.appendleft(destination)
        else:
            waiting.append(destination)
        destination.was_first = False

    @property
    def head(self) -> "Destination | None":
        """The destination at the head of the queue; None if it is empty."""
        for lower, waiting in ((False, self._waiting), (True, self._lower)):
            while waiting:
                destination = waiting[0]
                if destination.waits_for is self and destination.lower == lower:
                    return destination
                waiting.popleft()  # It was listed in another way since.
        return None

    def dequeue(self) -> "Destination | None":
        """Remove and return the destination at the head of the queue; None if it is empty."""
        destination = self.head
        if destination is not None:
            (self._lower if destination.lower else self._waiting).popleft()
            destination.waits_for = None
            destination.was_first = True
        return destination

    @property
    def has_waiting(self) -> bool:
        """Whether destinations may be waiting."""
        return bool(self._waiting or self._lower)


class SharedRelay(RateLimited):
    """A relay that takes the mail of several destinations. Its limits apply to all of this mail together.

    Each of the destinations has its own limits as well. `waiting`: those that only the relay's limits prevent from
    starting a job.
    """

    __slots__ = ("waiting",)

    def __init__(self, name: bytes, limits: Limits) -> None:
        super().__init__(name, limits)
        self.waiting = WaitQueue()


class Destination(RateLimited):
    """A nexthop.

    queue: entries that may start, in the order of their classes. overflow: messages on disk that wait for room in the
    queue; those of lower classes are in `lower_overflow`.
    window, cohorts, dead, interval: see the module. probing: a probe is queued or in flight.
    answered_at: when a job of it ended whose host had not failed.
    probe_at: when a dead destination is probed; for another one, when its host last failed.
    suspended: messages that were deferred without an attempt while it is dead; each has a next attempt as well.
    suspended_count: their recipients.
    listed: it is in the list of destinations that can start a job (round_robin.py), or in its relay's queue.
    lower: it is in that for lower classes.
    loading: it is in the scheduler's list of destinations that have room for messages of their overflow; lower_loading:
    the same for lower classes.
    suspending: it is in the scheduler's list of dead destinations whose overflow is to be deferred.
    relay: the relay that takes its mail and that of other destinations. holder: the name of the share that its places
    count for (shares.py). waits_for: the queue of a relay or of a share in which it is.
    was_first: it was removed from the head of that queue, and has not started a job since.
    """

    __slots__ = (
        "answered_at", "cohorts", "dead", "holder", "interval", "listed", "loading", "lower", "lower_loading",
        "lower_overflow", "overflow", "probe_at", "probing", "queue", "relay", "suspended", "suspended_count",
        "suspending", "waits_for", "was_first", "window",
    )  # fmt: skip

    def __init__(self, name: bytes, limits: Limits) -> None:
        super().__init__(name, limits)
        self.queue: list[Entry] = []  # An empty deque takes 600 bytes.
        self.overflow = Overflow()
        self.lower_overflow: Overflow | None = None
        self.window = float(min(limits.initial, limits.most))
        self.cohorts = 0.0
        self.dead = False
        self.interval = limits.probe_first
        self.probing = False
        self.answered_at = 0.0
        self.probe_at = 0.0
        self.suspended = Fifo()
        self.suspended_count = 0
        self.listed = self.loading = self.suspending = self.was_first = False
        self.lower = self.lower_loading = False
        self.relay: SharedRelay | None = None
        self.holder = holder_of(name)
        self.waits_for: WaitQueue | None = None

    @property
    def room(self) -> int:
        """The number of entries that may be added to the queue, which holds as many as the window allows jobs."""
        return max(2, int(self.window)) - len(self.queue)

    def room_for(self, rank: int) -> int:
        """The same for entries of a class. Those of the first class go before the others, which take no room."""
        queue = self.queue
        if rank or not queue or not queue[-1].attempt.rank:
            return self.room
        return max(2, int(self.window)) - self._place_for(0)

    def _place_for(self, rank: int) -> int:
        """Return the index of the first entry in the queue whose class is lower, by bisection."""
        queue = self.queue
        low, high = 0, len(queue)
        while low < high:
            middle = (low + high) // 2
            if queue[middle].attempt.rank <= rank:
                low = middle + 1
            else:
                high = middle
        return low

    def enqueue(self, entry: Entry) -> None:
        """Add an entry behind those of its class and of higher ones."""
        queue, rank = self.queue, entry.attempt.rank
        if not queue or queue[-1].attempt.rank <= rank:
            queue.append(entry)
        else:
            queue.insert(self._place_for(rank), entry)

    def pass_by(self, submitter: bytes) -> bool:
        """Let an entry of somebody else, of the same class, go before those of a submitter whose entry is the next.

        Return whether there is one.
        """
        queue = self.queue
        if not queue or queue[0].attempt.submitter != submitter:
            return False
        for place in range(1, min(len(queue), EXAMINED_MAX)):
            if queue[place].attempt.rank != queue[0].attempt.rank:
                return False
            if queue[place].attempt.submitter != submitter:
                queue.insert(0, queue.pop(place))
                return True
        return False

    @property
    def next_is_lower(self) -> bool:
        """Whether the entry that starts next is of a lower class."""
        return bool(self.queue) and self.queue[0].attempt.rank > 0

    @property
    def next_submitter(self) -> bytes | None:
        """Whose submitter's share the entry that starts next counts for; None if it counts for none."""
        return self.queue[0].attempt.submitter if self.queue else None

    @property
    def overflows(self) -> list[Overflow]:
        """Its overflows that have messages, that of the first class first."""
        lower = self.lower_overflow
        both = [self.overflow] if lower is None else [self.overflow, lower]
        return [each for each in both if each]

    @property
    def overflowing(self) -> int:
        """The number of messages in its overflows."""
        return len(self.overflow) + (0 if self.lower_overflow is None else len(self.lower_overflow))

    def overflow_of(self, rank: int) -> Overflow:
        """Return the overflow of a class."""
        if not rank:
            return self.overflow
        if self.lower_overflow is None:
            self.lower_overflow = Overflow()
        return self.lower_overflow

    def overflow_holds(self, message: int) -> bool:
        """Return whether a message is in one of its overflows."""
        return any(each.holds(message) for each in self.overflows)

    def take_overflow(self) -> int | None:
        """Remove and return the oldest message of the highest class in its overflows; None if there is none."""
        for each in self.overflows:
            message = each.take()
            if message is not None:
                return message
        return None

    @property
    def has_no_mail(self) -> bool:
        """Whether it has neither mail nor a start that counts for its rate; it may have failed, or be dead."""
        return not (self.queue or self.in_flight or self.overflowing or self.starts or self.listed)

    @property
    def idle(self) -> bool:
        """Whether the destination holds no state that differs from a new one's."""
        return not (self.queue or self.in_flight or self.dead or self.cohorts or self.overflowing or self.starts)

    def is_expired(self, now: float) -> bool:
        """Return whether the destination is idle and its statistics have expired."""
        limited = self.own_start(now) > now or self.starts  # In this order: own_start drops starts that are over.
        in_use = limited or self.queue or self.in_flight or self.overflowing
        return not in_use and now > self.probe_at + FORGET_AFTER

    def next_start(self, now: float) -> float:
        """Return when its rate and its relay's rate allow the next job; `now` or earlier is at once."""
        start = self.own_start(now)
        return start if self.relay is None else max(start, self.relay.own_start(now))

    def take_limits(self, limits: Limits) -> None:
        """Set new limits; the window is reduced to the new maximum."""
        super().take_limits(limits)
        self.window = min(self.window, float(limits.most))

    def set_relay(self, relay: SharedRelay | None) -> None:
        """Set another relay, or none. Jobs in flight count for the new one from now on."""
        if relay is self.relay:
            return
        if self.relay is not None:
            self.relay.in_flight -= self.in_flight
        if relay is not None:
            relay.in_flight += self.in_flight
        self.relay = relay
        if self.waits_for is not None:
            self.waits_for, self.listed = None, False

    def count_success(self) -> bool:
        """Count a job whose host answered; return whether the destination was dead until now."""
        limits = self.limits
        self.cohorts = 0.0
        if self.dead:
            self.dead = self.probing = False
            self.window = float(min(limits.initial, limits.most))
            self.interval = limits.probe_first
            return True
        self.window = min(float(limits.most), self.window + 1.0 / self.window)
        return False

    def count_failure(self, now: float) -> bool:
        """Count a job whose host failed; return whether the destination is dead from now on."""
        limits = self.limits
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

    def suspends(self, now: float) -> bool:
        """Return whether mail is deferred without an attempt: the destination is dead and no probe is due."""
        # If the probe is further away than its interval, the clock was set back.
        return self.dead and (self.probing or self.probe_at - self.interval - CLOCK_SLACK <= now < self.probe_at)
