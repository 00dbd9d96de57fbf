"""Message bytes to SMTP's DATA, in chunks of any size: CRLF line ends, dots stuffed (RFC 5321 section 4.5.2).

LF and CRLF both become CRLF, so a message stored with either arrives as the same lines. Every other CR becomes a
space, each but the last in `CR CR LF` too. A dot at the start of a line is doubled, a last line without its line end
gets one, and the closing `.` line comes at the end. Every other byte, NUL and 8-bit included, goes out as it is.

SMTP smuggling: a receiver that is not strict may end the message at a lone dot between other line ends than CRLF,
and read commands out of the rest. Here CR and LF only ever leave together (RFC 5321 section 2.3.8 forbids anything
else), so there is no other line end to play with. Postfix sends a space in place of a bare CR likewise
(cleanup_replace_stray_cr_lf).
"""

END = b".\r\n"


def normalize(data: bytes) -> bytes:
    """Return bytes of a message with LF for LF and CRLF, and a space for every other CR; it ends with none."""
    return data.replace(b"\r\n", b"\n").replace(b"\r", b" ") if b"\r" in data else data


class DotStuffer:
    """`feed` takes the message's next bytes and returns what to send; `finish` returns the end of it."""

    __slots__ = ("_held", "_line_start")

    def __init__(self) -> None:
        # A CR at the end of a chunk waits for the byte that says what it means.
        self._held = False
        self._line_start = True

    def feed(self, chunk: bytes) -> bytes:
        data = chunk
        if self._held or b"\r" in chunk:
            if self._held:
                data = b"\r" + chunk
            self._held = data.endswith(b"\r")
            data = normalize(data[:-1] if self._held else data)
        if not data:
            return b""
        if self._line_start and data.startswith(b"."):
            data = b"." + data
        self._line_start = data.endswith(b"\n")
        if b"\n." in data:
            data = data.replace(b"\n.", b"\n..")
        return data.replace(b"\n", b"\r\n")

    def finish(self) -> bytes:
        if self._held:
            return b" \r\n" + END
        return END if self._line_start else b"\r\n" + END
