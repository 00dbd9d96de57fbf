"""Reads messages as pairs of netstrings: the message, then its envelope as queue-enqueue reads it on descriptor 1.

    LENGTH:MESSAGE,LENGTH:F<sender>\\0T<recipient>\\0...\\0,LENGTH:MESSAGE,...

Line feeds between netstrings are ignored, so that a person can write a batch. A wrong envelope makes one bad message.
After a wrong length or comma the rest is unreadable, since nobody can tell where the next netstring begins.
"""

import re

from queue_inject.batch.pieces import BatchReader, EndOfMessage, Piece, Unreadable
from queue_wire.files.envelope import EnvelopeReader
from queue_wire.format_error import FormatError, quoted

# A length of more digits is more than any disk holds.
_DIGITS_MAX = 18
_LENGTH = re.compile(rb"(0|[1-9][0-9]{0,%d}):" % (_DIGITS_MAX - 1))


class NetstringBatchReader(BatchReader):
    """Keeps at most a length, or the recipients of one message."""

    def __init__(self) -> None:
        self._rest = b""
        self._lost = False
        # The bytes of the current netstring that are still to come, or -1 before its length is known.
        self._left = -1
        self._in_envelope = False
        self._begin_envelope()

    def _begin_envelope(self) -> None:
        self._envelope = EnvelopeReader()
        self._found: tuple[bytes, list[bytes]] | None = None
        self._error = ""

    def feed(self, data: bytes) -> list[Piece]:
        pieces: list[Piece] = []
        if not self._lost:
            try:
                self._parse(pieces, self._rest + data)
            except FormatError as error:
                pieces.append(Unreadable(str(error)))
                self._lost, self._rest = True, b""
        return pieces

    def finish(self) -> list[Piece]:
        if self._lost or (self._left < 0 and not self._in_envelope and not self._rest):
            return []
        self._lost = True
        what = "envelope" if self._in_envelope else "message"
        return [Unreadable(f"the input ends in the middle of the netstring that is its {what}")]

    def _parse(self, pieces: list[Piece], data: bytes) -> None:
        place, size = 0, len(data)
        while True:
            if self._left < 0:
                while data.startswith(b"\n", place):
                    place += 1
                length = _LENGTH.match(data, place)
                if length is None:
                    _check_beginning(data[place : place + _DIGITS_MAX + 1])
                    break
                self._left, place = int(length[1]), length.end()
            piece = data[place : place + self._left]
            if piece:
                self._take(pieces, piece)
                self._left -= len(piece)
                place += len(piece)
            if self._left or place == size:
                break
            if data[place] != 0x2C:
                raise FormatError("netstring: no comma at its end")
            place += 1
            self._left = -1
            if self._in_envelope:
                pieces.append(self._end())
                self._begin_envelope()
            self._in_envelope = not self._in_envelope
        self._rest = data[place:]

    def _take(self, pieces: list[Piece], data: bytes) -> None:
        if not self._in_envelope:
            pieces.append(data)
        elif not self._error:
            if self._found is not None:
                self._error = "envelope: something follows its closing NUL"
                return
            try:
                self._found = self._envelope.feed(data)
            except FormatError as error:
                self._error = str(error)
            if self._found is not None and self._envelope.rest:
                self._error = "envelope: something follows its closing NUL"

    def _end(self) -> EndOfMessage:
        if self._error:
            return EndOfMessage(error=self._error)
        if self._found is None:
            return EndOfMessage(error="envelope: it ends without its closing NUL")
        sender, recipients = self._found
        return EndOfMessage(sender, recipients) if recipients else EndOfMessage(error="envelope: it has no recipients")


def _check_beginning(head: bytes) -> None:
    """Raise FormatError unless this can be the beginning of a length whose colon is yet to come."""
    for place, byte in enumerate(head):
        if not 0x30 <= byte <= 0x39 or place == _DIGITS_MAX or (place and head[0] == 0x30):
            raise FormatError(f"netstring: no length: {quoted(head[: place + 1])}")
