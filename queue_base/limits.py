"""The limits of destinations: control/destinationconcurrency and its like, destinationlimits, destinationrate. Pure.

queue-send's scheduler and the runs of queue-ondemand obey them. Where a home has several queues, each has its share.
"""

from collections import deque
from typing import NamedTuple

from queue_wire.address import address_key
from queue_wire.control.destinationlimits import NO_LINES, LimitLine, LimitLines
from queue_wire.control.hostmap import find_key
from queue_wire.control.localroutes import is_route_name
from queue_wire.control.smtproutes import Routes, find_nexthop

# Seconds of a queue's turn, where several queues together may have fewer jobs than there are queues.
TURN_SECONDS = 30.0
CLOCK_SLACK = 60.0  # Seconds that the time of an event may differ: it is the time at the start of a turn of the loop.


class QueueShare(NamedTuple):
    """Which part of the limits that hold over all queues of a home this one has: `place` of `queues` that run.

    The parts of all together are the limit, or less for a rate that cannot be divided evenly.
    """

    place: int = 0
    queues: int = 1

    def part(self, limit: int) -> int:
        """Return its part of a number of jobs; 0 if there are fewer than queues, and it gets none."""
        return limit // self.queues + int(self.place < limit % self.queues)

    def channel_part(self, limit: int) -> int:
        """Return its part of a channel's jobs: at least one, so that no queue stands still, unless there are none."""
        return max(self.part(limit), min(limit, 1))

    def rate(self, rate: tuple[int, float]) -> tuple[int, float]:
        """Return its part of a rate: of its messages, or one of them in a longer time."""
        messages, seconds = rate
        if messages < self.queues:
            return 1, seconds * self.queues / messages
        return self.part(messages), seconds

    def window(self, limit: int) -> tuple[int, int]:
        """Return its part of a destination's jobs, and 0; where it is none, 1 and the limit: the queues take turns."""
        return (self.part(limit), 0) if limit >= self.queues else (1, limit)

    def next_turn(self, now: float, limit: int) -> float:
        """Return when its next turn begins, or `now` in its turn; `limit` queues have one at the same time."""
        slot = int(now / TURN_SECONDS)
        wait = next(
            (ahead for ahead in range(self.queues) if (self.place - slot - ahead) % self.queues < limit), 0
        )
        return now if not wait else (slot + wait) * TURN_SECONDS


ALONE = QueueShare()


class Limits(NamedTuple):
    """The limits of a destination.

    initial, most: size of the concurrency window at first and at most, in jobs. recipients: most recipients in one job.
    cohorts: windows of host failures after which the destination is dead.
    probe_first, probe_most: seconds between probes of a dead destination, at first and at most.
    rate: (messages, seconds), None for no limit.
    line: where the control files set limits for this destination alone, as `file:number`; empty if they do not.
    turns: 0, or how many of several queues may have a job at the same time, each of `share` in its turn.
    """

    initial: int = 2
    most: int = 20
    cohorts: int = 3
    probe_first: int = 60
    probe_most: int = 3600
    recipients: int = 50
    rate: tuple[int, float] | None = None
    line: bytes = b""
    turns: int = 0
    share: QueueShare = ALONE

    @property
    def paced(self) -> bool:
        """Whether a job may have to wait for its time."""
        return self.rate is not None or self.turns > 0

    def divided(self, share: QueueShare) -> "Limits":
        """Return the part of one of several queues."""
        if share.queues == 1:
            return self
        most, turns = share.window(self.most)
        rate = None if self.rate is None else share.rate(self.rate)
        return self._replace(initial=min(self.initial, most), most=most, rate=rate, turns=turns, share=share)


class LimitTable:
    """The limits of the destinations of one channel that the lines and smtproutes, read together, name."""

    __slots__ = ("_any", "_lines", "_local", "_relays", "_routes", "_share")

    def __init__(
        self,
        lines: LimitLines = NO_LINES,
        routes: Routes | None = None,
        local: bool = False,
        share: QueueShare = ALONE,
    ) -> None:
        self._share = share
        self._lines = lines
        self._routes = routes or {}
        self._local = local
        self._any = bool(lines.recipients or lines.domains or lines.relays)
        used = self._routes.values() if lines.domains and not local else ()
        self._relays = frozenset(relays.name for relays in used if relays is not None)

    def limits(self, name: bytes, default: Limits) -> Limits:
        """Return the limits of a destination, by its name; those of one of several queues are divided."""
        line = self._line(name) if self._any else None
        if line is None:
            return default.divided(self._share)
        found = default._replace(
            initial=default.initial if line.initial is None else line.initial,
            most=default.most if line.concurrency is None else line.concurrency,
            recipients=default.recipients if line.recipients is None else line.recipients,
            rate=line.rate,
            line=b",".join(b"%s:%d" % (file.encode("ascii"), number) for file, number in line.where),
        )
        return found.divided(self._share)

    def _line(self, name: bytes) -> LimitLine | None:
        lines = self._lines
        if self._local:
            if is_route_name(name):
                return lines.relays.get(name)
            return lines.recipients.get(address_key(name)) if lines.recipients else None
        if lines.domains and name not in self._relays:
            key = find_key(lines.domains, name)
            if key is not None:
                return lines.domains[key]
        return lines.relays.get(name)

    def relay(self, name: bytes) -> bytes | None:
        """Return the relay that takes the mail of several destinations, this one among them; None if none does.

        A relay is one destination for all its domains without a line, and each domain with a line is one of its own.
        """
        if self._local or not self._routes or not self._lines.domains:
            return None
        if name in self._relays:
            return name
        relay, relayed = find_nexthop(self._routes, name)
        return relay if relayed else None


_NO_STARTS: deque[float] = deque()  # Of what has no rate: an empty deque takes 600 bytes.


class RateLimited:
    """A destination or a relay: its limits, and its recent starts, which are counted for the rate."""

    __slots__ = ("checked_at", "in_flight", "limits", "name", "starts")

    def __init__(self, name: bytes, limits: Limits) -> None:
        self.name = name
        self.limits = limits
        self.in_flight = 0  # Jobs.
        self.checked_at = 0.0  # The latest time for which the scheduler has a timer.
        self.starts = _NO_STARTS if limits.rate is None else deque[float]()

    def own_start(self, now: float) -> float:
        """Return when its rate allows the next job, in seconds since the epoch; `now` or earlier is at once.

        Where several queues have turns, that is in its turn.
        """
        limits = self.limits
        turn = limits.share.next_turn(now, limits.turns) if limits.turns else now
        if limits.rate is None:
            return turn
        messages, seconds = limits.rate
        # A start in the future was counted before the clock was set back.
        while self.starts and not now - seconds < self.starts[0] <= now + CLOCK_SLACK:
            self.starts.popleft()
        return max(turn, self.starts[-messages] + seconds) if len(self.starts) >= messages else turn

    def count_start(self, now: float) -> None:
        """Counts the start of a job."""
        self.in_flight += 1
        if self.limits.rate is not None:
            self.starts.append(now)

    def take_limits(self, limits: Limits) -> None:
        """Set new limits, after HUP."""
        self.limits = limits
        if limits.rate is None:
            self.starts = _NO_STARTS
        elif self.starts is _NO_STARTS:
            self.starts = deque()
