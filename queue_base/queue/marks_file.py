"""queue/marks: the DONE marks of messages that are delivered before they are classified (queue_wire.files.marks).

queue-send writes the records, in slots that it takes and frees (`MarksFile`). queue-clean clears the record of a
message after todo/B/I is durably gone and before mess/B/I goes. queue-todo reads the records that a killed run has left
(`LeftMarks`). A record is cleared before its number may be used again. So a record that is still valid when it is read
belongs to the message that has the number now.

The file is written with pwrite(2) and not mapped. A record that is written so is never torn by SIGKILL; and a disk that
is full or fails gives an error, where a mapped page gives SIGBUS. Nothing is synced: records count only until the
machine stops. Every function raises OSError, UnsafePath for a file that is not a regular one of the queue's owner.
"""

import errno
import os
import stat
from collections.abc import Iterable

from queue_base.queue.layout import FILE_MODE, Layout, is_there
from queue_base.safe_open import UnsafePath, open_below
from queue_wire.files.marks import (
    EMPTY,
    FILE_SIZE,
    HEADER,
    SLOT_SIZE,
    SLOTS,
    DoneMarks,
    EnvelopeIdentity,
    make_seed,
    offset_of,
    pack_marks,
    unpack_file,
    unpack_marks,
)

NAME = "marks"
BOOT_ID = "/proc/sys/kernel/random/boot_id"


class MarksFile:
    """The file as queue-send uses it. A slot is taken by `take`, or by `adopt` for a message of an earlier run.

    The slots of records that an earlier run has left stay taken until `clear`, `release` or `clear_absent`.
    """

    def __init__(self, layout: Layout) -> None:
        """Open the file of a queue, or make it; what is no valid record is overwritten."""
        self._layout = layout
        self._seed = read_seed()
        self._handle = _open(layout.queue, os.O_RDWR, create=True)
        try:
            found = self._prepare()
            # By number, because a record of another envelope of the same number does not count any more.
            self._left = self._merge(found)
        except BaseException:
            os.close(self._handle)
            raise
        taken = {slot for slots in self._left.values() for slot in slots.values()}
        # Slots from this one on were not used in this run. Low ones come first, so that few pages are written.
        self._fresh = max(taken, default=-1) + 1
        self._free = [slot for slot in range(self._fresh - 1, -1, -1) if slot not in taken]

    def _prepare(self) -> dict[int, DoneMarks]:
        """Make the file whole, and allocate its space; return the valid records by slot."""
        data = os.pread(self._handle, FILE_SIZE, 0)
        os.ftruncate(self._handle, FILE_SIZE)
        try:
            os.posix_fallocate(self._handle, 0, FILE_SIZE)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                raise
        if data[:SLOT_SIZE] != HEADER:
            # The header comes last, so that nothing of what was there before becomes a record.
            for at in range(SLOT_SIZE, FILE_SIZE, SLOT_SIZE * 1024):
                _write(self._handle, bytes(min(SLOT_SIZE * 1024, FILE_SIZE - at)), at)
            _write(self._handle, HEADER, 0)
        return unpack_file(data, self._seed)

    def _merge(self, found: dict[int, DoneMarks]) -> dict[int, dict[EnvelopeIdentity, int]]:
        """Return the slots of each number's envelopes. Of two records of one the first gets the marks of both."""
        left: dict[int, dict[EnvelopeIdentity, int]] = {}
        for slot, marks in found.items():
            first = left.setdefault(marks.envelope.message, {}).setdefault(marks.envelope, slot)
            if first != slot:
                found[first] = found[first].join(marks)
                self.write(first, found[first])
                _write(self._handle, EMPTY, offset_of(slot))
        return left

    @property
    def has_left(self) -> bool:
        """Whether slots of an earlier run may still be taken."""
        return bool(self._left)

    @property
    def left(self) -> list[EnvelopeIdentity]:
        """The envelopes of an earlier run whose slots are still taken and were not adopted."""
        return [envelope for slots in self._left.values() for envelope in slots]

    def take(self) -> int | None:
        """Return a free slot, which is taken now; None if all are taken."""
        if self._free:
            return self._free.pop()
        if self._fresh == SLOTS:
            return None
        self._fresh += 1
        return self._fresh - 1

    def adopt(self, envelope: EnvelopeIdentity) -> tuple[int, int] | None:
        """Return the slot and the done bits that an earlier run has left for an envelope, None if there are none.

        What was left for another envelope of the number is cleared: an original qmail, say, has delivered that message.
        """
        slot = self._left.get(envelope.message, {}).get(envelope)
        if slot is None:
            self.drop(envelope.message)
            return None
        done = _read(self._handle, slot, envelope, self._seed).done
        del self._left[envelope.message][envelope]
        self.drop(envelope.message)
        if not done:
            self._free.append(slot)  # Its message has ended; queue-clean has cleared the record.
            return None
        return slot, done

    def write(self, slot: int, marks: DoneMarks) -> None:
        """Write the record of a taken slot."""
        _write(self._handle, pack_marks(marks, self._seed), offset_of(slot))

    def write_all(self, records: dict[int, DoneMarks]) -> None:
        """Write the records of taken slots. Those beside each other, as most are, are written by one write."""
        for run in _runs(records):
            data = b"".join([pack_marks(records[slot], self._seed) for slot in run])
            _write(self._handle, data, offset_of(run[0]))

    def clear(self, slot: int) -> None:
        """Clear the record of a taken slot, and free the slot. On an error it stays taken."""
        _write(self._handle, EMPTY, offset_of(slot))
        self._free.append(slot)

    def release(self, slot: int) -> None:
        """Free a taken slot that has no record: none was written, or queue-clean has cleared it."""
        self._free.append(slot)

    def drop(self, message: int) -> None:
        """Clear what an earlier run has left for a number: its message was classified."""
        slots = self._left.get(message, {})
        for envelope, slot in list(slots.items()):
            self.clear(slot)
            del slots[envelope]
        self._left.pop(message, None)

    def clear_absent(self) -> list[OSError]:
        """Clear what an earlier run has left for messages that are not in todo/; return what prevented it.

        It is called before the first removal of a message.
        """
        troubles = []
        for message in list(self._left):
            try:
                if not is_there(self._layout.todo(message)):
                    self.drop(message)
            except OSError as error:
                troubles.append(error)
        return troubles

    def close(self) -> None:
        os.close(self._handle)


class LeftMarks:
    """The records that an earlier run has left, as queue-todo reads them; none if there is no file."""

    def __init__(self, layout: Layout) -> None:
        """Read the records, before the first message is announced."""
        self._slots: dict[EnvelopeIdentity, list[int]] = {}
        self._seed = read_seed()
        self._queue = layout.queue
        try:
            handle = _open(layout.queue, os.O_RDONLY)
        except FileNotFoundError:
            return
        try:
            for slot, marks in unpack_file(os.pread(handle, FILE_SIZE, 0), self._seed).items():
                self._slots.setdefault(marks.envelope, []).append(slot)
        finally:
            os.close(handle)

    def __len__(self) -> int:
        return len(self._slots)

    def done(self, envelope: EnvelopeIdentity) -> int:
        """Return the done bits of an envelope that is in todo/ now."""
        return self.marks(envelope).done

    def marks(self, envelope: EnvelopeIdentity) -> DoneMarks:
        """Return the marks of an envelope that is in todo/ now."""
        found = DoneMarks(envelope, 0)
        slots = self._slots.get(envelope)
        if not slots:
            return found
        # Read again, because it may be cleared by now. The file is not kept open: a reader may live long.
        try:
            handle = _open(self._queue, os.O_RDONLY)
        except FileNotFoundError:
            return found
        try:
            for slot in slots:
                found = found.join(_read(handle, slot, envelope, self._seed))
        finally:
            os.close(handle)
        return found


def read_seed() -> int:
    """Return the seed of the records of this boot."""
    with open(BOOT_ID, "rb") as file:
        return make_seed(file.read())


def open_marks(queue: str) -> int | None:
    """Return a descriptor for `clear_slots` and `clear_messages`, None if there is no file."""
    try:
        return _open(queue, os.O_RDWR)
    except FileNotFoundError:
        return None


def clear_slots(handle: int, slots: Iterable[int]) -> None:
    """Clear the records in slots. Those beside each other, as most are, are cleared by one write."""
    for run in _runs(slots):
        _write(handle, EMPTY * len(run), offset_of(run[0]))


def clear_messages(handle: int, messages: Iterable[int]) -> None:
    """Clear all records of messages, by number."""
    numbers = set(messages)
    found = unpack_file(os.pread(handle, FILE_SIZE, 0), read_seed())
    clear_slots(handle, [slot for slot, marks in found.items() if marks.envelope.message in numbers])


def _runs(slots: Iterable[int]) -> list[list[int]]:
    """Return the slots in groups of those that lie beside each other."""
    runs: list[list[int]] = []
    for slot in sorted(slots):
        if runs and slot == runs[-1][-1] + 1:
            runs[-1].append(slot)
        else:
            runs.append([slot])
    return runs


def _read(handle: int, slot: int, envelope: EnvelopeIdentity, seed: int) -> DoneMarks:
    """Return the marks in a slot; none are done if it has no valid record of the envelope."""
    marks = unpack_marks(os.pread(handle, SLOT_SIZE, offset_of(slot)), seed)
    return marks if marks is not None and marks.envelope == envelope else DoneMarks(envelope, 0)


def _write(handle: int, data: bytes, at: int) -> None:
    if os.pwrite(handle, data, at) != len(data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _open(queue: str, flags: int, create: bool = False) -> int:
    """Open the file without following a link. Raises FileNotFoundError unless it may be made."""
    try:
        handle = open_below(queue, NAME, flags)
    except FileNotFoundError:
        if not create:
            raise
        handle = open_below(queue, NAME, flags | os.O_CREAT | os.O_EXCL, FILE_MODE)
    try:
        found, owner = os.fstat(handle), os.stat(queue).st_uid
        if not stat.S_ISREG(found.st_mode):
            raise UnsafePath("not a regular file")
        if found.st_uid != owner:
            raise UnsafePath(f"it belongs to uid {found.st_uid}, and the queue to uid {owner}")
        # An account that may write the directory may have made a hard link to any file of the owner.
        if found.st_nlink != 1:
            raise UnsafePath(f"it has {found.st_nlink} names")
    except BaseException:
        os.close(handle)
        raise
    return handle
