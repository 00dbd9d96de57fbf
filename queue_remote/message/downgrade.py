"""A message in another form that SMTP can carry: 7-bit (RFC 6152 section 3), or without lines that are too long.

A part's body that needs it becomes quoted-printable or base64, with its Content-Transfer-Encoding; everything else
stays byte for byte. A message that was not MIME becomes so, its text in charset `unknown-8bit` (RFC 1428). What
cannot be converted without loss raises FormatError: what is signed (RFC 1847), a part in an encoding of its own that
is not what it says, fragments. Two things are outside of every part: 8-bit bytes in a header stay as they are, as in
Postfix, since nobody knows their charset; and the text before and after the parts of a multipart, which no program
shows, has `?` for them. The work grows with the message's bytes, whatever they are.
"""

import re
from collections.abc import Callable

from queue_remote.message.facts import find_long_line
from queue_remote.message.mime_encode import (
    choose_encoding,
    encode_base64,
    encode_quoted_printable,
    mend_quoted_printable,
    wrap_base64,
    wrap_text,
)
from queue_remote.message.mime_parts import DEPTH_MOST, SEALED, TEXT, Header, Part, find_parts
from queue_wire.format_error import FormatError

_FRAGMENTS = ("message/partial", "message/external-body")
_SLICE = 65536
_EIGHT_BIT = re.compile(rb"[\x80-\xff]")


class Downgrade:
    """One conversion: `seven_bit` no 8-bit bytes in bodies, `short_lines` no long lines; `put` takes the result."""

    def __init__(self, data: bytes, seven_bit: bool, short_lines: bool, put: Callable[[bytes], object]) -> None:
        """`data` is the message, with LF line ends and no CR."""
        self._data = data
        self._seven_bit = seven_bit
        self._short_lines = short_lines
        self._put = put
        self._searches = [_Search(self._find_eight_bit)] if seven_bit else []
        if short_lines:
            self._searches.append(_Search(self._find_long_line))

    def run(self) -> None:
        """Convert the message. Raises FormatError, saying why it cannot be, maybe after a part of it was put."""
        self._convert_message(find_parts(self._data))

    def _convert_message(self, part: Part) -> None:
        """Convert the message, or one within it."""
        header = Header(self._data, part.start, part.end, TEXT)
        if self._needs(header.body, part.end) and not header.has(b"mime-version"):
            header.set(b"MIME-Version", b"1.0")
        self._convert_entity(header, part)

    def _convert_part(self, part: Part) -> None:
        if self._needs(part.start, part.end):
            self._convert_entity(Header(self._data, part.start, part.end, part.default), part)
        else:
            self._copy(part.start, part.end)

    def _convert_entity(self, header: Header, part: Part) -> None:
        if part.depth > DEPTH_MOST:
            raise FormatError("it has too many parts")
        if self._short_lines:
            header.fold()
        body, end, meaning = header.body, part.end, header.meaning
        if not self._needs(body, end):
            self._put(header.pack())
            self._copy(body, end)
        elif meaning.type in SEALED:
            raise FormatError("it is signed or encrypted, and would not be any more")
        elif meaning.is_multipart:
            self._put_container(header)
            self._convert_multipart(header, part)
        elif meaning.is_message:
            self._put_container(header)
            self._convert_message(part.children[0])
        elif meaning.type in _FRAGMENTS:
            raise FormatError(f"it has a part of type {meaning.type}")
        else:
            self._convert_leaf(header, end)

    def _put_container(self, header: Header) -> None:
        if self._seven_bit and header.meaning.encoding in ("8bit", "binary"):
            header.set(b"Content-Transfer-Encoding", b"7bit")
        header.separator = b"\n"
        self._put(header.pack())

    def _convert_multipart(self, header: Header, part: Part) -> None:
        found = part.delimiters
        if not found:
            raise FormatError("it says that it has parts, and they cannot be found")
        self._convert_text(header.body, found[0].start)
        for index, delimiter in enumerate(found):
            self._copy(delimiter.start, delimiter.end)
            if delimiter.last:
                self._convert_text(delimiter.end, part.end)
                break
            child = part.children[index]
            self._convert_part(child)
            self._copy(child.end, found[index + 1].start if index + 1 < len(found) else part.end)

    def _convert_leaf(self, header: Header, end: int) -> None:
        body = self._data[header.body : end]
        meaning = header.meaning
        if meaning.whole:
            encoding = choose_encoding(body)
            if not meaning.typed and not body.isascii():
                header.set(b"Content-Type", b"text/plain; charset=unknown-8bit")
            header.set(b"Content-Transfer-Encoding", encoding)
            pieces = encode_base64(body) if encoding == b"base64" else encode_quoted_printable(body)
        elif meaning.encoding == "quoted-printable":
            encoding, pieces = b"", mend_quoted_printable(body)
        elif meaning.encoding == "base64" and body.isascii():
            encoding, pieces = b"", wrap_base64(body)
        else:
            raise FormatError(f"it has a part in {meaning.encoding[:40]} that is not what this says")
        # Broken mail may go from header to body without a blank line.
        header.separator = b"\n"
        self._put(header.pack())
        for piece in pieces:
            self._put(piece)
        if encoding == b"base64" and end == len(self._data):
            self._put(b"\n")

    def _convert_text(self, start: int, end: int) -> None:
        if not self._needs(start, end):
            self._copy(start, end)
            return
        for piece in wrap_text(self._data[start:end]):
            self._put(piece)

    def _copy(self, start: int, end: int) -> None:
        for place in range(start, end, _SLICE):
            self._put(self._data[place : min(place + _SLICE, end)])

    def _needs(self, start: int, end: int) -> bool:
        """Whether these bytes, whole lines, are not what SMTP can carry."""
        return start < end and any(search.next(start) < end for search in self._searches)

    def _find_eight_bit(self, start: int) -> int:
        """Return where the first 8-bit byte from a place on is, the end of the data where there is none."""
        data = self._data
        for place in range(start, len(data), _SLICE):
            # Much faster than the pattern.
            if not data[place : place + _SLICE].isascii():
                found = _EIGHT_BIT.search(data, place)
                assert found is not None
                return found.start()
        return len(data)

    def _find_long_line(self, start: int) -> int:
        place = find_long_line(self._data, start)
        return place if place >= 0 else len(self._data)


class _Search:
    """Remembers the last answer: parts are asked about in their order, and each one together with those in it."""

    def __init__(self, find: Callable[[int], int]) -> None:
        self._find = find
        # From the first place to the second there is nothing.
        self._start, self._found = 0, -1

    def next(self, start: int) -> int:
        """Return what `find` does: where the first thing from a place on is."""
        if not self._start <= start <= self._found:
            self._start, self._found = start, self._find(start)
        return self._found
