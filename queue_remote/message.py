"""The message that a delivery sends: a file opened once and read in chunks, never held whole."""

import os
import stat

# Large enough that a usual message is one read, small enough for thousands of deliveries at once.
CHUNK = 65536
# Without waiting for a FIFO's writer, and without following a link out of the queue.
_OPEN = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC


class Message:
    """An open message. `size` is in bytes as stored, 0 where it is not known (a pipe); `ended` once all is read."""

    __slots__ = ("_descriptor", "_left", "ended", "size")

    def __init__(self, descriptor: int) -> None:
        """Take over an open descriptor. Raises OSError."""
        self._descriptor = descriptor
        found = os.fstat(descriptor)
        self.size = found.st_size if stat.S_ISREG(found.st_mode) else 0
        self.ended = False
        self._left = self.size

    def read(self) -> bytes:
        """Return the next chunk, which may be empty at the end. Raises OSError."""
        chunk = os.read(self._descriptor, CHUNK)
        self._left -= len(chunk)
        # A stored message does not grow, so one whose size is known needs no last read that finds nothing.
        self.ended = not chunk or self._left == 0
        return chunk

    def close(self) -> None:
        os.close(self._descriptor)


def open_message(path: str) -> Message:
    """Open a message for one delivery. Raises OSError, also where something else than a file is in its place."""
    descriptor = os.open(path, _OPEN)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError("not a regular file")
        return Message(descriptor)
    except OSError:
        os.close(descriptor)
        raise
