"""Encodes bodies of MIME parts in 7-bit lines of a bounded length (RFC 2045 sections 6.7 and 6.8), piece by piece.

Bodies have LF line ends and no CR. They are encoded with CRLF line ends, as they would be on the wire.
"""

import binascii
import re
from collections.abc import Iterator

# The longest line in SMTP, in octets, without the line end (RFC 5321 section 4.5.3.1.6).
LINE_MAX = 998
# Bodies are encoded in pieces of about this size, so that no call takes long.
PIECE = 65536
_BASE64_LINE = 57
_ESCAPED = bytes([byte for byte in range(256) if byte > 126 or byte == 61 or (byte < 32 and byte not in (9, 10))])
_BREAKABLE = re.compile(rb"(?:=[0-9A-Fa-f]{2}|[^\n]){1,72}")
# binascii makes lines of up to 78 bytes if they end with a space.
_OVERLONG = re.compile(rb"^[^\n]{77,}$", re.MULTILINE)
_SHORT = re.compile(rb"(?:=[0-9A-F]{2}|[^\n]){1,24}")
_ESCAPES = {byte: f"={byte:02X}" for byte in range(128, 256)}
_EIGHT_BIT = re.compile(rb"[\x80-\xff]")
_HALF_ESCAPE = re.compile(rb"(?:=[0-9A-Fa-f]?)?\Z")


def has_long_lines(data: bytes) -> bool:
    """Return whether any line, the unfinished last one included, is longer than SMTP allows."""
    place = find_long_line(data)
    while place >= 0:
        stop = data.find(b"\n", place + LINE_MAX)
        if stop != place + LINE_MAX + 1 or data[stop - 1] != 0x0D:
            return True
        # The extra byte is the CR of the line end.
        place = find_long_line(data, stop + 1)
    return False


def find_long_line(data: bytes, start: int = 0) -> int:
    """Return where the first line over LINE_MAX bytes begins, -1 if there is none; `start` is the beginning of a line.

    A CR before LF counts as part of the line here.
    """
    end = len(data)
    while end - start > LINE_MAX:
        # All lines that end within so many bytes are short enough; so at most every second step is a small one.
        newline = data.rfind(b"\n", start, start + LINE_MAX + 1)
        if newline < 0:
            return start
        start = newline + 1
    return -1


def choose_encoding(body: bytes) -> bytes:
    """Return `quoted-printable`, which is readable, or `base64` if that is shorter by more than a line."""
    escaped = sum(len(piece) - len(piece.translate(None, _ESCAPED)) for piece in _pieces(body))
    return b"base64" if 6 * escaped > len(body) + 76 else b"quoted-printable"


def encode_quoted_printable(body: bytes) -> Iterator[bytes]:
    for piece in _pieces(body):
        encoded = _OVERLONG.sub(lambda line: b"=\n".join(_SHORT.findall(line[0])), binascii.b2a_qp(piece))
        if _is_cut(piece):
            last = encoded.rfind(b"\n") + 1
            encoded = encoded[:last] + b"=\n".join(_BREAKABLE.findall(encoded[last:])) + b"=\n"
        yield encoded


def encode_base64(body: bytes) -> Iterator[bytes]:
    """The last line has no line end."""
    left = b""
    between = b""
    for piece in _pieces(body):
        data = left + piece.replace(b"\n", b"\r\n")
        whole = len(data) - len(data) % _BASE64_LINE
        left = data[whole:]
        for start in range(0, whole, _BASE64_LINE):
            yield between + binascii.b2a_base64(data[start : start + _BASE64_LINE], newline=False)
            between = b"\n"
    if left:
        yield between + binascii.b2a_base64(left, newline=False)


def repair_quoted_printable(body: bytes) -> Iterator[bytes]:
    """Repair a quoted-printable body: escape 8-bit bytes, break long lines. It decodes to the same."""
    left = b""
    for piece in _pieces(body):
        data = left + (piece if piece.isascii() else piece.decode("latin-1").translate(_ESCAPES).encode())
        left = b""
        if _is_cut(piece):
            # The cut must not be within an escape.
            whole = len(data) - len(_HALF_ESCAPE.search(data)[0])  # type: ignore[index]
            data, left = data[:whole] + b"=\n", data[whole:]
        yield b"".join([_break(line) for line in data.splitlines(keepends=True)])
    yield left


def wrap_base64(body: bytes) -> Iterator[bytes]:
    """Break long lines of a base64 body, which ignores line ends."""
    for piece in _pieces(body):
        for line in piece.splitlines(keepends=True):
            yield line if len(line) <= 78 else b"\n".join([line[at : at + 76] for at in range(0, len(line), 76)])


def wrap_text(text: bytes) -> Iterator[bytes]:
    """Make text outside of all parts 7-bit, in lines that SMTP allows; 8-bit bytes become `?`."""
    for piece in _pieces(text):
        for line in _EIGHT_BIT.sub(b"?", piece).splitlines(keepends=True):
            yield b"\n".join([line[at : at + LINE_MAX - 1] for at in range(0, len(line), LINE_MAX - 1)])
        if _is_cut(piece):
            yield b"\n"


def _break(line: bytes) -> bytes:
    """Break a line of quoted-printable that is too long, between escapes."""
    if len(line) <= LINE_MAX:
        return line
    end = b"\n" if line.endswith(b"\n") else b""
    return b"=\n".join(_BREAKABLE.findall(line)) + end


def _is_cut(piece: bytes) -> bool:
    """Return whether a piece ends within a line. The last piece may be taken for one that does."""
    return len(piece) == PIECE and not piece.endswith(b"\n")


def _pieces(data: bytes) -> Iterator[bytes]:
    """Yield the data in pieces of whole lines; a line longer than a piece is cut."""
    start = 0
    while start < len(data):
        end = start + PIECE
        if end < len(data):
            end = data.rfind(b"\n", start, end) + 1 or end
        yield data[start:end]
        start = end
