"""The message that a delivery sends: a file opened once and read in chunks, never held whole."""

import os
import shutil
import stat
import tempfile
from collections.abc import Callable

# Large enough that a usual message is one read, small enough for thousands of deliveries at once.
CHUNK = 65536
# Without waiting for a FIFO's writer, and without following a link out of the queue.
_OPEN = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC


class Message:
    """An open message: `size` is in bytes as stored; `ended` once all is read. Several may have one descriptor."""

    __slots__ = ("_ahead", "_descriptor", "_first", "_let_go", "_place", "ended", "size")

    def __init__(self, descriptor: int, let_go: Callable[[int], None] = os.close) -> None:
        """Take over the descriptor of a file; `let_go` is what to do with it at the end. Raises OSError."""
        self._descriptor = descriptor
        self._let_go = let_go
        self.size = os.fstat(descriptor).st_size
        self.ended = False
        self._place = 0
        self._ahead = b""
        self._first: bytes | None = None

    def first(self) -> bytes:
        """Return the first chunk, before anything was read; `read` will return it again. Raises OSError."""
        if self._first is None:
            self._first = os.pread(self._descriptor, CHUNK, 0)
        return self._first

    def read(self) -> bytes:
        """Return the next chunk, which may be empty at the end. Raises OSError."""
        if self._first is None:
            chunk = os.pread(self._descriptor, CHUNK, self._place)
        else:
            chunk, self._first = self._first, None
        self._place += len(chunk)
        # A stored message does not grow, so one whose size is known needs no last read that finds nothing.
        self.ended = not chunk or self._place == self.size
        if self._ahead:
            chunk = self._ahead + chunk
            self._ahead = b""
        return chunk

    def put_ahead(self, fields: bytes) -> None:
        """Have header fields, with LF line ends, read before all else."""
        self._ahead = fields

    def look(self, count: int, offset: int) -> bytes:
        """Return at most `count` bytes from a place in the file, whatever was read. Raises OSError."""
        return os.pread(self._descriptor, count, offset)

    def identity(self) -> tuple[int, ...]:
        """Return what no two different stored messages have in common. Raises OSError."""
        found = os.fstat(self._descriptor)
        return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size

    def fileno(self) -> int:
        """Return the descriptor, for a program that is to read it from its beginning."""
        return self._descriptor

    def close(self) -> None:
        self._let_go(self._descriptor)


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
