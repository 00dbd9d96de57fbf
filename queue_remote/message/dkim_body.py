"""A stored message's body as DKIM's relaxed canonicalization has it (RFC 6376 section 3.4.4), in chunks of any size.

What is signed is what goes on the wire: LF and CRLF both as CRLF, every other CR as a space. Then spaces and tabs
become one space, those at the end of a line go, and so do empty lines at the end of the body.
"""

import re
from collections.abc import Callable

_SPACES = re.compile(rb"[ \t]+")
# Empty lines are counted, and handed on in pieces no larger than this many.
_LINES = 4096


class RelaxedBody:
    """`feed` takes the body's next bytes, `finish` its end; `put` gets the canonical body, in pieces."""

    __slots__ = ("_begun", "_ends", "_held", "_put")

    def __init__(self, put: Callable[[bytes], object]) -> None:
        self._put = put
        # What a space or a CR at the end of a chunk is depends on what follows.
        self._held = b""
        # Line ends that count only if something comes after them.
        self._ends = 0
        self._begun = False

    def feed(self, chunk: bytes) -> None:
        data = self._held + chunk if self._held else chunk
        self._held = b""
        if data.endswith(b"\r"):
            data = data[:-1]
            self._held = b"\r"
        if b"\r" in data:
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b" ")
        data = _SPACES.sub(b" ", data).replace(b" \n", b"\n")
        if data.endswith(b" "):
            data = data[:-1]
            self._held = b" " + self._held
        lines = data.rstrip(b"\n")
        if lines:
            self._put_ends()
            self._put(lines.replace(b"\n", b"\r\n"))
            self._begun = True
        self._ends += len(data) - len(lines)

    def finish(self) -> None:
        """The last line gets its CRLF, as on the wire; a body of empty lines is empty."""
        if self._begun:
            self._put(b"\r\n")

    def _put_ends(self) -> None:
        while self._ends > 0:
            self._put(b"\r\n" * min(self._ends, _LINES))
            self._ends -= _LINES
        self._ends = 0
