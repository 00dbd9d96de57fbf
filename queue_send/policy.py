"""What one channel tries next. Pure: no I/O and no clock; events go in, work comes out.

The first policy, qmail's: messages in the order in which they fall due, at most `limit` deliveries at
once. Messages that are being tried take turns, so that one with many recipients does not hold
up the others. Recipients of a message with the same nexthop form one job.
"""

from collections import deque
from heapq import heappop, heappush

# Messages whose recipients are in memory and not all started: enough to take turns, no more.
OPEN_MOST = 50

# Seconds; a time that is this much earlier is past, whatever the clock says.
LONG_AGO = 1e11

Recipient = tuple[int, bytes]  # offset of its record in local/ or remote/, address


class Pass:
    """One try at those recipients of one message that are left on one channel.

    `groups` are (nexthop, recipients) still to be started; `flying` counts deliveries in flight and
    `left` recipients that are not done. birth is in seconds; a dying pass is the last one.
    """

    __slots__ = ("birth", "dying", "flying", "groups", "left", "message", "sender")

    def __init__(self, message: int, sender: bytes, birth: int, dying: bool) -> None:
        self.message = message
        self.sender = sender
        self.birth = birth
        self.dying = dying
        self.groups: deque[tuple[bytes, list[Recipient]]] = deque()
        self.flying = 0
        self.left = 0

    def add_group(self, nexthop: bytes, recipients: list[Recipient]) -> None:
        """Add recipients that one job may take together."""
        self.groups.append((nexthop, recipients))
        self.left += len(recipients)

    @property
    def over(self) -> bool:
        """Whether every recipient was tried and has its verdict."""
        return not self.groups and not self.flying


class Policy:
    """The waiting messages and open passes of one channel, and how many deliveries are in flight."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.running = 0
        self._waiting: list[tuple[float, int]] = []
        self._open: deque[Pass] = deque()

    def wait(self, message: int, due: float) -> None:
        """A message is to be tried at `due`, in seconds since the epoch."""
        heappush(self._waiting, (due, message))

    def flush(self) -> None:
        """Everything that waits is due now, in the order that it had."""
        # Taking the same amount from every key keeps the heap as it is.
        self._waiting = [(due - LONG_AGO, message) for due, message in self._waiting]

    def open(self, attempt: Pass) -> None:
        """A due message was loaded; its groups take their turns from now on."""
        self._open.append(attempt)

    def next_message(self, now: float) -> int | None:
        """Return a due message to load, if there is room for its recipients; it waits no more."""
        if self._waiting and self._waiting[0][0] <= now and self.has_room:
            return heappop(self._waiting)[1]
        return None

    @property
    def has_room(self) -> bool:
        """Whether another message may be loaded."""
        return self.running < self.limit and len(self._open) < OPEN_MOST

    def next_job(self, most: int) -> tuple[Pass, bytes, list[Recipient]] | None:
        """Return (pass, nexthop, at most `most` recipients) of the job to start now, None where none may."""
        room = min(self.limit - self.running, most)
        if not self._open or room <= 0:
            return None
        attempt = self._open.popleft()
        nexthop, recipients = attempt.groups.popleft()
        if len(recipients) > room:
            attempt.groups.appendleft((nexthop, recipients[room:]))
            recipients = recipients[:room]
        if attempt.groups:
            self._open.append(attempt)
        attempt.flying += len(recipients)
        self.running += len(recipients)
        return attempt, nexthop, recipients

    def ended(self, attempt: Pass, deliveries: int) -> None:
        """So many deliveries of a pass have their verdicts."""
        attempt.flying -= deliveries
        self.running -= deliveries

    def next_time(self) -> float | None:
        """Return when there will be something to start, 0 for now, None where only a verdict can bring it."""
        if self.running >= self.limit:
            return None
        if self._open:
            return 0.0
        return self._waiting[0][0] if self._waiting else None
