"""The parts of a message as MIME sees them (RFC 2045, 2046): header fields, and what lies between the boundaries.

Messages have LF line ends. Nothing is parsed that need not be: fields that nobody changes stay the bytes that they
are, and the package `email` says what a Content-Type means.
"""

import re
from collections.abc import Iterator
from email.message import Message as Fields
from email.parser import BytesHeaderParser
from email.policy import compat32
from typing import NamedTuple

from queue_wire.errors import FormatError
from queue_wire.message_facts import LINE_MOST

# A header is in memory, and parsed, while it is worked on. Postfix cuts headers at 100 kB.
HEADER_MOST = 1024 * 1024
FIELDS_MOST = 16384

# A field and its continuation lines; the line that an mbox puts first.
_FIELD = re.compile(rb"([!-9;-~\x80-\xff]+)[ \t]*:[^\n]*(?:\n[ \t][^\n]*)*(?:\n|\Z)|>?From [^\n]*(?:\n|\Z)")
_PARSER = BytesHeaderParser(policy=compat32)


class Header:
    """A part's header: `fields` as (name in lower case, bytes with line ends), and what MIME's fields mean.

    `body` is where in the data the body begins. `separator` is the blank line between them, empty where there is none.
    """

    def __init__(self, data: bytes, start: int, end: int, default: str) -> None:
        """`default` is the content type where none is given. Raises FormatError."""
        self.fields: list[tuple[bytes, bytes]] = []
        place = start
        while found := _FIELD.match(data, place, end):
            self.fields.append(((found[1] or b"").lower(), found[0]))
            place = found.end()
            if place - start > HEADER_MOST:
                raise FormatError("its header is too long")
        self.separator = b"\n" if data[place : min(place + 1, end)] == b"\n" else b""
        self.body = place + len(self.separator)
        meaning = _parse(self.fields)
        self.typed = "content-type" in meaning
        words = str(meaning.get("content-transfer-encoding", "")).replace(";", " ").split()
        self.encoding = words[0].lower() if words else ""
        try:
            self.type = meaning.get_content_type() if self.typed else default
            # Empty where there is none.
            self.boundary = (meaning.get_boundary() or "").encode("utf-8", "surrogateescape")
        except (ValueError, LookupError) as error:
            raise FormatError("it has a Content-Type that makes no sense") from error

    def has(self, name: bytes) -> bool:
        return any(field == name for field, _ in self.fields)

    def set(self, name: bytes, value: bytes) -> None:
        """Replace a field where it is, or add it at the end."""
        line = b"%s: %s\n" % (name, value)
        found = [index for index, (field, _) in enumerate(self.fields) if field == name.lower()]
        if found:
            self.fields[found[0]] = name.lower(), line
            for index in reversed(found[1:]):
                del self.fields[index]
        else:
            if self.fields and not self.fields[-1][1].endswith(b"\n"):
                self.fields[-1] = self.fields[-1][0], self.fields[-1][1] + b"\n"
            self.fields.append((name.lower(), line))

    def fold(self) -> None:
        """Break lines that are too long, where there is space (RFC 5322 section 2.2.3). Raises FormatError."""
        self.fields = [(name, b"".join(_fold(line) for line in raw.splitlines(True))) for name, raw in self.fields]

    def pack(self) -> bytes:
        return b"".join([raw for _, raw in self.fields]) + self.separator


class Delimiter(NamedTuple):
    """A boundary's line, from `start` to `end`, its line end included; the `last` one closes the multipart."""

    start: int
    end: int
    last: bool


def find_delimiters(data: bytes, start: int, end: int, boundary: bytes) -> Iterator[Delimiter]:
    """Yield the lines of a boundary (RFC 2046 section 5.1.1), up to the last one. A line begins at `start`."""
    mark = b"--" + boundary
    place = start if data.startswith(mark, start, end) else data.find(b"\n" + mark, start, end) + 1
    while place > 0:
        stop = data.find(b"\n", place, end)
        stop = end if stop < 0 else stop + 1
        rest = data[place + len(mark) : min(stop, place + len(mark) + LINE_MOST)].rstrip(b" \t\n")
        if rest in (b"", b"--"):
            yield Delimiter(place, stop, bool(rest))
            if rest:
                return
        place = data.find(b"\n" + mark, stop - 1, end) + 1


def _parse(fields: list[tuple[bytes, bytes]]) -> Fields:
    ours = b"".join([raw for name, raw in fields if name.startswith(b"content-")])
    # What takes them apart needs time with the square of their length.
    if len(ours) > FIELDS_MOST:
        raise FormatError("its MIME fields are too long")
    return _PARSER.parsebytes(ours)


def _fold(line: bytes) -> bytes:
    folded = b""
    while len(line.rstrip(b"\n")) > LINE_MOST:
        space = max(line.rfind(b" ", 1, LINE_MOST), line.rfind(b"\t", 1, LINE_MOST))
        if space < 0 or not line[:space].strip():
            raise FormatError("a line of its header is too long, and has no space to break it at")
        folded += line[:space] + b"\n"
        line = line[space:]
    return folded + line
