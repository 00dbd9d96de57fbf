"""The message that a delivery sends: a file opened once and read in chunks, never held whole."""

import os
import shutil
import stat
import tempfile

# Large enough that a usual message is one read, small enough for thousands of deliveries at once.
CHUNK = 65536
# Without waiting for a FIFO's writer, and without following a link out of the queue.
_OPEN = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC


class Message:
    """An open message. `size` is in bytes as stored, 0 where it is not known (a pipe); `ended` once all is read."""

    __slots__ = ("_ahead", "_descriptor", "_first", "_left", "ended", "size")

    def __init__(self, descriptor: int) -> None:
        """Take over an open descriptor. Raises OSError."""
        self._descriptor = descriptor
        found = os.fstat(descriptor)
        self.size = found.st_size if stat.S_ISREG(found.st_mode) else 0
        self.ended = False
        self._left = self.size
        self._ahead = b""
        self._first: bytes | None = None

    def first(self) -> bytes:
        """Return the first chunk, before anything was read; `read` will return it again. Raises OSError."""
        if self._first is None:
            self._first = os.read(self._descriptor, CHUNK)
        return self._first

    def read(self) -> bytes:
        """Return the next chunk, which may be empty at the end. Raises OSError."""
        if self._first is None:
            chunk = os.read(self._descriptor, CHUNK)
        else:
            chunk, self._first = self._first, None
        self._left -= len(chunk)
        # A stored message does not grow, so one whose size is known needs no last read that finds nothing.
        self.ended = not chunk or self._left == 0
        if self._ahead:
            chunk = self._ahead + chunk
            self._ahead = b""
        return chunk

    def put_ahead(self, fields: bytes) -> None:
        """Have header fields, with LF line ends, read before all else."""
        self._ahead = fields

    def look(self, count: int, offset: int) -> bytes:
        """Return at most `count` bytes from a place in the file, whatever was read. Raises OSError, as for a pipe."""
        return os.pread(self._descriptor, count, offset)

    def identity(self) -> tuple[int, ...]:
        """Return what no two different stored messages have in common. Raises OSError."""
        found = os.fstat(self._descriptor)
        return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size

    def fileno(self) -> int:
        """Return the descriptor, for a program that is to read it from its beginning."""
        return self._descriptor

    def close(self) -> None:
        os.close(self._descriptor)


def open_input(descriptor: int) -> Message:
    """Open a message on a descriptor, which stays the caller's; what is no file is copied into one. Raises OSError."""
    if stat.S_ISREG(os.fstat(descriptor).st_mode) and os.lseek(descriptor, 0, os.SEEK_CUR) == 0:
        return _take(os.dup(descriptor))
    with tempfile.TemporaryFile() as copy, open(descriptor, "rb", closefd=False) as source:
        shutil.copyfileobj(source, copy, CHUNK)
        copy.seek(0)
        return _take(os.dup(copy.fileno()))


def open_message(path: str) -> Message:
    """Open a message for one delivery. Raises OSError, also where something else than a file is in its place."""
    return _take(os.open(path, _OPEN))


def _take(descriptor: int) -> Message:
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError("not a regular file")
        return Message(descriptor)
    except OSError:
        os.close(descriptor)
        raise
