"""Copies one file of maildrop/ into the queue, at once or piece by piece.

A file is read up to the size that it had when it was opened; a file that has changed since then is not mail.
"""

import os
from collections.abc import Container, Iterator

from queue_base.errors import reason
from queue_base.queue.writer import Draft, QueueWriter
from queue_inject.pickup.file_checks import NotMail, OriginRules, check_holes, check_length, check_unchanged
from queue_inject.pickup.untrusted_directory import OURS, Directory
from queue_wire.files.maildrop import HEADER_LENGTH, unpack_envelope, unpack_header
from queue_wire.format_error import FormatError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from queue_base.queue.spreading import SpreadWriter

    PickupWriter = QueueWriter | SpreadWriter

_CHUNK = 1 << 18


class FileCopy:
    """The copy of one file. When `run` has returned True, `draft` may be committed and the copy must be closed."""

    __slots__ = ("_end", "_handle", "_place", "_status", "_trusted", "draft", "uid")

    def __init__(
        self, handle: int, status: os.stat_result, writer: "PickupWriter", trusted: Container[int] = ()
    ) -> None:
        """Take over the descriptor. Users who are `trusted` may speak for others.

        Raises NotMail, FormatError, QueueTrouble or OSError, and closes the descriptor.
        """
        self._trusted = trusted
        self._handle = handle
        self._status = status
        self._place = HEADER_LENGTH
        self.uid = status.st_uid
        self.draft: Draft | None = None
        try:
            length = self._message_length()
            # The size is known here, so no copy is begun that the disk has no room for.
            writer.inflow.check(coming=length)
            self.draft = writer.begin(status.st_uid)
        except BaseException:
            self.close()
            raise
        self._end = HEADER_LENGTH + length

    @property
    def inode(self) -> int:
        return self._status.st_ino

    def run(self, most: int) -> bool:
        """Copy about `most` bytes; return whether the copy is complete.

        Raises NotMail, FormatError, QueueTrouble, and OSError for a problem that may pass. Then call `give_up`.
        """
        assert self.draft is not None
        stop = min(self._end, self._place + most)
        for piece in self._pieces(self._place, stop):
            self.draft.write(piece)
            self._place += len(piece)
        if self._place < self._end:
            return False
        envelope = b"".join(self._pieces(self._end, self._status.st_size))
        sender, recipients, self.draft.priority, submitter = unpack_envelope(envelope)
        if self.uid in self._trusted:
            self.draft.submitter = submitter
        self.draft.may_raise = self.uid == 0
        check_unchanged(self._status, os.fstat(self._handle))
        self.draft.finish(sender, recipients)
        return True

    def give_up(self) -> None:
        """Close the file and remove the incomplete message."""
        self.close()
        if self.draft is not None:
            self.draft.discard()

    def close(self) -> None:
        """Close the file, unless it is closed."""
        handle, self._handle = self._handle, -1
        if handle >= 0:
            os.close(handle)

    def _message_length(self) -> int:
        """Return the length of the message in bytes. Raises NotMail, FormatError."""
        check_holes(self._status)
        length = unpack_header(self._read(HEADER_LENGTH, 0))
        check_length(self._status, length)
        return length

    def _pieces(self, start: int, end: int) -> Iterator[bytes]:
        """Yield the bytes of the file from start to end."""
        while start < end:
            data = self._read(min(_CHUNK, end - start), start)
            if not data:
                raise NotMail("it has become shorter while it was read")
            start += len(data)
            yield data

    def _read(self, most: int, start: int) -> bytes:
        try:
            return os.pread(self._handle, most, start)
        except OSError as error:
            if error.errno in OURS:
                raise
            raise NotMail(f"unable to read it: {reason(error)}") from error


def open_copy(directory: Directory, name: str, rules: OriginRules, writer: "PickupWriter") -> FileCopy:
    """Begin to copy a file.

    Raises NotMail, QueueTrouble, FileNotFoundError, and OSError for a problem that may pass.
    """
    try:
        handle, status = directory.open(name, rules.check)
    except FileNotFoundError:
        raise
    except OSError as error:
        if error.errno in OURS:
            raise
        # The owner must not be able to have the file tried again and again.
        raise NotMail(reason(error)) from error
    try:
        return FileCopy(handle, status, writer, rules.trusted)
    except FormatError as error:
        raise NotMail(str(error)) from error
