"""queue-send to queue-clean: `<files><id>\\0` for each finished message. Back: one byte per id, in order.

    files  which files the message may have: L info/ and local/, R info/ and remote/, B info/ and both; nothing: any

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
_KNOWN = (LOCAL, REMOTE, BOTH)


class Removal(NamedTuple):
    """A finished message, and which files it may have: ANY, LOCAL, REMOTE, BOTH."""

    message: int
    files: bytes = ANY


def pack_clean(message: int, files: bytes = ANY) -> bytes:
    """Return the request to remove what is left of a message, with its NUL."""
    return b"%s%d\0" % (files, message)


def unpack_clean(record: bytes) -> Removal:
    """Return the request in a record without its NUL. Raises FormatError."""
    files = record[:1]
    if files in _KNOWN:
        return Removal(unpack_id(record[1:]), files)
    if files.isalpha():
        raise FormatError(f"not a request to remove a message: {record[:40]!r}")
    return Removal(unpack_id(record))
