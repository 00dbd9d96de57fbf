"""How a stream of bytes on a pipe or socket is divided into records.

    netstring   LENGTH:BYTES,   jobs, reports, requests and responses of queuectl (cr.yp.to/proto/netstrings.txt)
    record      BYTES NUL       queue-todo's notices and queue-clean's ids

The readers take bytes as they arrive and return whole records. What they buffer has a limit; a stream that exceeds it,
or that breaks the format, raises FormatError.
"""

import re

from queue_wire.format_error import FormatError, quoted

# The longest length prefix that is still "need more": 9 digits is under 1 GB.
PREFIX_MAX = 9
_LENGTH = re.compile(rb"(0|[1-9][0-9]{0,%d}):" % (PREFIX_MAX - 1))


def pack_netstring(payload: bytes) -> bytes:
    """Return the payload as one netstring."""
    return b"%d:%s," % (len(payload), payload)


class NetstringReader:
    """Reads netstrings of at most `cap` bytes each.

    `feed` stores bytes. `next` returns a payload, or None if more bytes are needed. It raises FormatError at the first
    byte that cannot be part of a netstring; the rest of the stream is then meaningless and must be closed.
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
        match = _LENGTH.match(self._buffer, self._start)
        if match is None:
            self._check_length()
            return None
        length = int(match[1])
        if length > self._cap:
            raise FormatError(f"netstring: {length} bytes, limit {self._cap}")
        begin = match.end()
        end = begin + length
        if end >= len(self._buffer):
            return None
        if self._buffer[end] != 0x2C:
            raise FormatError("netstring: no comma at its end")
        self._start = end + 1
        return bytes(self._buffer[begin:end])

    def _check_length(self) -> None:
        """Raise FormatError if no more bytes can make a length of those that are there."""
        head = bytes(self._buffer[self._start : self._start + PREFIX_MAX + 1])
        prefix, colon, _ = head.partition(b":")
        if colon or (head and (not head.isdigit() or len(head) > PREFIX_MAX)):
            raise FormatError(f"netstring: no length: {quoted(prefix)}")


class RecordReader:
    """Reads NUL-terminated records of at most `cap` bytes each."""

    def __init__(self, cap: int = 8192) -> None:
        self._cap = cap
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Return the records that `data` completes, without their NULs. Raises FormatError if one is over the cap.

        All records in `data` are then lost. The caller may continue with the bytes that follow.
        """
        records = (self._rest + data).split(b"\0")
        if max(map(len, records)) > self._cap:
            self._rest = b""
            raise FormatError(f"record over {self._cap} bytes")
        self._rest = records.pop()
        return records
