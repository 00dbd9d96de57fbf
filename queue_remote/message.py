"""The message that a delivery sends: a file opened once and read in chunks, never held whole."""

import os
import stat

# Large enough that a usual message is one read, small enough for thousands of deliveries at once.
CHUNK = 65536


class Message:
    """An open message. `size` is in bytes as stored, 0 where it is not known (a pipe)."""

    __slots__ = ("_descriptor", "size")

    def __init__(self, descriptor: int) -> None:
        """Take over an open descriptor. Raises OSError."""
        self._descriptor = descriptor
        found = os.fstat(descriptor)
        self.size = found.st_size if stat.S_ISREG(found.st_mode) else 0

    def read(self) -> bytes:
        """Return the next chunk, empty at the end. Raises OSError."""
        return os.read(self._descriptor, CHUNK)

    def close(self) -> None:
        os.close(self._descriptor)


def open_message(path: str) -> Message:
    """Open a message for one delivery. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return Message(descriptor)
    except OSError:
        os.close(descriptor)
        raise
