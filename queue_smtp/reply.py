"""SMTP replies (RFC 5321 section 4.2): a reader of the bytes that a server sends.

A reply is one or more lines `CODE-text`, the last one `CODE text` or `CODE`. A line may end in LF alone, and its text
may be any bytes, since some servers send both. A long line is cut. Bytes that cannot be a reply raise FormatError, and
so do replies over the limits below. After that the caller must close the connection.

Where one reply alone is awaited, the caller may ask for it `loosely`: what has no code is skipped, `250ok` is a reply,
and of several codes the last one counts.
"""

import re
from typing import NamedTuple

from queue_wire.format_error import FormatError, quoted

# RFC 5321 section 4.5.3.1.5 allows 512 bytes; servers that quote a policy exceed it. The rest of a line is cut off.
LINE_MAX = 8192
# All lines of one reply, with what is skipped before them. Only the first TEXT_MAX bytes are kept for its text.
REPLY_MAX = 65536
# Lines that were received and not yet read. The replies to all pipelined commands have far fewer.
LINES_MAX = 4096
TEXT_MAX = 10000

_CONTROLS = bytes(0x3F if byte == 127 or (byte < 32 and byte != 10) else byte for byte in range(256))
_LF = b"\n"
_LINE = re.compile(rb"([2-5][0-9][0-9])(?:([ -]).*)?", re.DOTALL)
_LOOSE_LINE = re.compile(rb"([2-5][0-9][0-9])(?![0-9])")
# By the number of replies before the 354.
_ACCEPTED: dict[int, re.Pattern[bytes]] = {}


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
    """`feed` stores bytes. `next` returns a Reply, or None if more bytes are needed. Raises FormatError.

    `loose`: one of the replies so far was not strict.
    """

    __slots__ = ("_at", "_buffer", "_flooded", "_text", "_total", "loose")

    def __init__(self) -> None:
        self._buffer = b""
        # What is before this place was read.
        self._at = 0
        self._flooded = False
        # The lines of a reply that is not complete.
        self._text: list[bytes] = []
        self._total = 0
        self.loose = False

    def feed(self, data: bytes) -> None:
        buffer = self._buffer
        self._buffer = data if self._at == len(buffer) else buffer[self._at :] + data
        self._at = 0
        self._flooded = len(self._buffer) > LINES_MAX and self._buffer.count(b"\n") > LINES_MAX

    @property
    def pending(self) -> bool:
        """Whether there are bytes that belong to no reply yet."""
        return self._at < len(self._buffer)

    def next(self, loosely: bool = False) -> Reply | None:
        """Return the next reply, None if it is not complete. Raises FormatError."""
        buffer = self._buffer
        if self._flooded:
            raise FormatError(f"over {LINES_MAX} lines of SMTP replies at once: {quoted(buffer.partition(_LF)[0])}")
        found = None
        while (end := buffer.find(b"\n", self._at)) >= 0:
            line = buffer[self._at : end].replace(b"\r", b"")
            if len(line) > LINE_MAX:
                self._count(line)
                line = line[:LINE_MAX]
            match = _LINE.fullmatch(line)
            if match is None:
                if not loosely:
                    raise FormatError(f"not an SMTP reply: {quoted(line)}")
                found = self._next_loose(line) or found
                self._at = end + 1
                continue
            self._at = end + 1
            code, dash = match.groups()
            if dash != b"-" and not self._text:
                # Most replies have one line. LINE_MAX is less than TEXT_MAX.
                self._total = 0
                return Reply(int(code), clean(line))
            self._keep(line, loosely)
            if dash != b"-":
                return self._reply(int(code))
        if len(buffer) - self._at > REPLY_MAX:
            raise FormatError(f"SMTP reply over {REPLY_MAX} bytes: {quoted(buffer[self._at :])}")
        return found

    def _next_loose(self, line: bytes) -> Reply | None:
        """Return the reply that a line ends which is not strict, None if it has no code.

        It counts if no strict one has come with it: the line may be a part of that one's text.
        """
        self.loose = True
        match = _LOOSE_LINE.match(line)
        if match is None:
            self._count(line)
            return None
        self._keep(line, True)
        return self._reply(int(match[1]))

    def skip_accepted(self, count: int) -> bool:
        """Skip `count` replies 2xx and a 354, if all of them are there and have one line each; return whether.

        They are those to an envelope, whose texts say nothing that counts.
        """
        if self._text or self._flooded:
            return False
        pattern = _ACCEPTED.get(count)
        if pattern is None:
            # Possessive: a line matches in one way only. With two, a refusal behind N lines would take 2 ** N steps.
            pattern = re.compile(rb"(?:2[0-9][0-9](?: [^\n]*+|\r)?+\n){%d}+354(?: [^\n]*+|\r)?+\n" % count)
            _ACCEPTED[count] = pattern
        match = pattern.match(self._buffer, self._at)
        if match is None or match.end() - self._at > LINE_MAX:
            return False
        self._at = match.end()
        return True

    def _keep(self, line: bytes, loosely: bool) -> None:
        # Codes of two classes in one reply contradict each other. Two codes of one class (250, then 251) are common
        # and harmless: the last line counts.
        if self._text and self._text[0][:1] != line[:1]:
            if not loosely:
                raise FormatError(f"SMTP reply of two codes: {quoted(self._text[0])}, then {quoted(line)}")
            self.loose = True
        self._count(line)
        self._text.append(line)

    def _count(self, line: bytes) -> None:
        """Count a line of a reply. Raises FormatError if it is over the limit."""
        self._total += len(line) + 1
        if self._total > REPLY_MAX:
            raise FormatError(f"SMTP reply over {REPLY_MAX} bytes: {quoted(line)}")

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
