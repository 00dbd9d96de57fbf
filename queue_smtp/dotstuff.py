"""Dot-stuffing: a message as the data that follows DATA, in chunks of any size (RFC 5321 section 4.5.2).

`DotStuffer` is for the client, `DotUnstuffer` for the server.

LF and CRLF become CRLF. Every other CR becomes a space, also each CR but the last in `CR CR LF`. A dot at the start
of a line is doubled, a last line without a line end gets one, and a line with a single dot ends the message. All other
bytes, NUL and 8-bit bytes included, are sent unchanged.

SMTP smuggling: a receiver that is not strict may take a single dot between other line ends than CRLF for the end of
the message, and the rest for commands. DotUnstuffer takes no other end than `CRLF.CRLF`. DotStuffer sends CR and LF
only together, as RFC 5321 section 2.3.8 demands, so there are no other line ends. Postfix replaces a bare CR by a space
too (cleanup_replace_stray_cr_lf).
"""

END = b".\r\n"


def normalize(data: bytes) -> bytes:
    """Return `data` with LF for CRLF and a space for every other CR. A CR may not be the last byte if more follow."""
    return data.replace(b"\r\n", b"\n").replace(b"\r", b" ") if b"\r" in data else data


def stuff(message: bytes) -> bytes:
    """Return a whole message as it is sent, with the final dot."""
    data = normalize(message)
    if b"\n." in data or data.startswith(b"."):
        stuffer = DotStuffer()
        return stuffer.feed(data) + stuffer.finish()
    wire = data.replace(b"\n", b"\r\n")
    return wire + END if not data or data.endswith(b"\n") else wire + b"\r\n" + END


class DotStuffer:
    """`feed` takes the next bytes of the message and returns the bytes to send; `finish` returns the last ones."""

    __slots__ = ("_held", "_line_start")

    def __init__(self) -> None:
        # The last byte of the chunk before was a CR: the next byte decides what becomes of it.
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


class DotUnstuffer:
    """`feed` takes bytes from a client and returns text of the message, with CRLF line ends and without dots doubled.

    A piece of text never ends between CR and LF. `ended`: the end was found, and `rest` is what came behind it. Nothing
    is checked: a bare CR or LF is in the text as it came.
    """

    __slots__ = ("_at_start", "_held", "ended", "rest")

    def __init__(self) -> None:
        # The first line is treated as what follows a line end. The bytes that are held could become a part of the end.
        self._held = b"\r\n"
        self._at_start = True
        self.ended = False
        self.rest = b""

    def feed(self, data: bytes) -> bytes:
        data = self._held + data
        end = data.find(_END_OF_DATA)
        if end >= 0:
            self.ended = True
            self.rest = data[end + len(_END_OF_DATA) :]
            text = data[: end + 2]
        else:
            held = _held_length(data)
            self._held = data[len(data) - held :]
            text = data[: len(data) - held]
        if b"\r\n." in text:
            text = text.replace(b"\r\n.", b"\r\n")
        if self._at_start and text:
            self._at_start = False
            return text[2:]
        return text


_END_OF_DATA = b"\r\n" + END


def _held_length(data: bytes) -> int:
    """Return how many of the last bytes could become a part of the end."""
    for length in (4, 3, 2, 1):
        if data.endswith(_END_OF_DATA[:length]):
            return length
    return 0
