"""The values that the scheduler works on, and the actions that it returns. Pure.

An attempt is one try at the recipients of a message that are left on a channel. An entry is the recipients of one
attempt with the same nexthop (Postfix: qmgr_entry). It becomes one delivery job, or several if it is large.
"""

from typing import NamedTuple

from queue_base.limits import Limits, LimitTable
from queue_wire.admin.returning import RecipientSelector

Recipient = tuple[int, bytes]  # Offset of its record in local/ or remote/, address.


class Settings(NamedTuple):
    """Limits of one channel: deliveries in flight, messages in the active set, limits of all and of named destinations.

    `expiry_round` is the time between searches for mail that is past its lifetime, in seconds. `bulkshare` is the part
    of the places, in percent, that lower classes may hold while mail of the first class waits.
    """

    concurrency: int
    active: int
    limits: Limits
    table: LimitTable = LimitTable()
    expiry_round: float = 60.0
    bulkshare: int = 50

    @property
    def lower_places(self) -> int:
        """The recipients of lower classes that may be in flight while mail of the first class waits."""
        return max(1, self.concurrency * self.bulkshare // 100)

    @property
    def lower_active(self) -> int:
        """The messages of lower classes that may be loaded while mail of the first class waits."""
        return max(1, self.active * self.bulkshare // 100)


class Attempt:
    """One try at the recipients of a message that are left on a channel, or at a slice of them if they are very many.

    It exists while the message is in the active set. Times are in seconds; recipients are counted, not kept.

    message: its number. sender: its envelope sender.
    birth, expires: when it was injected, and when its lifetime ends.
    disk_birth: the birth as the disk has it, before corrections of the clock. size: bytes of its recipients' file.
    due: its next attempt as the disk had it. loaded_at: when it was loaded. loading: entries are still to be added.
    queued, in_flight, deferred: recipients that wait in a destination, are being delivered, are to be tried again.
    left: recipients that are not done. The caller decrements it when it has marked recipients done.
    overflow: the nexthop that had no room for some of the recipients; None if all have been queued or suspended.
    placed: offsets of the recipients that have been queued or suspended, if there is more than one entry.
    rest: the offset of the first recipient that was not loaded; None if all were.
    in_turn: it has waited in the overflow of its destination until its turn came.
    rank: that of its class; 0 is the first class. submitter: who has a share of the places and of the active set for
    it (nexthop.submitter_of); None if nobody has.
    withdrawn: nothing more of it is to be started.
    chosen: if it is at some recipients only, what chooses them; the others count as left. others_due: the next attempt
    of the others then, as the disk has it.
    """

    __slots__ = (
        "birth", "chosen", "deferred", "disk_birth", "due", "expires", "in_flight", "in_turn", "left", "loaded_at",
        "loading", "message", "others_due", "overflow", "placed", "queued", "rank", "rest", "sender", "size",
        "submitter", "withdrawn",
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
        self.loaded_at = 0.0
        self.loading = False
        self.withdrawn = False
        self.in_turn = False
        self.rank = 0
        self.submitter: bytes | None = None
        self.chosen: tuple[RecipientSelector, ...] = ()
        self.others_due = 0


class Entry:
    """Recipients of one attempt with the same nexthop.

    For an entry in flight, `started` is the time when its job was started, `pace` is the class of its destination
    (round_robin.py), and `holders` have the shares that it counts for (shares.py).
    """

    __slots__ = ("attempt", "holders", "nexthop", "pace", "recipients", "started")

    def __init__(self, attempt: Attempt, nexthop: bytes, recipients: list[Recipient]) -> None:
        self.attempt = attempt
        self.nexthop = nexthop
        self.recipients = recipients
        self.started = 0.0
        self.pace = 0
        self.holders: tuple[bytes, ...] = ()

    def split_off(self, most: int) -> "Entry":
        """Keep the first `most` recipients; return an entry of the others."""
        rest = Entry(self.attempt, self.nexthop, self.recipients[most:])
        self.recipients = self.recipients[:most]
        return rest


class Start(NamedTuple):
    """Start a delivery job for the entry; call `end_job` when its verdicts are recorded."""

    entry: Entry


class Expire(NamedTuple):
    """Fail the recipients of the entry without an attempt, because their lifetime is over; then call `end_expired`."""

    entry: Entry


class Suspended(NamedTuple):
    """The recipients of the entry are deferred without an attempt, because their destination is dead."""

    entry: Entry


class Defer(NamedTuple):
    """The attempt is over and recipients are left.

    Set the next attempt, and call `add_deferred`, `retry_at` or `make_due`.
    """

    attempt: Attempt


class Finish(NamedTuple):
    """The attempt is over and none of the loaded recipients is left."""

    attempt: Attempt


class Withdrawn(NamedTuple):
    """An attempt for which `withdraw` was called has nothing in flight any more."""

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


Action = Start | Expire | Suspended | Defer | Finish | Withdrawn | Dead | Alive
