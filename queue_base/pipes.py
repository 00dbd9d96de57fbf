"""Pipe ends that never block: reads of what is there, writes with a buffer for what does not fit."""

import os

_CHUNK = 65536


class PeerLost(Exception):
    """The process at the other end has closed its end."""


class OutPipe:
    """The writing end: `put` buffers, `flush` writes what fits now. Raises PeerLost."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._parts: list[bytes] = []
        self._rest = b""
        self._at = 0
        self._held = 0
        os.set_blocking(descriptor, False)

    def put(self, data: bytes) -> None:
        """Add to what is to be written."""
        self._parts.append(data)
        self._held += len(data)

    @property
    def held(self) -> int:
        """Bytes not yet written."""
        return self._held

    def flush(self) -> None:
        """Write what the pipe takes. Raises PeerLost."""
        while self._held:
            if self._at == len(self._rest):
                self._rest, self._at, self._parts = b"".join(self._parts), 0, []
            try:
                # A slice no larger than a pipe: what is held behind a slow peer is not copied at each write.
                done = os.write(self.descriptor, self._rest[self._at : self._at + _CHUNK])
            except BlockingIOError:
                return
            except OSError as error:
                raise PeerLost(str(error)) from error
            self._at += done
            self._held -= done

    def finish(self) -> None:
        """Write everything, waiting as long as it takes. Raises PeerLost."""
        os.set_blocking(self.descriptor, True)
        self.flush()


def read_available(descriptor: int, most: int = _CHUNK) -> bytes | None:
    """Return what can be read now, None where nothing can yet. Raises PeerLost at the end."""
    try:
        data = os.read(descriptor, most)
    except BlockingIOError:
        return None
    except OSError as error:
        raise PeerLost(str(error)) from error
    if not data:
        raise PeerLost("end of file")
    return data
