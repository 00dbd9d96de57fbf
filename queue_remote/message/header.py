"""The header of a stored message: where it ends, its fields as they go on the wire, and the author's domain.

Messages come from anywhere. A line that is no field is passed over, with its continuation lines; nothing raises, and
what a look costs grows no faster than the bytes that are looked at.
"""

import re
from collections.abc import Container

# Of a From field: the first mailbox is in it, or nobody is.
AUTHOR_MOST = 4096

_END = re.compile(rb"(?:\A|\n)\r?\n")
_FIELD = re.compile(rb"([\x21-\x39\x3b-\x7e]+)[ \t]*:")
_FROM = re.compile(rb"(?:\A|\n)From[ \t]*:", re.IGNORECASE)
_FIELD_END = re.compile(rb"\n(?![ \t])")
_COMMENT_PARTS = re.compile(rb'\\.|[()"]|[^\\()"]+', re.DOTALL)


def find_body(data: bytes, start: int = 0) -> int | None:
    """Return where the body begins, behind the first empty line; None while there is none. `start`: looked so far."""
    # What was looked through may end in the middle of an empty line.
    match = _END.search(data, max(0, start - 3)) if start else _END.search(data)
    return None if match is None else match.end()


def wire_fields(header: bytes, wanted: Container[bytes]) -> list[tuple[bytes, bytes]]:
    """Return the wanted fields (names in lower case), in order: name, and value with CRLF ends, other CRs as spaces."""
    found: list[tuple[bytes, bytes]] = []
    lines = header.replace(b"\r\n", b"\n").replace(b"\r", b" ").rstrip(b"\n").split(b"\n")
    name = b""
    value: list[bytes] = []
    for line in [*lines, b""]:
        if name and line[:1] in (b" ", b"\t") and line:
            value.append(line)
            continue
        if name:
            found.append((name, b"".join([part + b"\r\n" for part in value])))
        match = _FIELD.match(line)
        name = match[1] if match is not None and match[1].lower() in wanted else b""
        value = [line[match.end() :]] if match is not None else []
    return found


def find_author(header: bytes) -> bytes:
    """Return the domain of a header's author; empty where it names none within AUTHOR_MOST bytes of its From field."""
    found = _FROM.search(header)
    if found is None:
        return b""
    value = header[found.end() : found.end() + AUTHOR_MOST]
    end = _FIELD_END.search(value)
    return author_domain(value if end is None else value[: end.start()], end is None and len(value) == AUTHOR_MOST)


def author_domain(value: bytes, cut: bool = False) -> bytes:
    """Return the domain of the first mailbox of a From field (RFC 5322 section 3.6.2); empty where there is none.

    Of a field that was `cut` only a mailbox counts that has ended.
    """
    text = _plain(value)
    opening = text.find(b"<")
    if opening >= 0:
        address, end, _ = text[opening + 1 :].partition(b">")
        ended = bool(end)
    else:
        address, *others = re.split(rb"[,;]", text.rpartition(b":")[2], maxsplit=1)
        ended = bool(others)
    if cut and not ended:
        return b""
    return b"".join(address.rpartition(b"@")[2].split()).lower() if b"@" in address else b""


def _plain(value: bytes) -> bytes:
    """Return a value without comments, and with `x` for each quoted string."""
    kept: list[bytes] = []
    depth = 0
    quoted = False
    for match in _COMMENT_PARTS.finditer(value):
        part = match[0]
        if quoted:
            quoted = part != b'"'
        elif part == b"(":
            depth += 1
        elif part == b")":
            depth = max(0, depth - 1)
        elif not depth:
            quoted = part == b'"'
            kept.append(b"x" if quoted else part)
    return b"".join(kept)
