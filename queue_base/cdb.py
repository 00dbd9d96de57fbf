"""cdb files (cr.yp.to/cdb/cdb.txt): written with pure-cdb, read here. A damaged file raises FormatError.

The readers of pure-cdb are not safe for a file that decides who gets mail: some take a record whose hash is 0 for the
end of its table, some loop forever in a full table, and all allocate as much memory as a damaged length says. This
reader does what cdb_seek of qmail does, with pread(2), and checks each offset and length against the file's size.
"""

import os
import struct
from io import BytesIO

from cdblib import Writer, djb_hash

from queue_wire.format_error import FormatError, quoted

_PAIR = struct.Struct("<LL")
_INDEX = 256 * _PAIR.size
# Neither the suite nor qmail-newu writes a longer key or longer data.
_PIECE_MAX = 1 << 20


class Cdb:
    """An open cdb file. The caller closes the descriptor. Raises FormatError, OSError."""

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self._size = os.fstat(handle).st_size
        if self._size < _INDEX:
            raise FormatError(f"it has {self._size} bytes, and a cdb file {_INDEX} at least")

    def get(self, key: bytes) -> bytes | None:
        """Return the data of the first record with a key, None if there is no record. Raises FormatError, OSError."""
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
        if at + length > self._size or length > _PIECE_MAX:
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
    # pure-cdb takes a slot whose hash is 0 for an empty slot, and may have overwritten it with another record.
    if sum(1 for _, position in _PAIR.iter_unpack(memoryview(made)[tables:]) if position) != len(records):
        lost = quoted(next(key for key, _ in records if not djb_hash(key)))
        raise FormatError(f"a cdb file cannot be made with the key {lost}, whose hash is 0, among the others")
    return made
