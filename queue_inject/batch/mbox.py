"""Messages out of an mbox (mbox(5)): a line that begins with `From ` comes before each, an empty one after it.

Any such line divides, as qmail's manual has it, and what it says is dropped: git writes hashes there. Lines that
begin with `>From ` were quoted: mboxrd quotes with one more `>` each line that is `From ` after any number of them, so
one `>` goes from all of these; mboxo quotes `From ` alone, so it goes from `>From ` alone. Lines end in LF or
CRLF, and stay as they are.
"""

import re

from queue_inject.batch.format import BatchReader, End
from queue_wire.format_error import quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from queue_inject.batch.format import Piece

MBOXRD = re.compile(rb"^>(>*From )", re.MULTILINE)
MBOXO = re.compile(rb"^>(From )", re.MULTILINE)
# A line is looked at whole. Of a longer one the beginning decides, which is enough for any that somebody wrote.
LINE_MOST = 65536
_FROM = b"From "
_BLANK = (b"\n", b"\r\n")


class MboxReader(BatchReader):
    """`quoting` is MBOXRD or MBOXO."""

    rewritten = True

    def __init__(self, quoting: "re.Pattern[bytes]" = MBOXRD) -> None:
        self._quoting = quoting
        self._rest = b""
        # An empty line is held until it is known whether it belongs to the message or comes after it.
        self._blank = b""
        self._within = False
        self._strange = b""
        # Within a line that was too long to wait for its end; and whether it goes.
        self._middle = False
        self._dropping = False

    def feed(self, data: bytes) -> "list[Piece]":
        pieces: list[Piece] = []
        data = self._rest + data
        if self._middle:
            data = self._line_goes_on(pieces, data)
        end = data.rfind(b"\n") + 1
        if end:
            self._lines(pieces, data[:end])
        self._rest = data[end:]
        if len(self._rest) > LINE_MOST:
            self._long_line(pieces)
        return pieces

    def finish(self) -> "list[Piece]":
        pieces: list[Piece] = []
        if self._rest:
            self._lines(pieces, self._rest)
        self._end(pieces)
        return pieces

    def _lines(self, pieces: "list[Piece]", block: bytes) -> None:
        """Take whole lines."""
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
                return  # The input ends in this line.
            if block.startswith(_FROM, start):
                place = start
                continue
            place = block.find(b"\n" + _FROM, start) + 1
            self._text(pieces, block[start:place] if place else block[start:])
            if not place:
                return

    def _text(self, pieces: "list[Piece]", text: bytes) -> None:
        """Take lines of a message, the last of which may be an empty one."""
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

    def _end(self, pieces: "list[Piece]") -> None:
        self._blank = b""
        if self._within:
            pieces.append(End())
        elif self._strange:
            pieces.append(End(error=f"expected a line that begins with 'From ', got {quoted(self._strange)}"))
        self._within, self._strange = False, b""

    def _long_line(self, pieces: "list[Piece]") -> None:
        """Take the beginning of a line whose end is not yet there."""
        line, self._rest = self._rest, b""
        self._middle = True
        self._dropping = line.startswith(_FROM)
        if self._dropping:
            self._end(pieces)
            self._within = True
        else:
            self._text(pieces, line)

    def _line_goes_on(self, pieces: "list[Piece]", data: bytes) -> bytes:
        """Take what belongs to a long line; return what comes after it."""
        end = data.find(b"\n") + 1
        line = data[:end] if end else data
        self._middle = not end
        if line and self._within and not self._dropping:
            pieces.append(line)
        return data[end:] if end else b""


def quote_mbox(message: bytes, sender: bytes = b"MAILER-DAEMON", rd: bool = True) -> bytes:
    """Return a message as an mbox has it, with its From_ line (of no date) and the empty line after it.

    A last line without its end gets one: an mbox cannot say that there was none.
    """
    pattern = rb"^(>*From )" if rd else rb"^(From )"
    text = re.sub(pattern, rb">\1", message, flags=re.MULTILINE)
    end = b"" if not text or text.endswith(b"\n") else b"\n"
    return b"From " + sender + b" Thu Jan  1 00:00:00 1970\n" + text + end + b"\n"
