"""Parses the MIME structure of a message (RFC 2045, 2046, 2231): header fields, and parts between boundaries.

Messages have LF line ends and may hold anything. The work is proportional to their bytes: all parts are found in one
pass that knows the boundaries of all levels, Content-Type is parsed in one pass, and no value over VALUE_MAX is kept.
Fields that are not changed keep their bytes.

Of Content-Type the type and the boundary are parsed, with comments, quoted strings, and values in pieces or percent
encoding (RFC 2231). Malformed fields are read as Python's package email reads them: a type without exactly one `/` is
text/plain, and an unquoted value ends at a semicolon.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from queue_remote.message.encoding import LINE_MAX
from queue_wire.format_error import FormatError

# A header is in memory while it is converted. Postfix cuts headers at 100 kB.
HEADER_MAX = 1024 * 1024
DEPTH_MAX = 50
PARTS_MAX = 10_000
VALUE_MAX = 1024
TEXT = "text/plain"
MESSAGE = "message/rfc822"
# All others, also misspelled names of identity encodings, are taken as what the bytes are.
ENCODINGS = ("quoted-printable", "base64")
# Types whose contents must not change (RFC 1847).
SEALED = ("multipart/signed", "multipart/encrypted")

# A field and its continuation lines; or the From_ line of an mbox.
_FIELD = re.compile(
    rb"([!-9;-~\x80-\xff]++)[ \t]*+:[^\n]*+(?:\n[ \t][^\n]*+)*+(?:\n|\Z)|>?From [^\n]*+(?:\n|\Z)",
)
# Bytes of a line that are compared with boundaries: spaces may follow a boundary.
_LOOKED_AT = 2 + VALUE_MAX + 2 + LINE_MAX
# RFC 2231 section 3: pieces of one value.
_PIECES_MAX = 100
_SPACE = re.compile(rb"[ \t\r\n]*+")
_COMMENT_PART = re.compile(rb"[^()\\]++|\\.|[()]|\\\Z", re.DOTALL)
_WORD = re.compile(rb"[^ \t\r\n;(]++")
_NAME = re.compile(rb'[^ \t\r\n=;("]*+')
_QUOTED = re.compile(rb'"((?:[^"\\]++|\\.)*+)"?', re.DOTALL)
_TO_SEMICOLON = re.compile(rb"[^;]*+")
_COMMENT_BEHIND = re.compile(rb"[ \t\r\n]\(")
_ESCAPED = re.compile(rb"\\(.)", re.DOTALL)
_PERCENT = re.compile(rb"%([0-9A-Fa-f]{2})")
_BOUNDARY = re.compile(rb"boundary(?:\*([0-9]{1,3}))?(\*)?", re.IGNORECASE)


class PartHeader:
    """A part's header: `fields` as (name in lower case, bytes with line ends), and the values of its MIME fields.

    `body` is the offset of the body in the data. `separator` is the blank line between them, empty if there is none.
    """

    def __init__(self, data: bytes, start: int, end: int, default: str) -> None:
        """`default` is the content type if the header has none. Raises FormatError."""
        self.fields: list[tuple[bytes, bytes]] = []
        place = start
        while found := _FIELD.match(data, place, end):
            self.fields.append(((found[1] or b"").lower(), found[0]))
            place = found.end()
            if place - start > HEADER_MAX:
                raise FormatError("its header is too long")
        self.separator = b"\n" if data[place : min(place + 1, end)] == b"\n" else b""
        self.body = place + len(self.separator)
        self.mime = MimeFields(default)
        for name, raw in self.fields:
            self.mime.take(name, raw)

    def has(self, name: bytes) -> bool:
        return any(field == name for field, _ in self.fields)

    def set(self, name: bytes, value: bytes) -> None:
        """Replace a field in its place, or add it at the end."""
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
        """Fold lines that are too long at white space (RFC 5322 section 2.2.3). Raises FormatError."""
        self.fields = [(name, b"".join(_fold(line) for line in raw.splitlines(True))) for name, raw in self.fields]

    def pack(self) -> bytes:
        return b"".join([raw for _, raw in self.fields]) + self.separator


class MimeFields:
    """The values of a part's MIME fields; the first field of each name counts.

    `typed` is whether there is a Content-Type. `boundary` and `encoding` (in lower case) are empty if there is none.
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
        """Whether the body is not encoded, by its name."""
        return self.encoding not in ENCODINGS

    # These two are taken apart whatever encoding they name: RFC 2045 section 6.4 allows them none.
    @property
    def is_multipart(self) -> bool:
        return self.type.startswith("multipart/") and self.type not in SEALED

    @property
    def is_message(self) -> bool:
        return self.type == MESSAGE


class Delimiter(NamedTuple):
    """A boundary's line, from `start` to `end`, line end included; the `last` one closes the multipart."""

    start: int
    end: int
    last: bool


class MimePart:
    """A part, from `start` to `end`: a message, a multipart or a leaf.

    A multipart has a child after each of its `delimiters` but the last; a message/rfc822 has one child. `default` is
    the content type if the header has none.
    """

    __slots__ = ("boundary", "children", "default", "delimiters", "depth", "end", "inner", "start")

    def __init__(self, start: int, default: str, depth: int) -> None:
        self.start = start
        self.end = start
        self.default = default
        self.depth = depth
        self.boundary = b""
        # The default content type of its own parts.
        self.inner = TEXT
        self.children: list[MimePart] = []
        self.delimiters: list[Delimiter] = []

    def close(self, end: int) -> None:
        """Set the end of the part; the line end before a boundary belongs to the boundary."""
        self.end = end
        self.start = min(self.start, end)
        if self.delimiters and self.delimiters[-1].end > end:
            self.delimiters[-1] = self.delimiters[-1]._replace(end=end)


def find_parts(data: bytes) -> MimePart:
    """Return a message with all its parts. Raises FormatError if there are too many.

    A boundary of an outer multipart ends the inner parts (RFC 2046 section 5.1.2). Parts that are nested too deep, and
    those whose header is too long, are leaves.
    """
    return _Walk(data).run()


class _Walk:
    """One pass over a message; `_open` is the path from the message to the current part."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._open: list[MimePart] = []
        # The index in `_open` of the multipart with a boundary; the outermost one counts.
        self._levels: dict[bytes, int] = {}
        self._count = 0
        # Where the search for the next boundary begins.
        self._place = 0

    def run(self) -> MimePart:
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
        """Begin a part, and the message in it; return the offset of its body. Raises FormatError."""
        while True:
            part = MimePart(start, default, depth)
            if self._open:
                self._open[-1].children.append(part)
            self._open.append(part)
            self._count += 1
            if self._count > PARTS_MAX:
                raise FormatError("it has too many parts")
            mime, body = self._read_header(start, default)
            if depth > DEPTH_MAX or mime is None:
                return body
            if not mime.is_message:
                if mime.is_multipart and mime.boundary:
                    part.boundary = mime.boundary
                    part.inner = MESSAGE if mime.type == "multipart/digest" else TEXT
                    self._levels.setdefault(mime.boundary, len(self._open) - 1)
                return body
            start, default, depth = body, TEXT, depth + 1

    def _read_header(self, start: int, default: str) -> tuple[MimeFields | None, int]:
        """Return a header's MIME fields, None if the part is to be a leaf, and the offset of the body."""
        data = self._data
        mime = MimeFields(default)
        place = start
        while found := _FIELD.match(data, place):
            if data.startswith(b"--", place) and self._match(place) is not None:
                return mime, place
            place = found.end()
            try:
                if place - start > HEADER_MAX:
                    return None, place
                mime.take((found[1] or b"").lower(), found[0])
            except FormatError:
                return None, place
        return mime, place + (data[place : place + 1] == b"\n")

    def _delimiters(self, place: int) -> Iterator[tuple[Delimiter, int]]:
        """Yield the lines of the boundaries of open multiparts, with their levels."""
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
        """Return the level of the boundary in the line at a place, and whether it is the last one, or None."""
        line = self._data[place : place + _LOOKED_AT]
        text = line.partition(b"\n")[0].rstrip(b" \t")[2:]
        level = self._levels.get(text)
        if text.endswith(b"--"):
            last = self._levels.get(text[:-2])
            if last is not None and (level is None or last < level):
                return last, True
        return None if level is None else (level, False)

    def _close(self, level: int, place: int) -> None:
        """Close all parts from a level on; `place` is that of a boundary or of the end."""
        if len(self._open) <= level:
            return
        end = place
        if level:
            # A part that has just begun may have no byte before the boundary's line.
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
    while stop - start > LINE_MAX:
        most = start + LINE_MAX
        space = max(line.rfind(b" ", start + 1, most), line.rfind(b"\t", start + 1, most))
        if space < 0 or not line[start:space].strip():
            raise FormatError("a line of its header is too long, and has no space to break it at")
        pieces += line[start:space], b"\n"
        start = space
    return b"".join([*pieces, line[start:]])


class ContentType(NamedTuple):
    """`type` in lower case, as `text/plain`; `boundary` is empty if there is none."""

    type: str
    boundary: bytes


def unpack_content_type(value: bytes) -> ContentType:
    """Return the type and boundary of a Content-Type. Raises FormatError if one of them is too long."""
    place = _skip(value, 0)
    words: list[bytes] = []
    length = 0
    while word := _WORD.match(value, place):
        length += len(word[0])
        if length > VALUE_MAX:
            raise FormatError("it has a Content-Type that is too long")
        words.append(word[0])
        place = _skip(value, word.end())
    name = b"".join(words).decode("ascii", "replace").lower()
    return ContentType(name if name.count("/") == 1 else "text/plain", _find_boundary(value, place))


def unpack_encoding(value: bytes) -> str:
    """Return the first word of a Content-Transfer-Encoding, in lower case, without quotes; empty if there is none."""
    word = _WORD.match(value, _skip(value, 0))
    return word[0][:VALUE_MAX].decode("ascii", "replace").strip('"').lower() if word is not None else ""


def _find_boundary(value: bytes, place: int) -> bytes:
    """Return the boundary parameter; `place` is that of the first parameter's semicolon. Raises FormatError."""
    plain: bytes | None = None
    pieces: dict[int, bytes] = {}
    while place < len(value):
        if value[place] != 0x3B:
            # Not a parameter; it is ignored.
            place = _end(_TO_SEMICOLON, value, place)
            continue
        place = _skip(value, place + 1)
        start = place
        place = _end(_NAME, value, place)
        name = value[start:place]
        place = _skip(value, place)
        if value[place : place + 1] != b"=":
            continue
        place = _skip(value, place + 1)
        quoted = _QUOTED.match(value, place)
        begin, end = quoted.span(1) if quoted is not None else (place, _end(_TO_SEMICOLON, value, place))
        place = _skip(value, quoted.end()) if quoted is not None else end
        found = _BOUNDARY.fullmatch(name) if len(name) <= VALUE_MAX else None
        if found is not None:
            text = _take(value[begin : min(end, begin + 4 * VALUE_MAX)], quoted is not None)
            number = int(found[1] or 0)
            if found[2]:
                text = _decode(text, number == 0)
            if not found[1] and not found[2]:
                plain = text if plain is None else plain
            elif number < _PIECES_MAX:
                pieces.setdefault(number, text)
    boundary = plain
    if boundary is None:
        boundary = b""
        for number in range(len(pieces)):
            if number not in pieces:
                break
            boundary += pieces[number]
    boundary = boundary.rstrip()
    if len(boundary) > VALUE_MAX:
        raise FormatError("it has a boundary that is too long")
    return boundary


def _take(text: bytes, quoted: bool) -> bytes:
    if quoted:
        return _ESCAPED.sub(rb"\1", text.replace(b"\n", b""))
    comment = _COMMENT_BEHIND.search(text)
    return (text if comment is None else text[: comment.start()]).strip()


def _decode(text: bytes, first: bool) -> bytes:
    """Decode percent encoding; the `first` piece begins with the charset and the language."""
    if first and text.count(b"'") >= 2:
        text = text.split(b"'", 2)[2]
    return _PERCENT.sub(lambda found: bytes([int(found[1], 16)]), text)


def _skip(value: bytes, place: int) -> int:
    """Return the end of the white space and comments that begin at a place."""
    place = _end(_SPACE, value, place)
    while value[place : place + 1] == b"(":
        depth = 0
        for part in _COMMENT_PART.finditer(value, place):
            place = part.end()
            if part[0] == b"(":
                depth += 1
            elif part[0] == b")":
                depth -= 1
                if not depth:
                    break
        place = _end(_SPACE, value, place)
    return place


def _end(pattern: re.Pattern[bytes], value: bytes, place: int) -> int:
    found = pattern.match(value, place)
    assert found is not None
    return found.end()
