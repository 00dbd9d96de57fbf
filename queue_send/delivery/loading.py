"""Loading of messages: reads the files of a message that is due, and makes the scheduler's entries of its recipients.

At most RECIPIENTS_MAX recipients of one message are in memory, a slice. When they have their verdicts the next slice
is read, from the offset where this one ended: the length of local/B/I and remote/B/I never changes, nor does the offset
of a record, since only its T becomes D. So all slices together read the file once. A message with more than AT_ONCE
recipients is loaded in small steps between other work, so that it does not delay others.
"""

import os
from collections.abc import Collection, Iterator
from enum import Enum
from typing import NamedTuple

from queue_base.accounts import Owner, trusted_users
from queue_base.daemon.clock import Clock
from queue_send.config import ConfigFiles
from queue_send.delivery.partial_flush import PartialFlushes
from queue_send.messages.message_files import Piece, Store
from queue_send.messages.transitions import NOT_TRIED
from queue_send.scheduler.model import Attempt, Entry, Recipient
from queue_send.scheduler.nexthop import Grouping, NexthopChoices, group_recipients, submitter_of
from queue_wire.pipes.notice import LOCAL, REMOTE, Arrived, Notice

RECIPIENTS_MAX = 1000  # Recipients of one message in memory.
# Recipients that are grouped in one step. The route of a domain chosen by an attacker takes up to 140 microseconds.
AT_ONCE = 20
ENTRIES_AT_ONCE = 25  # Entries that are added in one step. Each may be a new destination.


class NotRead(Enum):
    """Why a message is not to be tried: it has ended or has a mark, or it has another next attempt by now."""

    ENDED = "ended"
    TRIED = "tried"


class Slice(NamedTuple):
    """Where the next slice begins. `left`: some recipients of earlier slices were deferred.

    `birth` (by the disk) and `size` of the recipients' file identify the message: a later one of the same number
    differs.
    """

    at: int
    birth: int
    size: int
    left: bool


class Step(NamedTuple):
    """Entries to be added. `whole`: the message has no other entry."""

    entries: list[Entry]
    whole: bool


_NO_ENTRIES = Step([], False)


class Loader:
    """Reads the messages of one channel; `kind` is local or remote. `flushes` are those of some recipients."""

    def __init__(self, kind: str, store: Store, clock: Clock, config: ConfigFiles) -> None:
        self._kind = kind
        self._store = store
        self._clock = clock
        self._config = config
        self.flushes = PartialFlushes()
        self._slices: dict[int, Slice] = {}
        self._trusted = trusted_users(Owner(os.getuid(), os.getgid()))  # Who hands in mail of others.
        self._chosen_by = config.current
        self._kept_choices = self._new_choices()

    @property
    def _choices(self) -> NexthopChoices:
        if self._config.current is not self._chosen_by:
            self._chosen_by = self._config.current
            self._kept_choices = self._new_choices()
        return self._kept_choices

    def _new_choices(self) -> NexthopChoices:
        config = self._chosen_by
        return NexthopChoices(
            config.routes, config.lines, config.localroutes, config.virtualdomains, frozenset(config.ondemand)
        )

    def read(self, message: int, stamp: int | None) -> tuple[Attempt, Piece] | NotRead:
        """Return an attempt and the first piece of its recipients, or why the message is not to be tried.

        `stamp` is the expected next attempt from `Scheduler.next_load`. Raises FormatError, OSError.
        """
        if self._store.records.state(message) in NOT_TRIED or message in self._store.malformed:
            self.flushes.forget(message)
            return NotRead.ENDED
        try:
            sender, disk_birth, uid, submitter = self._store.load(message)
        except FileNotFoundError:
            self.flushes.forget(message)
            return NotRead.ENDED  # It had two entries in the backlog.
        known, clock = self._slices.get(message) if stamp is None else None, self._clock
        at = known.at if known is not None and known.birth == disk_birth else 0
        piece = self._store.recipients(message, self._kind, at)
        if known is not None and known.size != piece.size:
            piece = self._store.recipients(message, self._kind)  # The slice is of an earlier message of this number.
        left = piece.recipients or piece.next is not None
        if stamp is not None and left and stamp not in clock.all_from_disk(piece.due):
            self.flushes.forget(message)
            return NotRead.TRIED  # Its next attempt has another entry in the backlog.
        if stamp is not None:
            self._slices.pop(message, None)  # Its next attempt has come: all recipients that are left are tried.
        birth = clock.birth_from_disk(disk_birth)
        expires = birth + self._config.current.lifetime(sender)
        attempt = Attempt(message, sender, birth, expires, piece.next, clock.from_disk(piece.due))
        attempt.disk_birth, attempt.size = disk_birth, piece.size
        attempt.submitter = self._submitter(sender, uid, submitter)
        flush = self.flushes.begin(message, piece.due, stamp is not None, attempt.due <= clock.now())
        if flush is not None:
            attempt.chosen, attempt.others_due = flush.trying, flush.due
        return attempt, piece

    def _submitter(self, sender: bytes, uid: int | None, submitter: bytes) -> bytes:
        """Return who has submitted a message. The uid of one of our daemons says nothing."""
        return submitter_of(sender, None if uid in self._trusted else uid, submitter)

    def destination(self, notice: Notice) -> tuple[bytes | None, int, bytes | None]:
        """Return the nexthop of a new message, the end of its lifetime, and its submitter, as its notice tells.

        The nexthop is None if the message has several recipients. A short notice knows no sender.
        """
        if not isinstance(notice, Arrived):
            known = notice.submitter or (notice.uid is not None and notice.uid not in self._trusted)
            return None, 0, self._submitter(b"", notice.uid, notice.submitter) if known else None
        submitter = self._submitter(notice.sender, notice.uid, notice.submitter)
        letter = LOCAL if self._kind == "local" else REMOTE
        addresses = [address for channel, address in notice.recipients if channel == letter]
        if len(addresses) != 1:
            return None, 0, submitter
        nexthop = self._choices.name(self._kind, addresses[0])
        lifetime = self._config.current.lifetime(notice.sender)
        return nexthop, self._clock.birth_from_disk(notice.birth // 1_000_000) + lifetime, submitter

    def group(
        self, attempt: Attempt, recipients: list[Recipient], tried: Collection[int]
    ) -> list[tuple[bytes, list[Recipient]]]:
        """Return (nexthop, recipients) for each group of a few recipients; those in `tried` are left to wait."""
        found = self._chosen(_without(recipients, tried, attempt), attempt)
        return group_recipients(self._kind, attempt.sender, found, self._choices)

    def steps(self, attempt: Attempt, first: Piece | None, tried: Collection[int]) -> Iterator[Step]:
        """Load a slice in steps; yield the entries to be added, in many steps none.

        `first` is the piece from the start of the slice on, if it was read. Raises FormatError or OSError before the
        first entry.
        """
        grouping = Grouping(self._kind, attempt.sender, self._choices)
        at: int | None = self._start_of_slice(attempt)
        count = 0
        while at is not None and count < RECIPIENTS_MAX and not attempt.withdrawn:
            piece = first or self._store.recipients(attempt.message, self._kind, at)
            first, found, at = None, piece.recipients, piece.next
            if len(found) > RECIPIENTS_MAX - count:
                at = found[RECIPIENTS_MAX - count][0]
                found = found[: RECIPIENTS_MAX - count]
            count += len(found)
            found = _without(found, tried, attempt)
            yield _NO_ENTRIES
            for start in range(0, len(found), AT_ONCE):
                grouping.add(self._chosen(found[start : start + AT_ONCE], attempt))
                yield _NO_ENTRIES
        attempt.rest = at
        entries = [Entry(attempt, nexthop, recipients) for nexthop, recipients in grouping.groups()]
        for start in range(0, len(entries), ENTRIES_AT_ONCE):
            yield Step(entries[start : start + ENTRIES_AT_ONCE], len(entries) == 1)

    def _chosen(self, recipients: list[Recipient], attempt: Attempt) -> list[Recipient]:
        """Return the recipients that the attempt is at; the others count as left."""
        if not attempt.chosen:
            return recipients
        kind, shown = self._kind, self._config.current.shown
        found = []
        for recipient in recipients:
            address = recipient[1]
            if any(one.chooses(address, shown(kind, address)) for one in attempt.chosen):
                found.append(recipient)
        attempt.left += len(recipients) - len(found)
        return found

    def _start_of_slice(self, attempt: Attempt) -> int:
        known = self._slices.get(attempt.message)
        if known is None or (known.birth, known.size) != (attempt.disk_birth, attempt.size):
            self._slices.pop(attempt.message, None)  # It is of an earlier message of this number.
            return 0
        return known.at

    def next_slice(self, attempt: Attempt) -> bool:
        """Prepare the next slice of a message whose attempt is over; return False if this was the last one."""
        before = self._slices.get(attempt.message)
        if attempt.rest is None:
            if attempt.overflow is None:
                self._slices.pop(attempt.message, None)
            return False
        left = attempt.left > 0 or (before is not None and before.left)
        self._slices[attempt.message] = Slice(attempt.rest, attempt.disk_birth, attempt.size, left)
        return True

    def has_deferred(self, message: int) -> bool:
        """Return whether recipients of earlier slices of a message were deferred."""
        known = self._slices.get(message)
        return known is not None and known.left

    def is_between_slices(self, message: int) -> bool:
        """Return whether a message has recipients that are to be tried after those of its earlier slices."""
        return message in self._slices

    def forget(self, message: int) -> None:
        """Forget where the next slice of a message begins, and which of its recipients are flushed."""
        self._slices.pop(message, None)
        self.flushes.forget(message)


def _without(recipients: list[Recipient], tried: Collection[int], attempt: Attempt) -> list[Recipient]:
    """Return the recipients that were not tried, by their offsets; the others count as left."""
    if not tried:
        return recipients
    found = [recipient for recipient in recipients if recipient[0] not in tried]
    attempt.left += len(recipients) - len(found)
    return found
