"""Netstrings, `LENGTH:BYTES,` (cr.yp.to/proto/netstrings.txt): what jobs, reports and requests travel in."""

from queue_wire.errors import FormatError, quoted

# The longest length prefix that is still "need more": 9 digits is under 1 GB.
_PREFIX_MAX = 9


def pack_netstring(payload: bytes) -> bytes:
    """Return the payload as one netstring."""
    return b"%d:%s," % (len(payload), payload)


class NetstringReader:
    """Takes bytes as they arrive, hands over payloads; never holds more than `cap` bytes of one payload.

    `feed` stores, `next` returns a payload or None for "need more" and raises FormatError at the first
    byte that cannot be a netstring; after that the stream has no meaning and must be closed.
    """

    def __init__(self, cap: int = 16 * 1024 * 1024) -> None:
        self._cap = cap
        self._buffer = bytearray()
        self._start = 0

    def feed(self, data: bytes) -> None:
        if self._start:
            del self._buffer[: self._start]
            self._start = 0
        self._buffer += data

    def next(self) -> bytes | None:
        start = self._start
        colon = self._buffer.find(b":", start, start + _PREFIX_MAX + 1)
        if colon < 0:
            head = bytes(self._buffer[start : start + _PREFIX_MAX + 1])
            if head and (not head.isdigit() or len(head) > _PREFIX_MAX):
                raise FormatError(f"netstring: no length: {quoted(head)}")
            return None
        prefix = bytes(self._buffer[start:colon])
        if not prefix.isdigit() or (prefix[:1] == b"0" and prefix != b"0"):
            raise FormatError(f"netstring: no length: {quoted(prefix)}")
        length = int(prefix)
        if length > self._cap:
            raise FormatError(f"netstring: {length} bytes, limit {self._cap}")
        end = colon + 1 + length
        if end >= len(self._buffer):
            return None
        if self._buffer[end] != 0x2C:
            raise FormatError("netstring: no comma at its end")
        self._start = end + 1
        return bytes(self._buffer[colon + 1 : end])
