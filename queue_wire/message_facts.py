"""What SMTP has to know of a message's bytes, found in chunks of any size.

8-bit bytes in the body, 8-bit bytes in the header, and lines that are longer than SMTP allows (RFC 5321 section
4.5.3.1.6) once they are on the wire: a CR before LF belongs to the line end there, any other is a space
(queue_wire.dotstuff), and the dots that are doubled do not count.
"""

import re
from typing import NamedTuple

# Octets, without the line end.
LINE_MOST = 998

_BLANK_LINE = re.compile(rb"\n\r?\n")
_LONG = re.compile(rb"^[^\n]{%d}(?:[^\r\n]|\r(?!\n))" % LINE_MOST, re.MULTILINE)


class Facts(NamedTuple):
    """The header ends at the first blank line. `long_lines` is False where nobody asked for it."""

    body_eight_bit: bool = False
    header_eight_bit: bool = False
    long_lines: bool = False

    @property
    def eight_bit(self) -> bool:
        return self.body_eight_bit or self.header_eight_bit


class Scan:
    """`feed` takes the message's next bytes; `known` once more of them would not change anything. `facts` ends it."""

    __slots__ = ("_before", "_body", "_header", "_in_header", "_line", "_lines", "_long")

    def __init__(self, lines: bool) -> None:
        """`lines`: whether to look for long ones."""
        self._body = self._header = self._long = False
        self._in_header = True
        self._lines = lines
        # What may be the first half of a blank line. One may be the very first line.
        self._before = b"\n"
        self._line = b""

    @property
    def known(self) -> bool:
        return self._body and (self._long or not self._lines)

    def feed(self, chunk: bytes) -> None:
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
        return Facts(self._body, self._header, self._long or has_long_lines(self._line))

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
    # The pattern is slow, and hardly any chunk gets so far.
    return len(data) > LINE_MOST and max(map(len, data.split(b"\n"))) > LINE_MOST and _LONG.search(data) is not None
