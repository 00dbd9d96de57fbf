"""The parts of a message as MIME sees them (RFC 2045, 2046): header fields, and what lies between the boundaries.

Messages have LF line ends, and come from anybody: what is done costs as much as their bytes, whatever is in them. All
parts are found in one pass, which knows the boundaries of all levels at once. Fields that nobody changes stay the bytes
that they are.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from queue_remote.message.content_type import VALUE_MOST, unpack_content_type, unpack_encoding
from queue_remote.message.facts import LINE_MOST
from queue_wire.format_error import FormatError

# A header is in memory while it is worked on. Postfix cuts headers at 100 kB.
HEADER_MOST = 1024 * 1024
DEPTH_MOST = 50
PARTS_MOST = 10_000
TEXT = "text/plain"
MESSAGE = "message/rfc822"
IDENTITIES = ("", "7bit", "8bit", "binary")
# What may not change (RFC 1847).
SEALED = ("multipart/signed", "multipart/encrypted")

# A field and its continuation lines; the line that an mbox puts first.
_FIELD = re.compile(
    rb"([!-9;-~\x80-\xff]++)[ \t]*+:[^\n]*+(?:\n[ \t][^\n]*+)*+(?:\n|\Z)|>?From [^\n]*+(?:\n|\Z)",
)
# Of a line that may be a boundary's: blanks may follow it.
_LOOKED_AT = 2 + VALUE_MOST + 2 + LINE_MOST


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
        self.meaning = Meaning(default)
        for name, raw in self.fields:
            self.meaning.take(name, raw)

    def has(self, name: bytes) -> bool:
        return any(field == name for field, _ in self.fields)

    def set(self, name: bytes, value: bytes) -> None:
        """Replace a field where it is, or add it at the end."""
        line = b"%s: %s\n" % (name, value)
        first = True
        fields: list[tuple[bytes, bytes]] = []
        for field in self.fields:
            if field[0] != name.lower():
                fields.append(field)
            elif first:
                first = False
                fields.append((name.lower(), line))
        if first:
            if fields and not fields[-1][1].endswith(b"\n"):
                fields[-1] = fields[-1][0], fields[-1][1] + b"\n"
            fields.append((name.lower(), line))
        self.fields = fields

    def fold(self) -> None:
        """Break lines that are too long, where there is space (RFC 5322 section 2.2.3). Raises FormatError."""
        self.fields = [(name, b"".join(_fold(line) for line in raw.splitlines(True))) for name, raw in self.fields]

    def pack(self) -> bytes:
        return b"".join([raw for _, raw in self.fields]) + self.separator


class Meaning:
    """What MIME's fields say of a part: the first field of each name counts.

    `typed`: there is a Content-Type. `boundary` is empty where there is none; `encoding` in lower case, likewise.
    """

    __slots__ = ("_encoded", "boundary", "encoding", "type", "typed")

    def __init__(self, default: str) -> None:
        self.type = default
        self.typed = False
        self.boundary = b""
        self.encoding = ""
        self._encoded = False

    def take(self, name: bytes, raw: bytes) -> None:
        """Take a field. Raises FormatError."""
        if name == b"content-type" and not self.typed:
            self.typed = True
            self.type, self.boundary = unpack_content_type(raw.partition(b":")[2])
        elif name == b"content-transfer-encoding" and not self._encoded:
            self._encoded = True
            self.encoding = unpack_encoding(raw.partition(b":")[2])

    @property
    def whole(self) -> bool:
        """The body is as it is, in no encoding."""
        return self.encoding in IDENTITIES

    @property
    def is_multipart(self) -> bool:
        return self.whole and self.type.startswith("multipart/") and self.type not in SEALED

    @property
    def is_message(self) -> bool:
        return self.whole and self.type == MESSAGE


class Delimiter(NamedTuple):
    """A boundary's line, from `start` to `end`, its line end included; the `last` one closes the multipart."""

    start: int
    end: int
    last: bool


class Part:
    """A part, from `start` to `end`: a message, a multipart with `delimiters` and a child behind each but the last, or
    a leaf. `children` of a message is the one in it. `default` is the content type where its header gives none.
    """

    __slots__ = ("boundary", "children", "default", "delimiters", "depth", "end", "inner", "start")

    def __init__(self, start: int, default: str, depth: int) -> None:
        self.start = start
        self.end = start
        self.default = default
        self.depth = depth
        self.boundary = b""
        # The default of its own parts.
        self.inner = TEXT
        self.children: list[Part] = []
        self.delimiters: list[Delimiter] = []

    def close(self, end: int) -> None:
        """What follows is not of this part any more; the line end before a boundary belongs to the boundary."""
        self.end = end
        self.start = min(self.start, end)
        if self.delimiters and self.delimiters[-1].end > end:
            self.delimiters[-1] = self.delimiters[-1]._replace(end=end)


def find_parts(data: bytes) -> Part:
    """Return a message with all of its parts. Raises FormatError for too many.

    A boundary of an outer multipart ends what is within (RFC 2046 section 5.1.2); parts that are too deep, and what has
    a header that is too long, are not looked into.
    """
    return _Walk(data).run()


class _Walk:
    """One pass over a message; `open` is the path from the message to the part that goes on."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._open: list[Part] = []
        # Where in `open` the multipart with a boundary is: the outermost one counts.
        self._levels: dict[bytes, int] = {}
        self._count = 0
        # Where to look for the next boundary.
        self._place = 0

    def run(self) -> Part:
        data = self._data
        place = self._begin(0, TEXT, 0)
        message = self._open[0]
        for delimiter, level in self._delimiters(place):
            self._close(level + 1, delimiter.start)
            owner = self._open[level]
            owner.delimiters.append(delimiter)
            if delimiter.last:
                del self._levels[owner.boundary]
            else:
                self._place = max(self._place, self._begin(delimiter.end, owner.inner, owner.depth + 1))
        self._close(0, len(data))
        return message

    def _begin(self, start: int, default: str, depth: int) -> int:
        """Begin a part, and the message in it; return where its body begins. Raises FormatError."""
        while True:
            part = Part(start, default, depth)
            if self._open:
                self._open[-1].children.append(part)
            self._open.append(part)
            self._count += 1
            if self._count > PARTS_MOST:
                raise FormatError("it has too many parts")
            meaning, body = self._read_header(start, default)
            if depth > DEPTH_MOST or meaning is None:
                return body
            if not meaning.is_message:
                if meaning.is_multipart and meaning.boundary:
                    part.boundary = meaning.boundary
                    part.inner = MESSAGE if meaning.type == "multipart/digest" else TEXT
                    self._levels.setdefault(meaning.boundary, len(self._open) - 1)
                return body
            start, default, depth = body, TEXT, depth + 1

    def _read_header(self, start: int, default: str) -> tuple[Meaning | None, int]:
        """Return what a header means, None where nobody should look further, and where the body begins."""
        data = self._data
        meaning = Meaning(default)
        place = start
        while found := _FIELD.match(data, place):
            if data.startswith(b"--", place) and self._match(place) is not None:
                return meaning, place
            place = found.end()
            try:
                if place - start > HEADER_MOST:
                    return None, place
                meaning.take((found[1] or b"").lower(), found[0])
            except FormatError:
                return None, place
        return meaning, place + (data[place : place + 1] == b"\n")

    def _delimiters(self, place: int) -> Iterator[tuple[Delimiter, int]]:
        """Yield the lines of boundaries that are open, with their level."""
        data = self._data
        self._place = place
        while self._levels:
            place = self._place
            if not data.startswith(b"--", place):
                place = data.find(b"\n--", max(0, place - 1)) + 1
                if not place:
                    return
            level = self._match(place)
            stop = data.find(b"\n", place) + 1 or len(data)
            self._place = stop
            if level is not None:
                yield Delimiter(place, stop, level[1]), level[0]

    def _match(self, place: int) -> tuple[int, bool] | None:
        """Return whose boundary the line at a place is, if any, and whether it is the last one."""
        line = self._data[place : place + _LOOKED_AT]
        text = line.partition(b"\n")[0].rstrip(b" \t")[2:]
        level = self._levels.get(text)
        if text.endswith(b"--"):
            last = self._levels.get(text[:-2])
            if last is not None and (level is None or last < level):
                return last, True
        return None if level is None else (level, False)

    def _close(self, level: int, place: int) -> None:
        """Close all parts from a level on; a boundary, or the end, is at a place."""
        if len(self._open) <= level:
            return
        end = place
        if level:
            # Nothing is before the boundary's line where the part has only begun.
            end = max(self._open[level].start, place - 1)
        for part in self._open[level:]:
            part.close(end)
            if self._levels.get(part.boundary) is not None and self._levels[part.boundary] >= level:
                del self._levels[part.boundary]
        del self._open[level:]


def _fold(line: bytes) -> bytes:
    stop = len(line) - line.endswith(b"\n")
    pieces: list[bytes] = []
    start = 0
    while stop - start > LINE_MOST:
        most = start + LINE_MOST
        space = max(line.rfind(b" ", start + 1, most), line.rfind(b"\t", start + 1, most))
        if space < 0 or not line[start:space].strip():
            raise FormatError("a line of its header is too long, and has no space to break it at")
        pieces += line[start:space], b"\n"
        start = space
    return b"".join([*pieces, line[start:]])
