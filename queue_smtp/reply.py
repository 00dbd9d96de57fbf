"""SMTP replies (RFC 5321 section 4.2): a reader of the bytes that a server sends.

A reply is one or more lines `CODE-text`, the last one `CODE text` or `CODE`. A line may end in LF alone, and its text
may be any bytes, since some servers send both. Bytes that cannot be a reply raise FormatError, and so do lines and
replies over the limits below. After that the caller must close the connection.
"""

import re
from collections import deque
from typing import NamedTuple

from queue_wire.format_error import FormatError, quoted

# RFC 5321 section 4.5.3.1.5 allows 512 bytes; servers that quote a policy exceed it.
LINE_MAX = 8192
# All lines of one reply. Only the first TEXT_MAX bytes are kept for its text.
REPLY_MAX = 65536
# Lines that were received and not yet read. The replies to all pipelined commands have far fewer.
LINES_MAX = 4096
TEXT_MAX = 10000

_CONTROLS = bytes(0x3F if byte == 127 or (byte < 32 and byte != 10) else byte for byte in range(256))
_LINE = re.compile(rb"([2-5][0-9][0-9])(?:([ -])(.*))?", re.DOTALL)


class Reply(NamedTuple):
    """One reply: its code, 200 to 599, and its lines with the codes, joined by newlines, without control characters."""

    code: int
    text: bytes

    @property
    def accepted(self) -> bool:
        """2xx: the command succeeded."""
        return self.code < 300

    @property
    def intermediate(self) -> bool:
        """3xx: the server waits for more input to the command."""
        return 300 <= self.code < 400

    @property
    def permanent(self) -> bool:
        """5xx: the same command will fail again."""
        return self.code >= 500


class ReplyReader:
    """`feed` stores bytes. `next` returns a Reply, or None if more bytes are needed. Raises FormatError."""

    __slots__ = ("_lines", "_rest", "_text", "_total")

    def __init__(self) -> None:
        self._lines: deque[bytes] = deque()
        self._rest = b""
        self._text: list[bytes] = []
        self._total = 0

    def feed(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._lines.extend(lines)

    @property
    def pending(self) -> bool:
        """Whether there are bytes that belong to no reply yet."""
        return bool(self._lines or self._rest)

    def next(self) -> Reply | None:
        if len(self._lines) > LINES_MAX:
            raise FormatError(f"over {LINES_MAX} lines of SMTP replies at once: {quoted(self._lines[0])}")
        while self._lines:
            line = self._lines.popleft().replace(b"\r", b"")
            match = _LINE.fullmatch(line)
            if match is None or len(line) > LINE_MAX:
                raise FormatError(f"not an SMTP reply: {quoted(line)}")
            if match[2] != b"-" and not self._text:
                # Most replies have one line. LINE_MAX is less than TEXT_MAX.
                return Reply(int(match[1]), clean(line))
            self._keep(line)
            if match[2] != b"-":
                return self._reply(int(match[1]))
        if len(self._rest) > LINE_MAX:
            raise FormatError(f"SMTP reply line over {LINE_MAX} bytes: {quoted(self._rest)}")
        return None

    def _keep(self, line: bytes) -> None:
        # Codes of two classes in one reply contradict each other. Two codes of one class (250, then 251) are common
        # and harmless: the last line counts.
        if self._text and self._text[0][:1] != line[:1]:
            raise FormatError(f"SMTP reply of two codes: {quoted(self._text[0])}, then {quoted(line)}")
        self._total += len(line) + 1
        if self._total > REPLY_MAX:
            raise FormatError(f"SMTP reply over {REPLY_MAX} bytes: {quoted(line)}")
        self._text.append(line)

    def _reply(self, code: int) -> Reply:
        text = b"\n".join(self._text)
        self._text = []
        self._total = 0
        return Reply(code, clean(text[:TEXT_MAX]))


def clean(text: bytes) -> bytes:
    """Return a text for a log or a bounce, with `?` for control characters and for bytes that are not UTF-8."""
    text = text.translate(_CONTROLS)
    if text.isascii():
        return text
    shown = text.decode("utf-8", "replace").replace("\ufffd", "?")
    return "".join([char if char.isprintable() or char == "\n" else "?" for char in shown]).encode()
