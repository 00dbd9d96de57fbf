"""users/assign and the records of users/cdb (qmail-users(5), qmail-newu(8), qmail-lspawn(8)).

    =local:user:uid:gid:homedir:dash:ext:     mail for local is controlled by homedir/.qmail<dash><ext>
    +loc:user:uid:gid:homedir:dash:pre:       the same for each local that begins with loc; ext is <pre> and its rest
    .                                         the end

Text after the last colon of a line, and after the end, is ignored.

users/cdb has a record for each line: the key is `!local\\0` or `!loc` in lower case, the data is
`user\\0uid\\0gid\\0homedir\\0dash\\0ext`. If a key occurs twice, the first record is used. The record with the empty
key lists the last bytes of all locs, so that wildcards are looked up only for prefixes that end in one of them.
"""

from collections.abc import Iterator
from typing import NamedTuple

from queue_wire.format_error import FormatError, InLine, LineError, quoted

# Far longer than a mail address and a path.
LINE_MAX = 65536
# The highest number means "no change" to setreuid(2) and chown(2).
ID_MAX = (1 << 32) - 2
_COLONS = 7


class Assignment(NamedTuple):
    """The user to whom a local part is assigned: the fields of a record."""

    user: bytes
    uid: int
    gid: int
    home: bytes
    dash: bytes
    extension: bytes


def unpack_assign(data: bytes) -> list[tuple[bytes, bytes]]:
    """Return users/cdb's records, (key, data), for the bytes of users/assign. Raises LineError."""
    records: list[tuple[bytes, bytes]] = []
    breaks = bytearray()
    lines = data.split(b"\n")
    for number, line in enumerate(lines, 1):
        if line.startswith(b"."):
            records.append((b"", bytes(breaks)))
            return records
        if number == len(lines):
            raise LineError(number, "the file ends without a line that begins with a dot")
        with InLine(number):
            record = _record(line)
        records.append(record)
        key = record[0]
        # qmail-newu lists the byte as written, so qmail never finds a wildcard that ends in upper case.
        if line.startswith(b"+") and len(key) > 1 and key[-1] not in breaks:
            breaks.append(key[-1])
    raise AssertionError("split gives one line at least")


def _record(line: bytes) -> tuple[bytes, bytes]:
    if len(line) > LINE_MAX:
        raise FormatError(f"it has over {LINE_MAX} bytes")
    if b"\0" in line:
        raise FormatError("it holds a NUL")
    if not line.startswith((b"=", b"+")):
        raise FormatError(f"it begins with neither = nor + nor a dot: {quoted(line)}")
    fields = line[1:].split(b":", _COLONS)
    if len(fields) <= _COLONS:
        raise FormatError(f"it has {len(fields) - 1} colons and not {_COLONS}: {quoted(line)}")
    local, user, uid, gid, home = fields[:5]
    if not user:
        raise FormatError("it names no user")
    unpack_id("uid", uid)
    unpack_id("gid", gid)
    if not home:
        raise FormatError("it names no home directory")
    key = b"!" + local.lower()
    return key + b"\0" if line.startswith(b"=") else key, b"\0".join(fields[1:_COLONS])


def unpack_id(what: str, field: bytes) -> int:
    """Return a uid or gid. Raises FormatError."""
    if not field.isdigit() or len(field) > 10 or int(field) > ID_MAX:
        raise FormatError(f"the {what} is not a number from 0 to {ID_MAX}: {quoted(field)}")
    return int(field)


def lookup_keys(local: bytes, breaks: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys to look up for a local part, in order, each with the text to append to the record's ext.

    `breaks` is the data of the empty key. The local part is first, then wildcards, the longest first.
    """
    lower = b"!" + local.lower()
    yield lower + b"\0", b""
    for end in range(len(lower), 1, -1):
        if lower[end - 1] in breaks:
            yield lower[:end], local[end - 1 :]
    yield b"!", local


def shown_key(key: bytes) -> bytes:
    """Return a record's key as it is written in users/assign: `=local` or `+loc`."""
    return b"=" + key[1:-1] if key.endswith(b"\0") else b"+" + key[1:]


def unpack_record(data: bytes, rest: bytes) -> Assignment:
    """Return the assignment in a record; `rest` is the text that lookup_keys gave with its key. Raises FormatError."""
    fields = data.split(b"\0", 5)
    if len(fields) < 6:
        raise FormatError(f"a record has {len(fields)} fields and not 6: {quoted(data)}")
    user, uid, gid, home, dash, extension = fields
    if not user or not home or b"\0" in extension:
        raise FormatError(f"a record is no assignment: {quoted(data)}")
    return Assignment(user, unpack_id("uid", uid), unpack_id("gid", gid), home, dash, extension + rest)
