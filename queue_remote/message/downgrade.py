"""Converts a message into a form that SMTP can carry: 7-bit (RFC 6152 section 3), or without long lines.

The body of a part that needs it is encoded as quoted-printable or base64, and gets a Content-Transfer-Encoding;
everything else keeps its bytes. A message without MIME gets MIME fields, its text the charset `unknown-8bit` (RFC
1428). A message that cannot be converted without loss raises FormatError: signed parts (RFC 1847), parts that are not
in the encoding that they name, fragments. 8-bit bytes in a header stay, as in Postfix, because their charset is
unknown. In the text before and after the parts of a multipart, which no mail reader shows, and in parts such as
message/delivery-status, which may not be encoded, they become `?`. The work is proportional to the message's bytes.
"""

import re
from collections.abc import Callable

from queue_remote.message.encoding import (
    choose_encoding,
    encode_base64,
    encode_quoted_printable,
    find_long_line,
    repair_quoted_printable,
    wrap_base64,
    wrap_text,
)
from queue_remote.message.mime import DEPTH_MAX, SEALED, TEXT, MimePart, PartHeader, find_parts
from queue_wire.format_error import FormatError

_FRAGMENTS = ("message/partial", "message/external-body")
_SLICE = 65536
_EIGHT_BIT = re.compile(rb"[\x80-\xff]")


class Downgrade:
    """One conversion: `seven_bit`: no 8-bit bytes in bodies; `short_lines`: no long lines; `put` takes the result."""

    def __init__(self, data: bytes, seven_bit: bool, short_lines: bool, put: Callable[[bytes], object]) -> None:
        """`data` is the message, with LF line ends and no CR."""
        self._data = data
        self._seven_bit = seven_bit
        self._short_lines = short_lines
        self._put = put
        self._searches = [_NextOffset(self._find_eight_bit)] if seven_bit else []
        if short_lines:
            self._searches.append(_NextOffset(self._find_long_line))

    def run(self) -> None:
        """Convert the message. Raises FormatError with the reason if it cannot be, maybe after a part of it was put."""
        self._convert_message(find_parts(self._data))

    def _convert_message(self, part: MimePart) -> None:
        """Convert the message, or a message/rfc822 part."""
        header = PartHeader(self._data, part.start, part.end, TEXT)
        if self._needs(header.body, part.end) and not header.has(b"mime-version"):
            header.set(b"MIME-Version", b"1.0")
        self._convert_entity(header, part)

    def _convert_part(self, part: MimePart) -> None:
        if self._needs(part.start, part.end):
            self._convert_entity(PartHeader(self._data, part.start, part.end, part.default), part)
        else:
            self._copy(part.start, part.end)

    def _convert_entity(self, header: PartHeader, part: MimePart) -> None:
        if part.depth > DEPTH_MAX:
            raise FormatError("it has too many parts")
        if self._short_lines:
            header.fold()
        body, end, mime = header.body, part.end, header.mime
        if not self._needs(body, end):
            self._put(header.pack())
            self._copy(body, end)
        elif mime.type in SEALED:
            raise FormatError("it is signed or encrypted, and would not be any more")
        elif mime.is_multipart:
            self._put_container(header)
            self._convert_multipart(header, part)
        elif mime.is_message:
            self._put_container(header)
            self._convert_message(part.children[0])
        elif mime.type in _FRAGMENTS:
            raise FormatError(f"it has a part of type {mime.type}")
        else:
            self._convert_leaf(header, end)

    def _put_container(self, header: PartHeader) -> None:
        encoding = header.mime.encoding
        if encoding not in ("", "7bit") and (self._seven_bit or encoding not in ("8bit", "binary")):
            header.set(b"Content-Transfer-Encoding", b"7bit" if self._seven_bit else b"8bit")
        header.separator = b"\n"
        self._put(header.pack())

    def _convert_multipart(self, header: PartHeader, part: MimePart) -> None:
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

    def _convert_leaf(self, header: PartHeader, end: int) -> None:
        body = self._data[header.body : end]
        mime = header.mime
        if _is_report(mime.type) and (mime.whole or not body.isascii()):
            encoding, pieces = b"7bit", wrap_text(body)
            header.set(b"Content-Transfer-Encoding", encoding)
        elif mime.whole:
            encoding = choose_encoding(body)
            if not mime.typed and not body.isascii():
                header.set(b"Content-Type", b"text/plain; charset=unknown-8bit")
            header.set(b"Content-Transfer-Encoding", encoding)
            pieces = encode_base64(body) if encoding == b"base64" else encode_quoted_printable(body)
        elif mime.encoding == "quoted-printable":
            encoding, pieces = b"", repair_quoted_printable(body)
        elif mime.encoding == "base64" and body.isascii():
            encoding, pieces = b"", wrap_base64(body)
        else:
            raise FormatError(f"it has a part in {mime.encoding[:40]} that is not what this says")
        # A malformed part may have no blank line between header and body.
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
        """Return whether these bytes, whole lines, need conversion."""
        return start < end and any(search.next(start) < end for search in self._searches)

    def _find_eight_bit(self, start: int) -> int:
        """Return the offset of the first 8-bit byte from a place on, the end of the data if there is none."""
        data = self._data
        for place in range(start, len(data), _SLICE):
            # isascii() is much faster than the pattern.
            if not data[place : place + _SLICE].isascii():
                found = _EIGHT_BIT.search(data, place)
                assert found is not None
                return found.start()
        return len(data)

    def _find_long_line(self, start: int) -> int:
        place = find_long_line(self._data, start)
        return place if place >= 0 else len(self._data)


def _is_report(kind: str) -> bool:
    """Return whether a type of message, such as message/delivery-status, may not be encoded (RFC 2045 section 6.4).

    Those of RFC 6532, message/global and its kin, may.
    """
    return kind.startswith("message/") and not kind.startswith("message/global")


class _NextOffset:
    """A search that remembers its last result: offsets are asked for in order, several times within a part."""

    def __init__(self, find: Callable[[int], int]) -> None:
        self._find = find
        # There is no match between these two offsets.
        self._start, self._found = 0, -1

    def next(self, start: int) -> int:
        """Return the offset of the first match from a place on."""
        if not self._start <= start <= self._found:
            self._start, self._found = start, self._find(start)
        return self._found
