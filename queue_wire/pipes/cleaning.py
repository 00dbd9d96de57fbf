"""queue-send to queue-clean: `<files><id>\\0` for each finished message. Back: one byte per id, in order.

    files  which files the message may have: L info/ and local/, R info/ and remote/, B info/ and both; nothing: any,
           as after a deferral, which leaves a file in last/;
           T only todo/ and perhaps intd/: it was delivered without being classified. Then the slot of its marks and
           its birth in microseconds follow: `T<id>/<slot>/<birth>`; without a slot `T<id>//<birth>`. If it is of
           another class than the first, `/<class>` follows, and its file is in that class's tree

    +  all files of the message are removed; after a power cut only mess/B/I may be back, which is swept (S2)
    !  a file could not be removed; queue-send asks again later
    x  not an id

queue-clean answers requests of some time together (queue_clean.main).
"""

import re
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
_UNCLASSIFIED = re.compile(rb"(\d+)/(\d{0,8})/(\d{1,18})(?:/([a-z][a-z0-9-]{0,30}))?", re.ASCII)


class Removal(NamedTuple):
    """A finished message, and which files it may have: ANY, LOCAL, REMOTE, BOTH, TODO.

    With TODO, `slot` is that of its marks, None if it has none, `birth` is in microseconds since the epoch, and
    `priority` is its class, empty for the first one.
    """

    message: int
    files: bytes = ANY
    slot: int | None = None
    birth: int = 0
    priority: str = ""


def pack_clean(
    message: int, files: bytes = ANY, slot: int | None = None, birth: int = 0, priority: str = ""
) -> bytes:
    """Return the request to remove what is left of a message, with its NUL."""
    if files == TODO:
        tail = b"/" + priority.encode("ascii") if priority else b""
        return b"T%d/%s/%d%s\0" % (message, b"" if slot is None else b"%d" % slot, birth, tail)
    return b"%s%d\0" % (files, message)


def unpack_clean(record: bytes) -> Removal:
    """Return the request in a record without its NUL. Raises FormatError."""
    files = record[:1]
    if files in _KNOWN:
        return Removal(unpack_id(record[1:]), files)
    if files == TODO:
        found = _UNCLASSIFIED.fullmatch(record, 1)
        if found is None:
            raise FormatError(f"not an id, the slot and the birth of a message: {record[:40]!r}")
        number, slot, birth, name = found.groups()
        priority = name.decode("ascii") if name else ""
        return Removal(unpack_id(number), TODO, int(slot) if slot else None, int(birth), priority)
    if files.isalpha():
        raise FormatError(f"not a request to remove a message: {record[:40]!r}")
    return Removal(unpack_id(record))
