"""What SMTP has to know of a message's bytes, found in chunks of any size.

8-bit bytes in the body, 8-bit bytes in the header, the size as SMTP counts it (RFC 1870), and lines that are longer
than SMTP allows (RFC 5321 section 4.5.3.1.6), both as they are on the wire: a line end is CR and LF there, any other CR
is a space (queue_smtp.dotstuff), and the dots that are doubled do not count. The cost is that of the bytes.
"""

import re
from typing import NamedTuple

# Octets, without the line end.
LINE_MOST = 998

_BLANK_LINE = re.compile(rb"\n\r?\n")


class Facts(NamedTuple):
    """The header ends at the first blank line. `long_lines` is False where nobody asked for it.

    `wire_size` is in bytes, with CRLF line ends, without the closing dot and the doubled ones (RFC 1870 section 5).
    """

    body_eight_bit: bool = False
    header_eight_bit: bool = False
    long_lines: bool = False
    wire_size: int = 0

    @property
    def eight_bit(self) -> bool:
        return self.body_eight_bit or self.header_eight_bit


class Scan:
    """`feed` takes the message's next bytes, `facts` ends it."""

    __slots__ = ("_before", "_body", "_header", "_in_header", "_last", "_line", "_lines", "_long", "_size")

    def __init__(self, lines: bool) -> None:
        """`lines`: whether to look for long ones."""
        self._body = self._header = self._long = False
        self._in_header = True
        self._lines = lines
        # What may be the first half of a blank line. One may be the very first line.
        self._before = b"\n"
        self._line = b""
        self._last = b""
        self._size = 0

    def feed(self, chunk: bytes) -> None:
        self._count(chunk)
        if self._in_header:
            self._feed_header(chunk)
        elif not self._body:
            self._body = not chunk.isascii()
        if self._lines and not self._long:
            data = self._line + chunk
            start = data.rfind(b"\n") + 1
            self._line = data[start:]
            # Two bytes more than a line may have: its last could be the CR of its line end.
            self._long = len(self._line) > LINE_MOST + 1 or has_long_lines(data[:start])

    def facts(self) -> Facts:
        # The last line gets its line end, as on the wire.
        size = self._size + (2 if self._last not in (b"", b"\n") else 0)
        return Facts(self._body, self._header, self._long or has_long_lines(self._line), size)

    def _count(self, chunk: bytes) -> None:
        if chunk:
            self._size += len(chunk) + chunk.count(b"\n")
            if b"\r" in chunk or self._last == b"\r":
                self._size -= chunk.count(b"\r\n") + (self._last == b"\r" and chunk.startswith(b"\n"))
            self._last = chunk[-1:]

    def _feed_header(self, chunk: bytes) -> None:
        data = self._before + chunk
        blank = _BLANK_LINE.search(data)
        if blank is None:
            self._header = self._header or not chunk.isascii()
            self._before = data[-2:]
            return
        self._in_header = False
        self._header = self._header or not data[: blank.end()].isascii()
        self._body = not data[blank.end() :].isascii()


def has_long_lines(data: bytes) -> bool:
    """Whether whole lines, and what follows the last, are longer than SMTP allows."""
    place = find_long_line(data)
    while place >= 0:
        stop = data.find(b"\n", place + LINE_MOST)
        if stop != place + LINE_MOST + 1 or data[stop - 1] != 0x0D:
            return True
        # The byte too many is the CR of the line end.
        place = find_long_line(data, stop + 1)
    return False


def find_long_line(data: bytes, start: int = 0) -> int:
    """Return where the first line over LINE_MOST bytes begins, from the beginning of a line on; -1 for none.

    A CR before LF counts as a part of the line here.
    """
    end = len(data)
    while end - start > LINE_MOST:
        # All lines that end in so many bytes are short enough, so only every second step can be a small one.
        newline = data.rfind(b"\n", start, start + LINE_MOST + 1)
        if newline < 0:
            return start
        start = newline + 1
    return -1
