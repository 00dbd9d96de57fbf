"""Messages out of batch SMTP (RFC 2442): what a client would say to an SMTP server, without the server's replies.

A message is what DATA gives, with the MAIL and RCPT before it. Lines end in CRLF or LF and become LF; a dot at the
beginning of a line goes (RFC 5321 section 4.5.2), a line of one dot ends the message. A command that is wrong spoils
the message that follows it, and no other: half of its recipients would be worse than none. RSET drops what was said of
a message; a HELO, EHLO, MAIL, QUIT or the input's end before its DATA makes it a bad one. After QUIT another batch may
follow.
"""

from queue_inject.batch.bsmtp_command import COMMAND_MOST, HELLO, unpack_command
from queue_inject.batch.format import BatchReader, End, Lost
from queue_smtp.dotstuff import DotStuffer
from queue_smtp.path import pack_path
from queue_wire.format_error import FormatError, quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from queue_inject.batch.format import Piece


class BsmtpReader(BatchReader):
    """Holds a command line, the recipients, and of a message at most what came in one piece."""

    def __init__(self, most: int = 64 * 1024 * 1024) -> None:
        self._most = most
        # CRLF is LF from here on; a CR at the end of what came waits for its LF.
        self._held = b""
        self._rest = b""
        self._in_data = False
        self._middle = False
        self._lost = False
        self._reset()

    def _reset(self) -> None:
        self._sender: bytes | None = None
        self._recipients: list[bytes] = []
        self._size = 0
        self._error = ""

    def feed(self, data: bytes) -> "list[Piece]":
        pieces: list[Piece] = []
        if self._lost:
            return pieces
        if self._held:
            data, self._held = self._held + data, b""
        if b"\r" in data:
            if data.endswith(b"\r"):
                data, self._held = data[:-1], b"\r"
            data = data.replace(b"\r\n", b"\n")
        self._parse(pieces, self._rest + data)
        return pieces

    def _parse(self, pieces: "list[Piece]", data: bytes) -> None:
        place = 0
        while not self._lost:
            if self._in_data:
                place = self._text(pieces, data, place)
                if self._in_data:
                    break
            else:
                end = data.find(b"\n", place)
                if end < 0:
                    break
                self._line(pieces, data[place:end])
                place = end + 1
        self._rest = b"" if self._lost else data[place:]
        if not self._in_data and len(self._rest) > COMMAND_MOST:
            # It has no end yet. What is missing of it comes as a line of its own, and spoils the message as well.
            self._line(pieces, self._rest)
            self._rest = b""

    def _line(self, pieces: "list[Piece]", line: bytes) -> None:
        if len(line) > COMMAND_MOST:
            self._spoil(f"a command is over {COMMAND_MOST} bytes: {quoted(line)}")
        elif line[:5].upper().rstrip() == b"BDAT":
            # The bytes that follow are no lines, so what is a command after them cannot be told.
            pieces.append(Lost("BDAT is not for batches, DATA is"))
            self._lost = True
        elif line.strip():
            try:
                self._command(pieces, *unpack_command(line))
            except FormatError as error:
                self._spoil(str(error))

    def _command(self, pieces: "list[Piece]", verb: bytes, address: bytes) -> None:
        if verb in HELLO or verb in (b"RSET", b"QUIT"):
            self._drop(pieces, "" if verb == b"RSET" else f"{verb.decode()} comes before its DATA")
        elif verb == b"MAIL":
            if self._sender is not None:
                self._drop(pieces, "MAIL comes before its DATA")
            self._sender = address
        elif verb == b"RCPT":
            if self._sender is None:
                raise FormatError("RCPT without MAIL")
            self._size += len(address) + 2
            if self._size > self._most:
                self._recipients.clear()
                raise FormatError("the recipients are too many")
            self._recipients.append(address)
        elif verb == b"DATA":
            if self._sender is None:
                self._spoil("DATA without MAIL")
            elif not self._recipients:
                self._spoil("DATA without RCPT")
            self._in_data = True

    def _spoil(self, error: str) -> None:
        self._error = self._error or error

    def _drop(self, pieces: "list[Piece]", why: str) -> None:
        """Begin anew; `why` is what is wrong with that where a message is under way."""
        error = self._error or (why if self._sender is not None else "")
        if error:
            pieces.append(End(error=error))
        self._reset()

    def _text(self, pieces: "list[Piece]", data: bytes, place: int) -> int:
        """Take what there is of a message from `place` on; return where the rest begins."""
        if not self._middle and data.startswith(b".\n", place):
            end, after = place, place + 2
        else:
            found = data.find(b"\n.\n", place)
            end, after = found + 1, found + 3
            if found < 0:
                # A dot that begins the last line may end the message.
                dot = data.endswith(b"\n.", place) or (not self._middle and data[place:] == b".")
                end = after = len(data) - dot
                self._take(pieces, data[place:end])
                return after
        self._take(pieces, data[place:end])
        pieces.append(End(error=self._error) if self._error else End(self._sender, self._recipients))
        self._in_data = self._middle = False
        self._reset()
        return after

    def _take(self, pieces: "list[Piece]", text: bytes) -> None:
        if not text:
            return
        if not self._middle and text.startswith(b"."):
            text = text[1:]
        self._middle = not text.endswith(b"\n")
        if not self._error and text:
            pieces.append(text.replace(b"\n.", b"\n") if b"\n." in text else text)

    def finish(self) -> "list[Piece]":
        pieces: list[Piece] = []
        if self._lost:
            return pieces
        rest, self._rest = self._rest + self._held, b""
        if self._in_data:
            pieces.append(End(error=self._error or "the input ends before the dot that ends it"))
        else:
            self._line(pieces, rest.removesuffix(b"\r"))
            self._drop(pieces, "the input ends before its DATA")
        return pieces


def pack_bsmtp(sender: bytes, recipients: "list[bytes]", message: bytes) -> bytes:
    """Return one message as batch SMTP, with CRLF; `message` ends in LF. Raises FormatError for such an address."""
    lines = [b"MAIL FROM:" + pack_path(sender), *[b"RCPT TO:" + pack_path(each) for each in recipients], b"DATA", b""]
    stuffer = DotStuffer()
    return b"\r\n".join(lines) + stuffer.feed(message) + stuffer.finish()
