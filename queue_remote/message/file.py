"""The message file that a delivery sends: opened once, and read in chunks, whatever its size."""

import os
import re
import shutil
import stat
import tempfile
from collections.abc import Callable

# A usual message is one read, and thousands of deliveries at once fit in memory.
CHUNK = 65536
# Longer headers are not read whole. Postfix cuts headers at 100 kB.
HEADER_MAX = 256 * 1024
# Do not wait for the writer of a FIFO, and do not follow a symbolic link out of the queue.
OPEN_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
_HEADER_END = re.compile(rb"(?:\A|\n)\r?\n")


class Message:
    """An open message: `size` is in bytes as stored; `ended` is set once all is read. Some share a descriptor."""

    __slots__ = ("_ahead", "_descriptor", "_first", "_place", "_release", "ended", "size")

    def __init__(self, descriptor: int, release: Callable[[int], None] = os.close) -> None:
        """Take over a file descriptor; `release` is called with it at the end. Raises OSError."""
        self._descriptor = descriptor
        self._release = release
        self.size = os.fstat(descriptor).st_size
        self.ended = False
        self._place = 0
        self._ahead = b""
        self._first: bytes | None = None

    def first(self) -> bytes:
        """Return the first chunk, before anything was read; `read` returns it again. Raises OSError."""
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
        # A stored message does not grow, so no last read is needed to find its end.
        self.ended = not chunk or self._place == self.size
        if self._ahead:
            chunk = self._ahead + chunk
            self._ahead = b""
        return chunk

    def put_ahead(self, fields: bytes) -> None:
        """Make `read` return header fields, with LF line ends, before the file's contents and what was put there."""
        self._ahead = fields + self._ahead

    def read_at(self, count: int, offset: int) -> bytes:
        """Return at most `count` bytes from an offset of the file, without regard to `read`. Raises OSError."""
        return os.pread(self._descriptor, count, offset)

    def identity(self) -> tuple[int, ...]:
        """Return a key that no two different stored messages share. Raises OSError."""
        found = os.fstat(self._descriptor)
        return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size

    def fileno(self) -> int:
        """Return the descriptor, whose offset is 0: a program can read it from the beginning."""
        return self._descriptor

    def close(self) -> None:
        self._release(self._descriptor)


def open_input(descriptor: int) -> Message:
    """Open a message on the caller's descriptor; if that is not a file, copy its data into one. Raises OSError."""
    if stat.S_ISREG(os.fstat(descriptor).st_mode) and os.lseek(descriptor, 0, os.SEEK_CUR) == 0:
        return _take(os.dup(descriptor))
    with tempfile.TemporaryFile() as copy, open(descriptor, "rb", closefd=False) as source:
        shutil.copyfileobj(source, copy, CHUNK)
        copy.seek(0)
        return _take(os.dup(copy.fileno()))


def open_message(path: str) -> Message:
    """Open a message for one delivery. Raises OSError, also if the path is not a regular file."""
    return _take(os.open(path, OPEN_FLAGS))


def _take(descriptor: int) -> Message:
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError("not a regular file")
        return Message(descriptor)
    except OSError:
        os.close(descriptor)
        raise


def find_body(data: bytes, start: int = 0) -> int | None:
    """Return the offset of the body, after the first empty line, None if there is none; `start` bytes were searched."""
    # The bytes searched before may end within an empty line.
    match = _HEADER_END.search(data, max(0, start - 3)) if start else _HEADER_END.search(data)
    return None if match is None else match.end()


def read_header(message: Message) -> tuple[bytes, int | None]:
    """Return the header and the offset of the body, None if the header is over HEADER_MAX and cut. Raises OSError."""
    data = b""
    body: int | None = None
    while body is None and len(data) <= HEADER_MAX:
        looked = len(data)
        chunk = message.read_at(CHUNK, looked)
        data += chunk
        body = find_body(data, looked)
        if body is None and not chunk:
            body = looked
    if body is not None and body <= HEADER_MAX:
        return data[:body], body
    return data[:HEADER_MAX], None
