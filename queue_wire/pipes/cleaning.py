"""queue-send to queue-clean: `<files><id>\\0` for each finished message. Back: one byte per id, in order.

    files  which files the message may have: L info/ and local/, R info/ and remote/, B info/ and both; nothing: any;
           T only todo/ and perhaps intd/: it was delivered without being classified. Then the id has the slot of its
           marks: `T<id>/<slot>`

    +  all files of the message are removed; after a power cut only mess/B/I may be back, which is swept (S2)
    !  a file could not be removed; queue-send asks again later
    x  not an id

queue-clean answers requests of some time together (queue_clean.main).
"""

from typing import NamedTuple

from queue_wire.format_error import FormatError
from queue_wire.ids import unpack_id

REMOVED = b"+"
TROUBLE = b"!"
NOT_UNDERSTOOD = b"x"
ANSWERS = REMOVED + TROUBLE + NOT_UNDERSTOOD

ANY = b""
LOCAL = b"L"
REMOTE = b"R"
BOTH = b"B"
TODO = b"T"
_KNOWN = (LOCAL, REMOTE, BOTH)


class Removal(NamedTuple):
    """A finished message, and which files it may have: ANY, LOCAL, REMOTE, BOTH, TODO. `slot` is that of its marks."""

    message: int
    files: bytes = ANY
    slot: int | None = None


def pack_clean(message: int, files: bytes = ANY, slot: int | None = None) -> bytes:
    """Return the request to remove what is left of a message, with its NUL."""
    return b"%s%d\0" % (files, message) if slot is None else b"%s%d/%d\0" % (files, message, slot)


def unpack_clean(record: bytes) -> Removal:
    """Return the request in a record without its NUL. Raises FormatError."""
    files = record[:1]
    if files in _KNOWN:
        return Removal(unpack_id(record[1:]), files)
    if files == TODO:
        number, slash, slot = record[1:].partition(b"/")
        if slash and not (slot.isdigit() and len(slot) < 9):
            raise FormatError(f"not the slot of a message: {record[:40]!r}")
        return Removal(unpack_id(number), TODO, int(slot) if slash else None)
    if files.isalpha():
        raise FormatError(f"not a request to remove a message: {record[:40]!r}")
    return Removal(unpack_id(record))
