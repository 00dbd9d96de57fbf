"""cdb files (cr.yp.to/cdb/cdb.txt): made with pure-cdb, read here; a damaged one is a FormatError.

pure-cdb's readers are unfit for a file that decides who gets mail: some take a record whose hash is 0 for the end of
its table, some never leave a table that is full, and all take as much memory as a damaged length says. This one reads
with pread(2) what cdb_seek of qmail reads, each piece where it fits into the file.
"""

import os
import struct
from io import BytesIO

from cdblib import Writer, djb_hash

from queue_wire.format_error import FormatError, quoted

_PAIR = struct.Struct("<LL")
_INDEX = 256 * _PAIR.size
# A key or data of more bytes is none that was put there by us or by qmail-newu.
_PIECE_MOST = 1 << 20


class Cdb:
    """An open cdb file; the descriptor stays the caller's. Raises FormatError, OSError."""

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self._size = os.fstat(handle).st_size
        if self._size < _INDEX:
            raise FormatError(f"it has {self._size} bytes, and a cdb file {_INDEX} at least")

    def get(self, key: bytes) -> bytes | None:
        """Return the data of the first record with a key, None where there is none. Raises FormatError, OSError."""
        wanted = djb_hash(key)
        table, slots = self._pair(_PAIR.size * (wanted & 255))
        start = wanted >> 8
        for slot in range(start, start + slots):
            found, record = self._pair(table + _PAIR.size * (slot % slots))
            if not record:
                return None
            if found == wanted:
                key_length, length = self._pair(record)
                record += _PAIR.size
                if key_length == len(key) and self._read(record, key_length) == key:
                    return self._read(record + key_length, length)
        return None

    def _pair(self, at: int) -> tuple[int, int]:
        first, second = _PAIR.unpack(self._read(at, _PAIR.size))
        return first, second

    def _read(self, at: int, length: int) -> bytes:
        if at + length > self._size or length > _PIECE_MOST:
            raise FormatError(f"it names {length} bytes at {at}, and has {self._size}")
        data = os.pread(self._handle, length, at)
        if len(data) != length:
            raise FormatError("it was cut short while it was read")
        return data


def make_cdb(records: list[tuple[bytes, bytes]]) -> bytes:
    """Return the bytes of a cdb file of (key, data) records, in their order. Raises FormatError."""
    file = BytesIO()
    writer = Writer(file, strict=True)
    for key, data in records:
        writer.put(key, data)
    tables = file.tell()
    writer.finalize()
    made = file.getvalue()
    # The writer takes a slot whose hash is 0 for empty, and so may have put another record in its place.
    if sum(1 for _, position in _PAIR.iter_unpack(memoryview(made)[tables:]) if position) != len(records):
        lost = quoted(next(key for key, _ in records if not djb_hash(key)))
        raise FormatError(f"a cdb file cannot be made with the key {lost}, whose hash is 0, among the others")
    return made
