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
    """What holds for a destination: jobs, windows of failures, seconds between probes, recipients in a job.

    `rate` is messages in seconds, `line` the one of the control files that says so, as `file:number`.
    """

    initial: int = 2
    most: int = 20
    cohorts: int = 3
    probe_first: int = 60
    probe_most: int = 3600
    recipients: int = 50
    rate: tuple[int, float] | None = None
    line: bytes = b""


class Rated:
    """Something with limits, whose starts its rate counts."""

    __slots__ = ("flying", "limits", "looked_at", "name", "starts")

    def __init__(self, name: bytes, limits: Limits) -> None:
        self.name = name
        self.limits = limits
        self.flying = 0
        self.looked_at = 0.0
        self.starts: deque[float] = deque()

    def own_start(self, now: float) -> float:
        """Return when its own rate allows another message, in seconds since the epoch; now or earlier is at once."""
        if self.limits.rate is None:
            return now
        messages, seconds = self.limits.rate
        # A start that is yet to come is of a clock that was put back.
        while self.starts and not now - seconds < self.starts[0] <= now + SLACK:
            self.starts.popleft()
        return self.starts[-messages] + seconds if len(self.starts) >= messages else now

    def started(self, now: float) -> None:
        """A job was started."""
        self.flying += 1
        if self.limits.rate is not None:
            self.starts.append(now)

    def take_limits(self, limits: Limits) -> None:
        """Take the limits of control files that were read again."""
        self.limits = limits
        if limits.rate is None:
            self.starts.clear()


class RelayTotal(Rated):
    """All that goes by one relay, where some of its domains are destinations of their own; its limits hold over all.

    Its rate and its most jobs at once are for them together; each has its own as well.
    """

    __slots__ = ("_waiting",)

    def __init__(self, name: bytes, limits: Limits) -> None:
        super().__init__(name, limits)
        self._waiting: deque[Destination] = deque()  # They could start something, if this allowed it.

    def hold(self, destination: "Destination") -> None:
        """Have a destination wait; one whose turn it was already comes first."""
        destination.listed = True
        destination.held = self
        if destination.called:
            self._waiting.appendleft(destination)
        else:
            self._waiting.append(destination)
        destination.called = False

    def call(self) -> "Destination | None":
        """Take out the destination that is to have the next turn, None where none waits."""
        while self._waiting:
            destination = self._waiting.popleft()
            if destination.held is self:
                destination.held = None
                destination.called = True
                return destination
        return None

    @property
    def waits(self) -> bool:
        """Whether any may wait."""
        return bool(self._waiting)


class Destination(Rated):
    """`queue` are groups that may start, `aside` keys of messages that wait on disk for a place in it.

    `away` are keys of messages that were turned away while it is dead; they have a next attempt, too. `probe_at` is
    of one that is dead; of one that is not, it is when its host was last not there. `relay` takes its mail and that of
    other destinations; `held` is where it waits for that, and `called` is set from the end of that until its turn.
    """

    __slots__ = (
        "aside", "away", "called", "cohorts", "dead", "held", "interval", "listed",
        "probe_at", "probing", "queue", "relay", "turned_away", "wanting", "window",
    )  # fmt: skip

    def __init__(self, name: bytes, limits: Limits) -> None:
        super().__init__(name, limits)
        self.queue: deque[Group] = deque()
        self.window = float(min(limits.initial, limits.most))
        self.cohorts = 0.0
        self.dead = False
        self.probing = False
        self.probe_at = 0.0
        self.interval = limits.probe_first
        self.turned_away = 0
        self.listed = self.wanting = self.called = False
        self.relay: RelayTotal | None = None
        self.held: RelayTotal | None = None
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
        counts = self.own_start(now) > now or self.starts  # Asked in this order: those that are over go.
        return not (counts or self.queue or self.flying or self.aside) and now > self.probe_at + FORGOTTEN_AFTER

    def next_start(self, now: float) -> float:
        """Return when its rate and that of its relay allow another message; now or earlier is at once."""
        start = self.own_start(now)
        return start if self.relay is None else max(start, self.relay.own_start(now))

    def take_limits(self, limits: Limits) -> None:
        """Take other limits; the window stays as it is, if it may."""
        super().take_limits(limits)
        self.window = min(self.window, float(limits.most))

    def attach(self, relay: RelayTotal | None) -> None:
        """Take another relay's limits over this one's, or none; what is in flight counts there from now on."""
        if relay is self.relay:
            return
        if self.relay is not None:
            self.relay.flying -= self.flying
        if relay is not None:
            relay.flying += self.flying
        self.relay = relay
        if self.held is not None:
            self.held, self.listed = None, False

    def succeeded(self) -> bool:
        """A job ended and the host was there; return whether it was dead."""
        limits = self.limits
        self.cohorts = 0.0
        if self.dead:
            self.dead = self.probing = False
            self.window = float(min(limits.initial, limits.most))
            self.interval = limits.probe_first
            return True
        self.window = min(float(limits.most), self.window + 1.0 / self.window)
        return False

    def failed(self, now: float) -> bool:
        """A job ended because the host was not there; return whether the destination is dead from now on."""
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

    def refuses(self, now: float) -> bool:
        """Whether mail is turned away without an attempt: it is dead, and this is not the time for a probe."""
        # Longer before the probe than its interval is a clock that was put back.
        return self.dead and (self.probing or self.probe_at - self.interval - SLACK <= now < self.probe_at)
