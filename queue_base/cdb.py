"""cdb files (cr.yp.to/cdb/cdb.txt), made and read by pure-cdb; a damaged one is a FormatError.

pure-cdb's reader believes what a file says: a bad position makes it fail in its own ways, a large length
takes as much memory, and a hash table without an empty slot never lets it go. So it does not get the file but a
`_Pieces`, which looks like its bytes, reads only what is asked for, and ends all three.
"""

import os
from io import BytesIO

from cdblib import Reader, Writer

from queue_wire.errors import FormatError, quoted

_INDEX = 2048
# A key or data of more bytes is none that was put there by us or by qmail-newu.
_PIECE_MOST = 1 << 20


class _Pieces:
    """The bytes of an open file, read piece by piece. Raises FormatError, OSError."""

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self._size = os.fstat(handle).st_size
        # Each slot of 8 bytes may be looked at once in a lookup, and its record in three pieces.
        self._left = self._size // 2 + 256
        self._index = os.pread(handle, _INDEX, 0)

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, piece: slice) -> bytes:
        if piece.stop <= len(self._index):
            return self._index[piece]
        length = piece.stop - piece.start
        if piece.stop > self._size or length > _PIECE_MOST:
            raise FormatError(f"it names {length} bytes at {piece.start}, and has {self._size}")
        self._left -= 1
        if self._left < 0:
            raise FormatError("a hash table has no end")
        data = os.pread(self._handle, length, piece.start)
        if len(data) != length:
            raise FormatError("it was cut short while it was read")
        return data


class Cdb:
    """An open cdb file; the descriptor stays the caller's. Raises FormatError, OSError."""

    def __init__(self, handle: int) -> None:
        pieces = _Pieces(handle)
        if len(pieces) < _INDEX:
            raise FormatError(f"it has {len(pieces)} bytes, and a cdb file {_INDEX} at least")
        self._reader = Reader(pieces, strict=True)

    def get(self, key: bytes) -> bytes | None:
        """Return the data of the first record with a key, None where there is none. Raises FormatError, OSError."""
        found: bytes | None = self._reader.get(key)
        return found


def make_cdb(records: list[tuple[bytes, bytes]]) -> bytes:
    """Return the bytes of a cdb file of (key, data) records, in their order. Raises FormatError."""
    file = BytesIO()
    writer = Writer(file, strict=True)
    for key, data in records:
        writer.put(key, data)
    writer.finalize()
    made = file.getvalue()
    # pure-cdb takes a slot whose hash is 0 for empty, and so may lose a record; looking costs less than that mail.
    reader = Reader(made, strict=True)
    for key, data in dict(reversed(records)).items():
        if reader.get(key) != data:
            raise FormatError(f"a cdb file cannot hold the key {quoted(key)} beside the others")
    return made
