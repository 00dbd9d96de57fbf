"""Message bytes to SMTP's DATA, in chunks of any size: LF becomes CRLF, dots are stuffed (RFC 5321 section 4.5.2).

The stored message has LF line ends. Every LF becomes CRLF, a dot at the start of a line is doubled, a last
line without its LF gets one, and the closing `.` line comes at the end. Every other byte, CR, NUL and 8-bit
included, goes out as it is; so `CR LF` in the file is `CR CR LF` on the wire, and a receiver gets back
exactly what was queued.

SMTP smuggling: a receiver that is not strict may end the message at a lone dot between other line ends than
CRLF, and read commands out of the rest. No bare LF is ever sent, and no dot ever follows an LF alone, so the
only line end left to play with is a bare CR. RFC 5321 section 2.3.8 forbids those, but turning them into
something else would change every message that holds binary bytes. So just the dangerous piece is changed:
a dot alone between a bare CR and a CR or line end is doubled, which a receiver that takes CR for a line
end undoes, and any other shows as one dot more.
"""

import re

END = b".\r\n"

_LONE_DOT = re.compile(rb"\r\.(?=[\r\n])")


class DotStuffer:
    """`feed` takes the message's next bytes and returns what to send; `finish` returns the end of it."""

    __slots__ = ("_held", "_line_start")

    def __init__(self) -> None:
        self._held = b""
        self._line_start = True

    def feed(self, chunk: bytes) -> bytes:
        data = self._held + chunk if self._held else chunk
        if b"\r." in data:
            data = _LONE_DOT.sub(b"\r..", data)
        # What a CR, or a CR and a dot, mean depends on the byte that follows; they wait for it.
        self._held = b"\r" if data.endswith(b"\r") else b"\r." if data.endswith(b"\r.") else b""
        if self._held:
            data = data[: -len(self._held)]
        if not data:
            return b""
        if self._line_start and data.startswith(b"."):
            data = b"." + data
        self._line_start = data.endswith(b"\n")
        return data.replace(b"\n.", b"\n..").replace(b"\n", b"\r\n")

    def finish(self) -> bytes:
        if self._held:
            # The CRLF that is added makes a held dot a lone one.
            return (b"\r..\r\n" if self._held == b"\r." else b"\r\r\n") + END
        return END if self._line_start else b"\r\n" + END
