"""A message in another form that SMTP can carry: 7-bit (RFC 6152 section 3), or without lines that are too long.

A part's body that needs it becomes quoted-printable or base64, with its Content-Transfer-Encoding; everything else
stays byte for byte. A message that was not MIME becomes so, its text in charset `unknown-8bit` (RFC 1428). What
cannot be converted without loss raises FormatError: what is signed (RFC 1847), a part in an encoding of its own that
is not what it says, fragments. Two things are outside of every part: 8-bit bytes in a header stay as they are, as in
Postfix, since nobody knows their charset; and the text before and after the parts of a multipart, which no program
shows, has `?` for them.
"""

from collections.abc import Callable

from queue_wire.errors import FormatError
from queue_wire.message_facts import LINE_MOST
from queue_wire.mime_encode import (
    choose_encoding,
    encode_base64,
    encode_quoted_printable,
    mend_quoted_printable,
    wrap_base64,
    wrap_text,
)
from queue_wire.mime_parts import Delimiter, Header, find_delimiters

DEPTH_MOST = 50
PARTS_MOST = 10_000
_TEXT = "text/plain"
_MESSAGE = "message/rfc822"
_IDENTITIES = ("", "7bit", "8bit", "binary")
_FRAGMENTS = ("message/partial", "message/external-body")
_SLICE = 65536


class Downgrade:
    """One conversion: `seven_bit` no 8-bit bytes in bodies, `short_lines` no long lines; `put` takes the result."""

    def __init__(self, data: bytes, seven_bit: bool, short_lines: bool, put: Callable[[bytes], object]) -> None:
        """`data` is the message, with LF line ends and no CR."""
        self._data = data
        self._seven_bit = seven_bit
        self._short_lines = short_lines
        self._put = put
        self._parts = 0

    def run(self) -> None:
        """Convert the message. Raises FormatError, saying why it cannot be, maybe after a part of it was put."""
        self._convert_message(0, len(self._data), 0)

    def _convert_message(self, start: int, end: int, depth: int) -> None:
        """Convert the message, or one within it."""
        header = Header(self._data, start, end, _TEXT)
        if self._needs(header.body, end) and not header.has(b"mime-version"):
            header.set(b"MIME-Version", b"1.0")
        self._convert_entity(header, end, depth)

    def _convert_part(self, start: int, end: int, default: str, depth: int) -> None:
        if self._needs(start, end):
            self._convert_entity(Header(self._data, start, end, default), end, depth)
        else:
            self._copy(start, end)

    def _convert_entity(self, header: Header, end: int, depth: int) -> None:
        self._parts += 1
        if depth > DEPTH_MOST or self._parts > PARTS_MOST:
            raise FormatError("it has too many parts")
        if self._short_lines:
            header.fold()
        body = header.body
        whole = header.encoding in _IDENTITIES
        if not self._needs(body, end):
            self._put(header.pack())
            self._copy(body, end)
        elif header.type in ("multipart/signed", "multipart/encrypted"):
            raise FormatError("it is signed or encrypted, and would not be any more")
        elif whole and header.type.startswith("multipart/"):
            self._put_container(header)
            self._convert_multipart(header, end, depth)
        elif whole and header.type == _MESSAGE:
            self._put_container(header)
            self._convert_message(body, end, depth + 1)
        elif header.type in _FRAGMENTS:
            raise FormatError(f"it has a part of type {header.type}")
        else:
            self._convert_leaf(header, end)

    def _put_container(self, header: Header) -> None:
        if self._seven_bit and header.encoding in ("8bit", "binary"):
            header.set(b"Content-Transfer-Encoding", b"7bit")
        header.separator = b"\n"
        self._put(header.pack())

    def _convert_multipart(self, header: Header, end: int, depth: int) -> None:
        boundary = header.boundary
        found = list(self._delimiters(header.body, end, boundary)) if boundary else []
        if not found:
            raise FormatError("it says that it has parts, and they cannot be found")
        default = _MESSAGE if header.type == "multipart/digest" else _TEXT
        self._convert_text(header.body, found[0].start)
        for delimiter, following in zip(found, [*found[1:], None], strict=True):
            self._copy(delimiter.start, delimiter.end)
            if delimiter.last:
                self._convert_text(delimiter.end, end)
                break
            # The line end before a boundary belongs to the boundary.
            stop = end if following is None else max(delimiter.end, following.start - 1)
            self._convert_part(delimiter.end, stop, default, depth + 1)
            self._copy(stop, end if following is None else following.start)

    def _delimiters(self, start: int, end: int, boundary: bytes) -> list[Delimiter]:
        found = []
        for delimiter in find_delimiters(self._data, start, end, boundary):
            found.append(delimiter)
            if len(found) > PARTS_MOST:
                raise FormatError("it has too many parts")
        return found

    def _convert_leaf(self, header: Header, end: int) -> None:
        body = self._data[header.body : end]
        if header.encoding in _IDENTITIES:
            encoding = choose_encoding(body)
            if not header.typed and not body.isascii():
                header.set(b"Content-Type", b"text/plain; charset=unknown-8bit")
            header.set(b"Content-Transfer-Encoding", encoding)
            pieces = encode_base64(body) if encoding == b"base64" else encode_quoted_printable(body)
        elif header.encoding == "quoted-printable":
            encoding, pieces = b"", mend_quoted_printable(body)
        elif header.encoding == "base64" and body.isascii():
            encoding, pieces = b"", wrap_base64(body)
        else:
            raise FormatError(f"it has a part in {header.encoding[:40]} that is not what this says")
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
        """Whether these bytes are not what SMTP can carry."""
        data = self._data
        line = 0
        for place in range(start, end, _SLICE):
            piece = data[place : min(place + _SLICE, end)]
            if self._seven_bit and not piece.isascii():
                return True
            if self._short_lines:
                lines = piece.split(b"\n")
                line += len(lines[0])
                if line > LINE_MOST or max(map(len, lines)) > LINE_MOST:
                    return True
                if len(lines) > 1:
                    line = len(lines[-1])
        return False
