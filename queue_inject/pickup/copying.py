"""One file of maildrop/ on its way into the queue, as a whole or piece by piece.

What is read is what the descriptor had when it was opened: a file that grows is not read on, one that has changed in
any way is no mail. Its owner's uid counts only where the file was made in maildrop/ itself, and by its owner: it has
one name, the group that files made in there get from the directory, and the sticky bit. A file of somebody else's that
was moved in from a directory of the attacker's, or linked, has not that group, unless the directory was made in
maildrop/ and hands it on; but then nobody has given the file the bit, which no program sets on files.
"""

import os
import stat

from queue_base.errors import reason
from queue_base.writer import QueueDraft, QueueWriter
from queue_inject.pickup.untrusted import OURS, Directory, Unfit
from queue_wire.format_error import FormatError
from queue_wire.maildrop import ENVELOPE_MAX, HEADER_LENGTH, unpack_envelope, unpack_header

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

# A larger file that takes up less than this share of its size on the disk is made of holes: it costs its owner
# nothing, and us all that we copy. No file system compresses mail that much.
HOLES_FROM = 16 * 1024 * 1024
SMALLEST_SHARE = 64
_CHUNK = 1 << 18


class Rules:
    """Who may have left a file: `gid` is the group of those made in maildrop/, None where that tells nothing.

    `root` says whether root may: it writes to the queue itself, so what it owns in here was smuggled in, unless the
    queue is root's own.
    """

    __slots__ = ("gid", "root")

    def __init__(self, gid: int | None, root: bool) -> None:
        self.gid = gid
        self.root = root

    def check(self, status: os.stat_result) -> None:
        """Raises Unfit."""
        if status.st_nlink != 1:
            raise Unfit("it has a second name" if status.st_nlink else "it was removed while it was opened")
        if self.gid not in (None, status.st_gid):
            raise Unfit(f"it was not made there: its group is {status.st_gid}, and that of files made there {self.gid}")
        if status.st_uid == 0 and not self.root:
            raise Unfit("root leaves no mail there")
        if not status.st_mode & stat.S_ISVTX:
            raise Unfit("it lacks the sticky bit, which queue-inject gives to what it leaves there")


class Copy:
    """A file's copy; `draft` is whole, and may be committed, when `run` has said so. Then, or on an error, close it."""

    __slots__ = ("_end", "_handle", "_place", "_status", "draft", "uid")

    def __init__(self, handle: int, status: os.stat_result, writer: QueueWriter) -> None:
        """Take over the descriptor. Raises Unfit, FormatError, QueueTrouble, OSError; the descriptor is closed then."""
        self._handle = handle
        self._status = status
        self._place = HEADER_LENGTH
        self.uid = status.st_uid
        self.draft: QueueDraft | None = None
        try:
            length = self._check_size()
            # Here the size is known before: no copy is begun in vain.
            writer.intake.check(coming=length)
            self.draft = writer.begin(status.st_uid)
        except BaseException:
            self.close()
            raise
        self._end = HEADER_LENGTH + length

    @property
    def inode(self) -> int:
        return self._status.st_ino

    def run(self, most: int) -> bool:
        """Copy at most so many bytes, or a little more; return whether it is whole. Raises Unfit, QueueTrouble.

        Also FormatError, and OSError where it may pass. After an error, or when it is not wanted any more, `give_up`.
        """
        assert self.draft is not None
        stop = min(self._end, self._place + most)
        for piece in self._pieces(self._place, stop):
            self.draft.write(piece)
            self._place += len(piece)
        if self._place < self._end:
            return False
        sender, recipients = unpack_envelope(b"".join(self._pieces(self._end, self._status.st_size)))
        now = os.fstat(self._handle)
        if _essence(now) != _essence(self._status):
            raise Unfit("it changed while it was read")
        self.draft.finish(sender, recipients)
        return True

    def give_up(self) -> None:
        """Remove what was made of it."""
        self.close()
        if self.draft is not None:
            self.draft.discard()

    def close(self) -> None:
        """Close the file; nothing happens where it is closed already."""
        handle, self._handle = self._handle, -1
        if handle >= 0:
            os.close(handle)

    def _check_size(self) -> int:
        """Return the message's length in bytes. Raises Unfit, FormatError."""
        size, held = self._status.st_size, self._status.st_blocks * 512
        if size > HOLES_FROM and held * SMALLEST_SHARE < size:
            raise Unfit(f"it claims to be of {size} bytes but takes up {held} on the disk")
        length = unpack_header(self._read(HEADER_LENGTH, 0))
        end = HEADER_LENGTH + length
        if not end < size <= end + ENVELOPE_MAX:
            raise Unfit(f"it has {size} bytes, and its message alone should have {length}")
        return length

    def _pieces(self, start: int, end: int) -> "Iterator[bytes]":
        """Yield the file's bytes from start to end."""
        while start < end:
            data = self._read(min(_CHUNK, end - start), start)
            if not data:
                raise Unfit("it has become shorter while it was read")
            start += len(data)
            yield data

    def _read(self, most: int, start: int) -> bytes:
        try:
            return os.pread(self._handle, most, start)
        except OSError as error:
            if error.errno in OURS:
                raise
            raise Unfit(f"unable to read it: {reason(error)}") from error


def open_copy(directory: Directory, name: str, rules: Rules, writer: QueueWriter) -> Copy:
    """Begin to copy a file. Raises Unfit, QueueTrouble, FileNotFoundError, and OSError where it may pass."""
    try:
        handle, status = directory.open(name, rules.check)
    except FileNotFoundError:
        raise
    except OSError as error:
        if error.errno in OURS:
            raise
        # Nothing that its owner did to it may have us try it again and again.
        raise Unfit(reason(error)) from error
    try:
        return Copy(handle, status, writer)
    except FormatError as error:
        raise Unfit(str(error)) from error


def _essence(status: os.stat_result) -> tuple[int, ...]:
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_nlink, status.st_uid
