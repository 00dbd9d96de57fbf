"""The values that the scheduler works on, and the actions that it returns. Pure.

An attempt is one try at the recipients of a message that are left on a channel. An entry is the recipients of one
attempt with the same nexthop (Postfix: qmgr_entry); one delivery job is made of it, or several where it is large.
"""

from typing import NamedTuple

from queue_send.scheduler.limits import Limits, LimitTable

Recipient = tuple[int, bytes]  # Offset of its record in local/ or remote/, address.


class Settings(NamedTuple):
    """Limits of one channel: deliveries in flight, messages in the active set, limits of all and of named destinations.

    `expiry_round` is the time between searches for mail that is past its lifetime, in seconds.
    """

    concurrency: int
    active: int
    limits: Limits
    table: LimitTable = LimitTable()
    expiry_round: float = 60.0


class Attempt:
    """A message in the active set. Times are in seconds; recipients are counted, not kept.

    message: its number. sender: its envelope sender.
    birth, expires: when it was injected, and when its lifetime ends.
    disk_birth: the birth as the disk has it, before corrections of the clock. size: bytes of its recipients' file.
    due: its next attempt as the disk had it. opened: when it was loaded. loading: recipients are still to be placed.
    queued, in_flight, deferred: recipients that wait in a destination, are being delivered, are to be tried again.
    left: recipients that are not done. The caller decrements it when it has marked recipients done.
    overflow: the nexthop that had no room for some of the recipients; None if all were placed.
    placed: offsets of the recipients that were placed, if there is more than one entry.
    rest: the offset of the first recipient that was not loaded; None if all were.
    withdrawn: nothing more of it is to be started.
    """

    __slots__ = (
        "birth", "deferred", "disk_birth", "due", "expires", "in_flight", "left", "loading", "message", "opened",
        "overflow", "placed", "queued", "rest", "sender", "size", "withdrawn",
    )  # fmt: skip

    def __init__(
        self, message: int, sender: bytes, birth: int, expires: int, rest: int | None = None, due: int = 0
    ) -> None:
        self.message = message
        self.sender = sender
        self.birth = birth
        self.expires = expires
        self.rest = rest
        self.due = due
        self.disk_birth = birth
        self.size = 0
        self.queued = 0
        self.in_flight = 0
        self.deferred = 0
        self.left = 0
        self.overflow: bytes | None = None
        self.placed: list[int] = []
        self.opened = 0.0
        self.loading = False
        self.withdrawn = False

    @property
    def over(self) -> bool:
        """Whether no recipient is queued or in flight, and none is still to be placed."""
        return not (self.queued or self.in_flight or self.loading)


class Entry:
    """Recipients of one attempt with the same nexthop.

    Of an entry in flight, `started` is when its job was started and `pace` how its destination was classified then.
    """

    __slots__ = ("attempt", "nexthop", "pace", "recipients", "started")

    def __init__(self, attempt: Attempt, nexthop: bytes, recipients: list[Recipient]) -> None:
        self.attempt = attempt
        self.nexthop = nexthop
        self.recipients = recipients
        self.started = 0.0
        self.pace = 0


class Start(NamedTuple):
    """Start a delivery job for the entry, and call `ended` when its verdicts are written down."""

    entry: Entry


class Expire(NamedTuple):
    """Fail the recipients of the entry without an attempt: their lifetime is over. Then call `settled`."""

    entry: Entry


class Defer(NamedTuple):
    """The attempt is over and recipients are left: set the next attempt, and call `found`, `later` or `wake`."""

    attempt: Attempt


class Finish(NamedTuple):
    """The attempt is over and none of the loaded recipients is left."""

    attempt: Attempt


class Withdrawn(NamedTuple):
    """Nothing is in flight any more of an attempt for which `withdraw` was called."""

    attempt: Attempt


class Dead(NamedTuple):
    """The destination is dead from now on; it is probed after `interval` seconds."""

    nexthop: bytes
    interval: int
    suspended: int


class Alive(NamedTuple):
    """The dead destination is alive again; `suspended` recipients were deferred without an attempt meanwhile."""

    nexthop: bytes
    suspended: int


Action = Start | Expire | Defer | Finish | Withdrawn | Dead | Alive
