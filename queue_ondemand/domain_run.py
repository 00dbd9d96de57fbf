"""One run over the stored mail of a domain: which records are tried next, and what became of them. Pure.

A run takes the clusters that there are when it begins, one after the other, and in each one the records that are not
done, in order. Records of one message that follow each other are one group, and a group is delivered by one job. The
next group is taken when the last one is over, so that the mail of a domain is delivered in the order in which it came.

A run of another purpose tries nothing. One for expiry takes the groups of messages that have expired, and ends at the
first cluster that has none; those for the administrator's orders take the messages that were chosen, or all.

What is on hold is neither tried, nor requeued, nor does it expire; orders to delete or bounce take it.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import NamedTuple

from queue_wire.files.cluster import ClusterRecord
from queue_wire.files.stored_order import WHOLE, StoredOrder

GROUP_MAX = 50  # Recipients of a job.


class Purpose(Enum):
    """What a run does with the records that it takes."""

    DELIVERY = "delivery"
    EXPIRY = "expiry"
    DELETION = "deletion"
    RETURN = "return"
    REQUEUE = "requeue"


class ChosenRecords(NamedTuple):
    """What a run is about: an order; or the messages with the long ids `ids`, none for all.

    before: the record at this offset of this cluster, and what follows it, are not meant.
    """

    ids: frozenset[str] = frozenset()
    order: StoredOrder | None = None
    before: tuple[int, int] | None = None

    def takes(self, record: ClusterRecord, number: int, seed: int) -> bool:
        """Return whether it is about a record of a cluster."""
        stored = record.stored
        if self.order is not None:
            return self.order.takes(stored.long_id, stored.recipient, number, seed, record.offset)
        if self.before is not None and (number, record.offset) >= self.before:
            return False
        return not self.ids or stored.long_id in self.ids


EVERY_RECORD = ChosenRecords()


class DomainRun:
    """`cause` is who asked for it, for the log; `number` is the cluster that it is at, 0 before the first one.

    `chosen` says what is taken, `order` is the name of the order that is carried out, empty for none.

    `touched`: records of the cluster are done, or all were before, so that it is to be settled. `unloaded`: the
    cluster is to be read again. `held` is what was on hold when it was read. `next_birth`: that of the group that was
    put back, in microseconds.
    `oldest`: the birth of the oldest message that is left of those looked at, in microseconds; None if there is none.
    """

    __slots__ = (
        *("_clusters", "_from", "_group", "_records", "_seed", "cause", "chosen", "deferred", "delivered", "domain"),
        *("expired", "failed", "held", "next_birth", "number", "oldest", "order", "purpose", "touched"),
    )

    def __init__(
        self,
        domain: bytes,
        cause: bytes,
        clusters: Iterable[int],
        expired: Callable[[int], bool],
        purpose: Purpose = Purpose.DELIVERY,
        chosen: ChosenRecords = EVERY_RECORD,
        order: str = "",
    ) -> None:
        """`expired` returns whether a message with a birth, in microseconds, has expired."""
        self.domain = domain
        self.cause = cause
        self.purpose = purpose
        self.chosen = chosen
        self.order = order
        self.number = 0
        self.expired = expired
        self.touched = False
        self.next_birth = 0
        self.held: frozenset[str] = frozenset()
        self.delivered = self.failed = self.deferred = 0
        self.oldest: int | None = None
        self._clusters = deque(clusters)
        self._records: deque[ClusterRecord] = deque()
        self._group: list[ClusterRecord] = []
        self._seed = 0
        # The offset of the record with which an unloaded cluster goes on, 0 for none.
        self._from = 0

    def next_cluster(self) -> int | None:
        """Go on to the next cluster; return its number, None if there is none."""
        if not self._clusters:
            return None
        number = self._clusters.popleft()
        if number != self.number:
            self._from = 0
        self.number = number
        return number

    def load(self, records: Sequence[ClusterRecord], held: frozenset[str] = frozenset(), seed: int = 0) -> None:
        """Take the records of the cluster that are not done. `held`: the long ids of messages on hold; WHOLE for all.

        `seed`: that of the cluster.
        """
        self._seed = seed
        self.touched = (self.unloaded and self.touched) or not records
        self.held = held
        wanted = [record for record in records if record.offset >= self._from and self._takes(record)]
        self._from = 0
        if self.purpose is Purpose.EXPIRY and not wanted:
            self._clusters.clear()
        if self.purpose in (Purpose.DELIVERY, Purpose.EXPIRY, Purpose.REQUEUE) and held:
            whole = WHOLE in held
            wanted = [record for record in wanted if not whole and record.stored.long_id not in held]
        if len(wanted) < len(records):
            taken = {record.offset for record in wanted}
            self._note([record for record in records if record.offset not in taken])
        self._records = deque(wanted)

    def next_group(self) -> list[ClusterRecord]:
        """Return the next group, empty at the end of the cluster."""
        group: list[ClusterRecord] = []
        while self._records and len(group) < GROUP_MAX:
            first = group[0].stored if group else self._records[0].stored
            following = self._records[0].stored
            if (following.message, following.birth, following.sender) != (first.message, first.birth, first.sender):
                break
            group.append(self._records.popleft())
        self._group = group
        return group

    def _takes(self, record: ClusterRecord) -> bool:
        if self.purpose is Purpose.EXPIRY:
            return self.has_expired(record)
        return self.chosen.takes(record, self.number, self._seed)

    def has_expired(self, record: ClusterRecord) -> bool:
        """Return whether a message has expired."""
        return self.expired(record.stored.birth)

    def put_back(self) -> None:
        """Have `next_group` return the last group once more."""
        self._records.extendleft(reversed(self._group))
        self.next_birth = self._group[0].stored.birth

    def unload(self) -> None:
        """Forget the records of the cluster, which has some left: it is the next one once more, and goes on there."""
        self._note(self._records)
        self._from = self._records[0].offset
        self._records.clear()
        self._clusters.appendleft(self.number)

    @property
    def unloaded(self) -> bool:
        """Whether `unload` was called, and the cluster was not read since."""
        return self._from > 0

    def stop(self) -> None:
        """Leave the rest of the domain: it cannot be reached."""
        self._note(self._records)
        self._records.clear()
        self._clusters.clear()

    def keep(self, records: Sequence[ClusterRecord]) -> None:
        """Count records that stay."""
        self.deferred += len(records)
        self._note(records)

    def _note(self, records: Iterable[ClusterRecord]) -> None:
        for record in records:
            birth = record.stored.birth
            self.oldest = birth if self.oldest is None else min(birth, self.oldest)
