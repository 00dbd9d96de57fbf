"""Messages as pairs of netstrings: the message, then its envelope as queue-enqueue has it on descriptor 1.

    LENGTH:MESSAGE,LENGTH:F<sender>\\0T<recipient>\\0...\\0,LENGTH:MESSAGE,...

Line feeds between netstrings are passed over, so that a person can make a batch. A pair whose envelope is wrong is a
bad message; where a length or a comma is wrong, nobody can tell where the next one begins.
"""

from queue_inject.batch.format import BatchReader, End, Lost
from queue_wire.envelope import EnvelopeReader, check_address
from queue_wire.format_error import FormatError, quoted
from queue_wire.framing import pack_netstring

TYPE_CHECKING = False
if TYPE_CHECKING:
    from queue_inject.batch.format import Piece

# 18 digits are more than any disk holds.
_PREFIX_MOST = 18


class NetstringBatchReader(BatchReader):
    """Holds a length, or the recipients of one message."""

    def __init__(self) -> None:
        self._rest = b""
        self._lost = False
        # Bytes to come of the netstring that is being read; -1 where its length is still to come.
        self._left = -1
        self._in_envelope = False
        self._begin_envelope()

    def _begin_envelope(self) -> None:
        self._envelope = EnvelopeReader()
        self._found: tuple[bytes, list[bytes]] | None = None
        self._error = ""

    def feed(self, data: bytes) -> "list[Piece]":
        pieces: list[Piece] = []
        if not self._lost:
            try:
                self._parse(pieces, self._rest + data)
            except FormatError as error:
                pieces.append(Lost(str(error)))
                self._lost, self._rest = True, b""
        return pieces

    def finish(self) -> "list[Piece]":
        if self._lost or (self._left < 0 and not self._in_envelope and not self._rest):
            return []
        self._lost = True
        what = "envelope" if self._in_envelope else "message"
        return [Lost(f"the input ends in the middle of the netstring that is its {what}")]

    def _parse(self, pieces: "list[Piece]", data: bytes) -> None:
        place, size = 0, len(data)
        while True:
            if self._left < 0:
                while data.startswith(b"\n", place):
                    place += 1
                digits = _count_digits(data[place : place + _PREFIX_MOST + 1])
                if digits < 0:
                    break
                self._left, place = int(data[place : place + digits]), place + digits + 1
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

    def _take(self, pieces: "list[Piece]", data: bytes) -> None:
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

    def _end(self) -> End:
        if self._error:
            return End(error=self._error)
        if self._found is None:
            return End(error="envelope: it ends without its closing NUL")
        sender, recipients = self._found
        return End(sender, recipients) if recipients else End(error="envelope: it has no recipients")


def _count_digits(head: bytes) -> int:
    """Return how long the length is that begins here, -1 where its colon is still to come. Raises FormatError."""
    for place, byte in enumerate(head):
        if byte == 0x3A and place:
            return place
        if not 0x30 <= byte <= 0x39 or place == _PREFIX_MOST or (place and head[0] == 0x30):
            raise FormatError(f"netstring: no length: {quoted(head[: place + 1])}")
    return -1


def pack_pair(sender: bytes, recipients: list[bytes], message: bytes) -> bytes:
    """Return one message of such a batch. Raises FormatError for what cannot be an address."""
    parts = [b"F%s\0" % check_address(sender), *[b"T%s\0" % check_address(each) for each in recipients], b"\0"]
    return pack_netstring(message) + pack_netstring(b"".join(parts))
