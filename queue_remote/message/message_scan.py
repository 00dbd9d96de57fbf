"""Finds the properties of a message that SMTP needs to know, in one pass over its bytes.

They are: 8-bit bytes in the header, and whether they are UTF-8; 8-bit bytes in the body, the size as SMTP counts it
(RFC 1870), and lines that are longer than SMTP allows (RFC 5321 section 4.5.3.1.6). All are those of the message on
the wire: a line ends with CR LF, any other CR is sent as a space (queue_smtp.dotstuff), and doubled dots do not count.

A small message is one read, which its sending uses too. A large one is scanned in slices, between which other
deliveries continue, and its facts are kept, because jobs for its other destinations follow soon.
"""

import asyncio
import codecs
import re
from typing import NamedTuple

from queue_remote.message.encoding import LINE_MAX, has_long_lines
from queue_remote.message.file import CHUNK, Message

KEPT_MAX = 1000

_BLANK_LINE = re.compile(rb"\n\r?\n")
_new_decoder = codecs.getincrementaldecoder("utf-8")
_Identity = tuple[int, ...]


class Facts(NamedTuple):
    """The properties of a message that SMTP needs. The header ends at the first blank line.

    `header_utf8` is whether the header has 8-bit bytes, all of them UTF-8. `long_lines` is False if they were not
    looked for. `wire_size` is in bytes, with CRLF line ends, without the final dot and the doubled dots (RFC 1870
    section 5).
    """

    body_eight_bit: bool = False
    header_eight_bit: bool = False
    long_lines: bool = False
    wire_size: int = 0
    header_utf8: bool = False

    @property
    def eight_bit(self) -> bool:
        return self.body_eight_bit or self.header_eight_bit


class MessageScan:
    """One scan: `feed` takes the next bytes of the message, `facts` ends it."""

    __slots__ = (
        *("_before", "_body", "_decoder", "_header", "_in_header", "_last", "_line", "_lines", "_long", "_size"),
        "_utf8",
    )

    def __init__(self, lines: bool) -> None:
        """`lines` is whether to look for long lines."""
        self._body = self._header = self._long = False
        self._in_header = self._utf8 = True
        # A character may begin in one chunk and end in the next.
        self._decoder = _new_decoder()
        self._lines = lines
        # The end of the last chunk, which may be the first half of a blank line; the first line may be blank too.
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
            # One byte more than LINE_MAX may be the CR of the line end.
            self._long = len(self._line) > LINE_MAX + 1 or has_long_lines(data[:start])

    def facts(self) -> Facts:
        # On the wire the last line gets a line end.
        size = self._size + (2 if self._last not in (b"", b"\n") else 0)
        utf8 = self._header and self._utf8 and not self._decoder.getstate()[0]
        return Facts(self._body, self._header, self._long or has_long_lines(self._line), size, utf8)

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
            self._decode(chunk)
            self._before = data[-2:]
            return
        self._in_header = False
        self._decode(data[len(self._before) : blank.end()])
        self._body = not data[blank.end() :].isascii()

    def _decode(self, header: bytes) -> None:
        self._header = self._header or not header.isascii()
        if self._header and self._utf8:
            try:
                self._decoder.decode(header)
            except UnicodeDecodeError:
                self._utf8 = False


class Scans:
    """Finds the facts of messages, once for all deliveries of one; `lines` is whether to look for long lines."""

    __slots__ = ("_found", "_lines")

    def __init__(self, lines: bool) -> None:
        self._lines = lines
        self._found: dict[_Identity, asyncio.Task[Facts]] = {}

    async def find(self, message: Message) -> Facts:
        """Return the facts of a message that was not read yet. Raises OSError."""
        if message.size <= CHUNK:
            scan = MessageScan(self._lines)
            scan.feed(message.first())
            return scan.facts()
        name = message.identity()
        found = self._found.pop(name, None)
        if found is None or _has_failed(found):
            found = self._found[name] = asyncio.get_running_loop().create_task(_scan(message, self._lines))
            while len(self._found) > KEPT_MAX:
                del self._found[next(iter(self._found))]
            return await found
        self._found[name] = found
        return await asyncio.shield(found)


async def _scan(message: Message, lines: bool) -> Facts:
    scan = MessageScan(lines)
    offset = 0
    while chunk := message.read_at(CHUNK, offset):
        scan.feed(chunk)
        offset += len(chunk)
        await asyncio.sleep(0)
    return scan.facts()


def _has_failed(task: asyncio.Task[Facts]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)
