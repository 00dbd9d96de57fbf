"""What a lock file of ours (FILE.lock) holds while a message is appended to the mbox FILE, so that a cut can be undone.

    Q, length of FILE before (5 bytes), bytes that are added (4), check of them (3), check of their head (3)

Big-endian, 16 bytes in all: procmail waits for ever for a lock file of more, and liblockfile takes digits at its
start for a pid. All zeros behind the Q: the lock is held, and nothing has been added. Pure.
"""

import zlib
from typing import NamedTuple

from queue_wire.format_error import FormatError, quoted

SIZE = 16
_MARK = b"Q"
_WIDTHS = (5, 4, 3, 3)


class Journal(NamedTuple):
    """An append that has begun: length of the file before, bytes to be added, `fold` of them, `fold` of their head."""

    length: int = 0
    added: int = 0
    check: int = 0
    head: int = 0


def fold(data: bytes, crc: int = 0) -> int:
    """Return the check of some bytes, or of a CRC-32 that zlib.crc32 made: 24 bits."""
    return zlib.crc32(data, crc) & 0xFFFFFF


def pack_journal(journal: Journal) -> bytes:
    """Return the 16 bytes. A file of 1 TB or a message of 4 GB does not fit, and has a journal that says nothing."""
    if any(value >> 8 * width for value, width in zip(journal, _WIDTHS, strict=True)):
        journal = Journal()
    return _MARK + b"".join(value.to_bytes(width, "big") for value, width in zip(journal, _WIDTHS, strict=True))


def unpack_journal(data: bytes) -> Journal:
    """Return what pack_journal packed. Raises FormatError for what is somebody else's."""
    if len(data) != SIZE or data[:1] != _MARK:
        raise FormatError(f"mbox journal: not ours: {quoted(data)}")
    return Journal(*(int.from_bytes(part, "big") for part in (data[1:6], data[6:10], data[10:13], data[13:])))
