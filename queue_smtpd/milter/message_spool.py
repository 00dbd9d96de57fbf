"""Text of a message while filters look at it: in memory while it is small, then in a file without a name.

The file is in the directory for temporary files (TMPDIR, else /tmp), and gone when the process ends. Once the disk
refuses a write, or has little room left, the spool has `failed`, `why` says how, and what is added is thrown away.
"""

import errno
import os
import tempfile
from collections.abc import Iterator

from queue_base.durable import write_all
from queue_base.errors import reason
from queue_base.queue.inflow import FREE_MIN

# Bytes of one message in memory, and of all of this process.
KEPT = 256 << 10
ALL_KEPT = 32 << 20
# The largest piece, which has at most twice as many bytes with CRLF line ends.
PIECE = 32000


def write_text(file: int, data: bytes) -> None:
    """Write text of a message to a file, unless too little room would be left for others. Raises OSError."""
    disk = os.fstatvfs(file)
    # As on the disk of the queue: a message without a limit on its size must not fill it.
    if disk.f_bavail * disk.f_frsize < FREE_MIN + len(data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    write_all(file, data)


class SpoolMemory:
    """The bytes that all spools of a process have in memory."""

    __slots__ = ("used",)

    def __init__(self) -> None:
        self.used = 0


class MessageSpool:
    """The text of one message, or one body, of at most `most` bytes; 0: no limit. `size` is its bytes so far."""

    __slots__ = ("_file", "_memory", "_most", "_parts", "failed", "size", "why")

    def __init__(self, memory: SpoolMemory, most: int = 0) -> None:
        self.failed = False
        self.why = ""
        self.size = 0
        self._memory = memory
        self._most = most
        self._parts: list[bytes] = []
        self._file = -1

    def add(self, data: bytes) -> None:
        """Add text."""
        if self.failed or not data:
            return
        self.size += len(data)
        if self._most and self.size > self._most:
            self._fail("it is too large")
        elif self._file < 0 and self.size <= KEPT and self._memory.used + len(data) <= ALL_KEPT:
            self._parts.append(data)
            self._memory.used += len(data)
        else:
            try:
                self._write(data)
            except OSError as error:
                self._fail(reason(error))

    def _write(self, data: bytes) -> None:
        if self._file < 0:
            with tempfile.TemporaryFile(buffering=0) as file:
                self._file = os.dup(file.fileno())
            parts, kept = self._parts, sum(map(len, self._parts))
            self._parts = []
            self._memory.used -= kept
            write_text(self._file, b"".join(parts))
        write_text(self._file, data)

    def _fail(self, why: str) -> None:
        self.close()
        self.failed = True
        self.why = why

    def pieces(self, begin: int = 0) -> Iterator[bytes]:
        """Yield the text from a place on, in pieces of at most PIECE bytes. Raises OSError."""
        if self._file < 0:
            text = b"".join(self._parts)
            for at in range(begin, len(text), PIECE):
                yield text[at : at + PIECE]
            return
        at = begin
        while data := os.pread(self._file, PIECE, at):
            at += len(data)
            yield data

    def head(self, most: int) -> bytes:
        """Return the first bytes. Raises OSError."""
        return b"".join(self._parts)[:most] if self._file < 0 else os.pread(self._file, most, 0)

    def close(self) -> None:
        """Forget the text."""
        self._memory.used -= sum(map(len, self._parts))
        self._parts = []
        handle, self._file = self._file, -1
        if handle >= 0:
            os.close(handle)
