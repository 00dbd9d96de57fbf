"""What Content-Type and Content-Transfer-Encoding say, as far as taking a message apart needs it (RFC 2045, 2231).

Messages come from anybody: one pass over the value, whatever is in it, and nothing that is kept is over VALUE_MOST.
Comments, quoted strings, and a boundary in pieces or in percent signs (RFC 2231) are understood; other parameters are
passed over. Mistakes of the field are read as Python's package email reads them: a type without one `/` is text/plain,
and an unquoted value ends at a semicolon.
"""

import re
from typing import NamedTuple

from queue_wire.format_error import FormatError

VALUE_MOST = 1024
# RFC 2231 section 3: the number of a piece of a value.
_PIECES_MOST = 100

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


class ContentType(NamedTuple):
    """`type` in lower case, as `text/plain`; `boundary` is empty where there is none."""

    type: str
    boundary: bytes


def unpack_content_type(value: bytes) -> ContentType:
    """Return what a Content-Type says. Raises FormatError where its type or its boundary is too long."""
    place = _skip(value, 0)
    words: list[bytes] = []
    length = 0
    while word := _WORD.match(value, place):
        length += len(word[0])
        if length > VALUE_MOST:
            raise FormatError("it has a Content-Type that is too long")
        words.append(word[0])
        place = _skip(value, word.end())
    name = b"".join(words).decode("ascii", "replace").lower()
    return ContentType(name if name.count("/") == 1 else "text/plain", _find_boundary(value, place))


def unpack_encoding(value: bytes) -> str:
    """Return the first word of a Content-Transfer-Encoding, in lower case; empty where there is none."""
    word = _WORD.match(value, _skip(value, 0))
    return word[0][:VALUE_MOST].decode("ascii", "replace").lower() if word is not None else ""


def _find_boundary(value: bytes, place: int) -> bytes:
    """Return the parameter, from a place on where a parameter's semicolon is. Raises FormatError."""
    plain: bytes | None = None
    pieces: dict[int, bytes] = {}
    while place < len(value):
        if value[place] != 0x3B:
            # What is no parameter is passed over.
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
        found = _BOUNDARY.fullmatch(name) if len(name) <= VALUE_MOST else None
        if found is not None:
            text = _take(value[begin : min(end, begin + 4 * VALUE_MOST)], quoted is not None)
            number = int(found[1] or 0)
            if found[2]:
                text = _decode(text, number == 0)
            if not found[1] and not found[2]:
                plain = text if plain is None else plain
            elif number < _PIECES_MOST:
                pieces.setdefault(number, text)
    boundary = plain
    if boundary is None:
        boundary = b""
        for number in range(len(pieces)):
            if number not in pieces:
                break
            boundary += pieces[number]
    boundary = boundary.rstrip()
    if len(boundary) > VALUE_MOST:
        raise FormatError("it has a boundary that is too long")
    return boundary


def _take(text: bytes, quoted: bool) -> bytes:
    if quoted:
        return _ESCAPED.sub(rb"\1", text.replace(b"\n", b""))
    comment = _COMMENT_BEHIND.search(text)
    return (text if comment is None else text[: comment.start()]).strip()


def _decode(text: bytes, first: bool) -> bytes:
    """Return what the percent signs stand for; the `first` piece begins with the charset and the language."""
    if first and text.count(b"'") >= 2:
        text = text.split(b"'", 2)[2]
    return _PERCENT.sub(lambda found: bytes([int(found[1], 16)]), text)


def _skip(value: bytes, place: int) -> int:
    """Return where the white space and comments that begin at a place end."""
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
