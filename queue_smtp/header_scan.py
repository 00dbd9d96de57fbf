"""A look at the header of a message while it is received: its size, its fields, and the hosts that it has come through.

A hop is a field `Received:` or `Delivered-To:`, as qmail-smtpd counts them. The header ends at the first empty line.
The same message gives the same numbers, whatever the pieces it comes in.
"""

import re

# The most hops of a message that does not go round in a circle: qmail-smtpd's.
HOPS_MAX = 100
# Both have the same length, so no match fits in what is kept of the piece before.
_HOP = re.compile(rb"\n(?:received:|delivered)", re.IGNORECASE)
_KEPT = 9


class HeaderScan:
    """`feed` takes text with LF line ends. `hops`, `fields` and `size` (in bytes) are those of all that was fed."""

    __slots__ = ("_tail", "fields", "hops", "over", "size")

    def __init__(self) -> None:
        self.hops = 0
        self.fields = 0
        self.size = 0
        self.over = False
        # A message that begins with an empty line has no header.
        self._tail = b"\n"

    def feed(self, text: bytes) -> None:
        if self.over:
            return
        known = len(self._tail)
        text = self._tail + text
        end = text.find(b"\n\n")
        if end >= 0:
            self.over = True
            text = text[: end + 1]
        self.size += max(0, len(text) - known)
        # A line end whose next byte is new begins a field, unless that byte continues the one before.
        begin = known - 1
        folded = text.count(b"\n ", begin) + text.count(b"\n\t", begin)
        self.fields += text.count(b"\n", begin, len(text) - 1) - folded
        self.hops += sum([1 for _ in _HOP.finditer(text)])
        self._tail = text[-_KEPT:]
