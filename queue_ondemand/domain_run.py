"""One run over the stored mail of a domain: which records are tried next, and what became of them. Pure.

A run takes the clusters that there are when it begins, one after the other, and in each one the records that are not
done, in order. Records of one message that follow each other are one group, and a group is delivered by one job. The
next group is taken when the last one is over, so that the mail of a domain is delivered in the order in which it came.

A run of another purpose tries nothing. One for expiry takes the groups of messages that have expired, and ends at the
first cluster that has none; those for the administrator's orders take one message, or all.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from enum import Enum

from queue_wire.files.cluster import ClusterRecord

GROUP_MOST = 50  # Recipients of a job.


class Purpose(Enum):
    """What a run does with the records that it takes."""

    DELIVERY = "delivery"
    EXPIRY = "expiry"
    DELETION = "deletion"
    RETURN = "return"


class DomainRun:
    """`cause` is who asked for it, for the log; `number` is the cluster that it is at, 0 before the first one.

    `chosen` is the long id of the one message that is taken, empty for all.

    `touched`: records of the cluster are done, or all were before, so that it is to be settled.
    `oldest`: the birth of the oldest message that is left of those looked at, in microseconds; None if there is none.
    """

    __slots__ = (
        *("_clusters", "_group", "_records", "cause", "chosen", "deferred", "delivered", "domain", "expired_before"),
        *("failed", "number", "oldest", "purpose", "touched"),
    )

    def __init__(
        self,
        domain: bytes,
        cause: bytes,
        clusters: Iterable[int],
        expired_before: int,
        purpose: Purpose = Purpose.DELIVERY,
        chosen: str = "",
    ) -> None:
        """`expired_before`: messages with an earlier birth, in microseconds, have expired."""
        self.domain = domain
        self.cause = cause
        self.purpose = purpose
        self.chosen = chosen
        self.number = 0
        self.expired_before = expired_before
        self.touched = False
        self.delivered = self.failed = self.deferred = 0
        self.oldest: int | None = None
        self._clusters = deque(clusters)
        self._records: deque[ClusterRecord] = deque()
        self._group: list[ClusterRecord] = []

    def next_cluster(self) -> int | None:
        """Go on to the next cluster; return its number, None if there is none."""
        if not self._clusters:
            return None
        self.number = self._clusters.popleft()
        return self.number

    def load(self, records: Sequence[ClusterRecord]) -> None:
        """Take the records of the cluster that are not done."""
        self.touched = not records
        taken = [record for record in records if self._takes(record)]
        if len(taken) < len(records):
            self._note([record for record in records if not self._takes(record)])
        if self.purpose is Purpose.EXPIRY and not taken:
            self._clusters.clear()
        self._records = deque(taken)

    def next_group(self) -> list[ClusterRecord]:
        """Return the next group, empty at the end of the cluster."""
        group: list[ClusterRecord] = []
        while self._records and len(group) < GROUP_MOST:
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
        return not self.chosen or record.stored.long_id == self.chosen

    def has_expired(self, record: ClusterRecord) -> bool:
        """Return whether a message has expired."""
        return record.stored.birth < self.expired_before

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
