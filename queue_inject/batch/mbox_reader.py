"""Reads messages from an mbox (mbox(5)): a `From ` line precedes each message, an empty line follows it.

As in qmail's manual, any line that begins with `From ` separates messages, and its contents are ignored (git writes
hashes there). Quoting is undone: mboxrd puts one more `>` before each line that is `From ` after any number of `>`, so
one `>` is removed from all of these; mboxo quotes `From ` only, so it is removed from `>From ` only. Lines end in LF or
CRLF, and their ends are kept. Text before the first `From ` line makes one bad message.
"""

import re

from queue_inject.batch.pieces import BatchReader, EndOfMessage, Piece
from queue_wire.format_error import quoted

MBOXRD = re.compile(rb"^>(>*From )", re.MULTILINE)
MBOXO = re.compile(rb"^>(From )", re.MULTILINE)
# Up to this length a whole line is examined, of a longer one only the beginning.
LINE_MAX = 65536
_FROM = b"From "
_BLANK = (b"\n", b"\r\n")


class MboxReader(BatchReader):
    """Reads mboxrd or mboxo: `quoting` is MBOXRD or MBOXO."""

    def __init__(self, quoting: re.Pattern[bytes] = MBOXRD) -> None:
        self._quoting = quoting
        self._rest = b""
        # An empty line is held until it is known whether it belongs to the message or follows it.
        self._blank = b""
        self._within = False
        self._strange = b""
        # Whether the input is within a line over LINE_MAX, and whether that line is dropped.
        self._middle = False
        self._dropping = False

    def feed(self, data: bytes) -> list[Piece]:
        pieces: list[Piece] = []
        data = self._rest + data
        if self._middle:
            data = self._continue_line(pieces, data)
        end = data.rfind(b"\n") + 1
        if end:
            self._lines(pieces, data[:end])
        self._rest = data[end:]
        if len(self._rest) > LINE_MAX:
            self._long_line(pieces)
        return pieces

    def finish(self) -> list[Piece]:
        pieces: list[Piece] = []
        if self._rest:
            self._lines(pieces, self._rest)
        self._end(pieces)
        return pieces

    def _lines(self, pieces: list[Piece], block: bytes) -> None:
        """Read whole lines."""
        place = 0
        if not block.startswith(_FROM):
            place = block.find(b"\n" + _FROM) + 1
            self._text(pieces, block[:place] if place else block)
            if not place:
                return
        while True:
            self._end(pieces)
            self._within = True
            start = block.find(b"\n", place) + 1
            if not start:
                return  # The input ends within this line.
            if block.startswith(_FROM, start):
                place = start
                continue
            place = block.find(b"\n" + _FROM, start) + 1
            self._text(pieces, block[start:place] if place else block[start:])
            if not place:
                return

    def _text(self, pieces: list[Piece], text: bytes) -> None:
        """Read lines of a message, the last of which may be empty."""
        if not self._within:
            text = text.lstrip(b"\r\n")
            if text and not self._strange:
                self._strange = text[:80].split(b"\n")[0]
            return
        if b">From " in text:
            text = self._quoting.sub(rb"\1", text)
        if self._blank:
            text, self._blank = self._blank + text, b""
        if text in _BLANK:
            text, self._blank = b"", text
        elif text.endswith(b"\n\n"):
            text, self._blank = text[:-1], b"\n"
        elif text.endswith(b"\n\r\n"):
            text, self._blank = text[:-2], b"\r\n"
        if text:
            pieces.append(text)

    def _end(self, pieces: list[Piece]) -> None:
        self._blank = b""
        if self._within:
            pieces.append(EndOfMessage())
        elif self._strange:
            pieces.append(EndOfMessage(error=f"expected a line that begins with 'From ', got {quoted(self._strange)}"))
        self._within, self._strange = False, b""

    def _long_line(self, pieces: list[Piece]) -> None:
        """Read the beginning of a line that has not ended yet."""
        line, self._rest = self._rest, b""
        self._middle = True
        self._dropping = line.startswith(_FROM)
        if self._dropping:
            self._end(pieces)
            self._within = True
        else:
            self._text(pieces, line)

    def _continue_line(self, pieces: list[Piece], data: bytes) -> bytes:
        """Read the next part of a long line; return the bytes after the line."""
        end = data.find(b"\n") + 1
        line = data[:end] if end else data
        self._middle = not end
        if line and self._within and not self._dropping:
            pieces.append(line)
        return data[end:] if end else b""
