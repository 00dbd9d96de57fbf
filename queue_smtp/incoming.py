"""A message while the server receives it (DATA, BDAT, QMTP): its text for the queue, and what is wrong with it.

The queue has LF line ends. Text is passed on as it comes, so memory does not depend on the size of a message. Once
something is wrong no more text comes, but all of the message is read, since its end is the only place for a reply.
`fault` is the same whatever the pieces in which the message comes.

SMTP smuggling: a bare CR or LF means that two servers may not agree where lines end, and so where a message ends. Such
a message is refused, unless the limits say that bare line ends are accepted. Then LF is a line end of the queue's, and
CR a byte like others; DATA still ends with CRLF.CRLF alone.
"""

from typing import NamedTuple

from queue_smtp.dotstuff import DotUnstuffer
from queue_smtp.header_scan import HOPS_MAX, HeaderScan
from queue_smtp.server_replies import (
    BARE_LINE_END,
    HEADER_TOO_LARGE,
    TEXT_LINE_TOO_LONG,
    TOO_LARGE,
    TOO_MANY_FIELDS,
    TOO_MANY_HOPS,
    ServerReply,
)

# A client that goes on sending after the limit on the size is heard until it has sent this many times the limit.
_EXCESS = 2
_EXCESS_MIN = 1 << 20


class MessageLimits(NamedTuple):
    """What a message may have; sizes are in bytes. 0 is no limit on `size`, which counts as RFC 1870
    does, with CRLF, and on `fields`.

    RFC 5321 section 4.5.3.1.6 has servers take text lines of 1,000 bytes, and mail with longer ones is common.
    """

    size: int = 0
    hops: int = HOPS_MAX
    header: int = 1 << 20
    fields: int = 0
    text_line: int = 1 << 20
    bare_line_ends: bool = False


class IncomingMessage:
    """One message. `size` is what was received, with CRLF; `excessive`: it is useless to read on."""

    __slots__ = ("_bare", "_header", "_held", "_limits", "_line", "_longest", "_unstuffer", "size")

    def __init__(self, limits: MessageLimits) -> None:
        self.size = 0
        self._limits = limits
        self._unstuffer = DotUnstuffer()
        self._header = HeaderScan()
        # A CR at the end of a chunk.
        self._held = b""
        self._bare = False
        # The length of the line that has no end yet, and of the longest one of those that could be too long.
        self._line = 0
        self._longest = 0

    @property
    def fault(self) -> ServerReply | None:
        """The reply to the message if something is wrong with it; what counts first is named first."""
        limits = self._limits
        if self._bare and not limits.bare_line_ends:
            return BARE_LINE_END
        if limits.size and self.size > limits.size:
            return TOO_LARGE
        if self._header.hops > limits.hops:
            return TOO_MANY_HOPS
        if self._header.size > limits.header:
            return HEADER_TOO_LARGE
        if limits.fields and self._header.fields > limits.fields:
            return TOO_MANY_FIELDS
        if self._longest > limits.text_line:
            return TEXT_LINE_TOO_LONG
        return None

    @property
    def excessive(self) -> bool:
        """Whether the message is so far over the limit on its size that the connection should end."""
        size = self._limits.size
        return bool(size) and self.size > max(_EXCESS * size, _EXCESS_MIN)

    def feed_data(self, data: bytes) -> tuple[bytes, bytes | None]:
        """Take bytes behind DATA; return (text, None), or (text, what follows) with the end of the message."""
        unstuffer = self._unstuffer
        text = self._take(unstuffer.feed(data))
        return text, unstuffer.rest if unstuffer.ended else None

    def feed_chunk(self, data: bytes, last: bool) -> bytes:
        """Take bytes of a chunk of BDAT; return text. `last`: they are the last ones of the message."""
        data = self._held + data
        self._held = b""
        if not last and data.endswith(b"\r"):
            # The next byte says whether it is a bare one.
            data, self._held = data[:-1], b"\r"
        return self._take(data)

    def feed_lines(self, text: bytes) -> bytes:
        """Take text with LF line ends, as QMTP has it; return text."""
        line_ends = text.count(b"\n")
        self.size += len(text) + line_ends
        if b"\r" in text:
            self._bare = True
        return self._check(text, line_ends)

    def _take(self, wire: bytes) -> bytes:
        self.size += len(wire)
        text = wire.replace(b"\r\n", b"\n")
        line_ends = text.count(b"\n")
        if len(wire) - len(text) != line_ends or b"\r" in text:
            self._bare = True
        return self._check(text, line_ends)

    def _check(self, text: bytes, line_ends: int) -> bytes:
        self._measure(text, line_ends)
        if not self._header.over:
            self._header.feed(text)
        return b"" if self.fault else text

    def _measure(self, text: bytes, line_ends: int) -> None:
        if not line_ends:
            self._line += len(text)
            self._longest = max(self._longest, self._line)
            return
        if self._line + len(text) > self._limits.text_line:
            first, *others = text.split(b"\n")
            self._longest = max(self._longest, self._line + len(first), *[len(line) for line in others])
        self._line = len(text) - text.rfind(b"\n") - 1
