"""Non-blocking pipe ends: reads return what is available, writes buffer what the pipe does not take."""

import os
from collections import deque

_CHUNK = 65536
# Bytes that `flush` writes at most: a peer that reads as fast as they are written must not take the whole turn.
_FLUSH_MAX = 1 << 20


class PeerLost(Exception):
    """The process at the other end has closed its end."""


class OutPipe:
    """The writing end: `put` buffers, `flush` writes what fits now; `unwritten` bytes are buffered. Raises PeerLost.

    The work of `put` and `flush` does not depend on how much is buffered.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._parts: deque[bytes] = deque()
        self._rest = b""
        self._at = 0
        self.unwritten = 0
        os.set_blocking(descriptor, False)

    def put(self, data: bytes) -> None:
        """Add data to the buffer."""
        self._parts.append(data)
        self.unwritten += len(data)

    def flush(self) -> None:
        """Write as much as the pipe takes, up to a limit. Raises PeerLost."""
        written = 0
        while self.unwritten and written < _FLUSH_MAX:
            if self._at == len(self._rest):
                self._rest, self._at = self._next(), 0
            try:
                # A slice no larger than a pipe, so that a large buffer is not copied at each write.
                done = os.write(self.descriptor, self._rest[self._at : self._at + _CHUNK])
            except BlockingIOError:
                return
            except OSError as error:
                raise PeerLost(str(error)) from error
            self._at += done
            self.unwritten -= done
            written += done

    def _next(self) -> bytes:
        """Return the parts that come next, joined: about so many bytes as are written at a time."""
        parts: list[bytes] = []
        size = 0
        while self._parts and size < _CHUNK:
            part = self._parts.popleft()
            parts.append(part)
            size += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def close(self) -> None:
        """Close the descriptor, and drop what is not written."""
        os.close(self.descriptor)
        self._parts, self._rest, self._at, self.unwritten = deque(), b"", 0, 0

    def finish(self) -> None:
        """Write everything; block as long as it takes. Raises PeerLost."""
        os.set_blocking(self.descriptor, True)
        while self.unwritten:
            self.flush()


def read_available(descriptor: int, most: int = _CHUNK) -> bytes | None:
    """Return the data that can be read now, None if there is none yet. Raises PeerLost at end of file."""
    try:
        data = os.read(descriptor, most)
    except BlockingIOError:
        return None
    except OSError as error:
        raise PeerLost(str(error)) from error
    if not data:
        raise PeerLost("end of file")
    return data
