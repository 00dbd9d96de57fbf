"""Reads what clients send: packages of QMTP, or the one of QMQP (queue_wire.pipes.qmtp). Pure.

`feed` stores bytes, `next` returns the next event, or None if more bytes are needed. The events of a package are one
Begin, any number of Data, and one Package or GivenUp; PackageFacts may come before a Begin, and among the Data. A
message is never stored here: Data passes its bytes on as they arrive, with LF line ends. Of the envelope at most
RECIPIENT_BYTES are stored; what has more recipients is read to its end, without storing it, so that it can be refused.
A call of `next` reads STEPS elements at most, so that no client's bytes keep the others waiting. queue-intake and
queue-smtpd read with it, for clients of different kinds.

`next` raises FormatError at the first byte that no package can have there. The rest of the stream is then meaningless.
"""

import re
from enum import Enum
from typing import NamedTuple

from queue_wire.files.envelope import ADDRESS_MAX
from queue_wire.format_error import FormatError, quoted
from queue_wire.pipes.qmtp import CR, FACTS, FACTS_MAX, GIVE_UP, LF, PIECE_MAX, unpack_facts

# The digits of a length: a message has less than a terabyte, an envelope less than a gigabyte.
MESSAGE_DIGITS = 12
ENVELOPE_DIGITS = 9
# What a message may have of recipients, as mail in maildrop/.
RECIPIENTS_MAX = 200_000
RECIPIENT_BYTES = 8 << 20
# Invalid recipients: too long, or with a NUL. Each has an answer of its own, so a package with more of them is refused
# as a whole.
INVALID_MAX = 1000
# What a recipient takes of memory besides its bytes.
RECIPIENT_EXTRA = 64
# Elements of the stream in one call of `next`, about a millisecond.
STEPS = 400
# Whole recipients are read in a loop of their own, so many at a time: a client may send 20,000 in one piece.
WHOLE_MAX = 1000
WHOLE_A_STEP = 5
_WHOLE = re.compile(rb"(0|[1-9][0-9]{0,3}):")
# An envelope of up to SHORT bytes that is there whole is read in one step.
SHORT = 2048
_AFTER_COMMA = re.compile(rb",(0|[1-9][0-9]{0,3}):")


class Protocol(Enum):
    """QMTP or QMQP."""

    QMTP = "QMTP"
    QMQP = "QMQP"


class PackageFacts(NamedTuple):
    """What a client says of its next package, or of the one that it sends: the uid of the user whose message it is, the
    causes of a hold and of a copy for the postmaster, the class that is asked for, and the submitter, empty for none.
    Or `numbers`: its messages have places for their numbers.
    """

    uid: int | None
    hold: bytes = b""
    copy: bytes = b""
    priority: str = ""
    numbers: bool = False
    submitter: bytes = b""


class Begin(NamedTuple):
    """A package begins, whose message has `size` bytes as it is sent; None if it comes in pieces."""

    size: int | None


class Data(NamedTuple):
    """Bytes of the message."""

    data: bytes


class GivenUp(NamedTuple):
    """The client has given the package up. It is not answered."""


class Package(NamedTuple):
    """The end of a package, and its envelope.

    sender: None if it is invalid: too long, or with a NUL. recipients: the valid ones, in order. invalid: the places of
    the others, from 0. sent: how many recipients were sent. too_many: they are over a limit, and incomplete here.
    memory: the bytes that the recipients take. too_many_invalid: more than INVALID_MAX are, and none is stored.
    """

    sender: bytes | None
    recipients: list[bytes]
    invalid: list[int]
    sent: int
    too_many: bool
    memory: int
    too_many_invalid: bool = False


Event = PackageFacts | Begin | Data | GivenUp | Package


class _Next(Enum):
    """What comes next in the stream."""

    PACKAGE = "the length of a package, or of facts"
    KIND = "the byte that says what a netstring is"
    FACTS = "facts"
    INNER = "the length of the message in a package of QMQP"
    MESSAGE = "bytes of the message"
    PIECE = "the length of a piece of the message"
    PIECE_KIND = "the byte that says what a piece is"
    GIVEN_UP = "the comma after what gives a package up"
    MESSAGE_END = "the comma after the message"
    SENDER = "the length of the sender"
    RECIPIENTS = "the length of all recipients of QMTP"
    RECIPIENT = "the length of a recipient, or the end of all"
    ADDRESS = "an address"
    END = "the comma after all recipients"
    CLOSED = "nothing, after the package of QMQP"


class PackageReader:
    """The reader of one connection. protocol: None until the first bytes have shown it, if it was not given.

    recipients, recipient_bytes: those of a package that are stored at most.
    """

    def __init__(
        self,
        protocol: Protocol | None = None,
        recipients: int = RECIPIENTS_MAX,
        recipient_bytes: int = RECIPIENT_BYTES,
    ) -> None:
        self.protocol = protocol
        self._recipients_most = recipients
        self._bytes_most = recipient_bytes
        self.paused = False  # Whether the last call of `next` has ended for the number of its steps.
        self._steps = 0
        self._buffer = b""
        self._at = 0
        self._state = _Next.PACKAGE
        self._size = 0  # The length of the netstring that is being read.
        self._left = 0  # Bytes of it that are still to come.
        self._room = 0  # Bytes that are left in the netstring around it, if there is one.
        self._enclosed = self._pieces = False
        self._crlf = self._held = False
        self._is_sender = False
        self._forget()

    def _forget(self) -> None:
        self._sender: bytes | None = None
        self._recipients: list[bytes] = []
        self._invalid: list[int] = []
        self._count = 0
        self._bytes = 0
        self._over = self._too_many_invalid = False

    def feed(self, data: bytes) -> None:
        """Store bytes. The caller calls `next` until it returns None, so that what is stored stays small."""
        self._buffer = self._buffer[self._at :] + data
        self._at = 0

    @property
    def recipient_bytes(self) -> int:
        """The memory that the recipients of the package take so far."""
        return self._bytes + RECIPIENT_EXTRA * (len(self._recipients) + len(self._invalid))

    @property
    def recipients_read(self) -> int:
        """The recipients of the package so far, also those that are not stored."""
        return self._count

    def forget_recipients(self) -> None:
        """Store no recipients of this package: it is refused. The rest of it is read."""
        self._over = True
        self._recipients, self._invalid, self._bytes = [], [], 0

    @property
    def between(self) -> bool:
        """Whether no package has begun: only a part of its first length may be stored."""
        return self._state in (_Next.PACKAGE, _Next.KIND)

    @property
    def idle(self) -> bool:
        """Whether nothing of a package has come."""
        return self._state is _Next.PACKAGE and not self.unread

    @property
    def unread(self) -> bool:
        """Whether bytes are stored that `next` may make an event of."""
        return self._at < len(self._buffer)

    @property
    def ended(self) -> bool:
        """Whether the package of QMQP is complete: nothing comes after it."""
        return self._state is _Next.CLOSED

    def next(self) -> Event | None:
        """Return the next event, None if more bytes are needed, or if it has `paused`. Raises FormatError."""
        self.paused = False
        self._steps = STEPS
        while self._steps > 0:
            self._steps -= 1
            before = (self._state, self._at)
            event = self._step()
            if event is not None:
                return event
            if before == (self._state, self._at):
                return None
        self.paused = True
        return None

    def _step(self) -> Event | None:
        """Read one element. Without an event and without any progress, more bytes are needed."""
        state = self._state
        if state is _Next.MESSAGE:
            return self._read_message()
        if state is _Next.ADDRESS:
            self._read_address()
        elif state is _Next.RECIPIENT:
            self._read_recipient()
        elif state is _Next.PACKAGE:
            self._read_length(_Next.KIND, MESSAGE_DIGITS)
        elif state is _Next.KIND:
            return self._read_kind()
        elif state is _Next.MESSAGE_END:
            if not self._enclosed and not self._pieces and (package := self._read_envelope()) is not None:
                return package
            self._read_comma(_Next.PIECE if self._pieces else _Next.SENDER)
        elif state is _Next.SENDER:
            self._is_sender = True
            self._read_length(_Next.ADDRESS, ENVELOPE_DIGITS)
        elif state is _Next.RECIPIENTS:
            if self._read_length(_Next.RECIPIENT, ENVELOPE_DIGITS):
                self._enclosed, self._room = True, self._size
        elif state is _Next.END:
            return self._read_end()
        elif state is _Next.INNER:
            if self._read_length(_Next.MESSAGE, MESSAGE_DIGITS):
                return Begin(self._size)
        elif state is _Next.FACTS:
            return self._read_facts()
        elif state is _Next.PIECE:
            self._read_length(_Next.PIECE_KIND, ENVELOPE_DIGITS)
        elif state is _Next.PIECE_KIND:
            self._read_piece_kind()
        elif state is _Next.GIVEN_UP:
            return GivenUp() if self._read_comma(_Next.PACKAGE) else None
        elif self._at < len(self._buffer):
            raise FormatError("bytes after the package")
        return None

    def _spend(self, count: int) -> None:
        """Go on by `count` bytes. Raises FormatError if the netstring around them ends before."""
        self._at += count
        if self._enclosed:
            self._room -= count
            if self._room < 0:
                raise FormatError("netstring: longer than the one that it is in")

    def _read_length(self, then: _Next, digits: int) -> bool:
        """Read a length and its colon; return whether they are complete. Raises FormatError."""
        begin = self._at
        end = self._buffer.find(b":", begin, begin + digits + 1)
        text = self._buffer[begin : begin + digits + 1 if end < 0 else end]
        if (text and not text.isdigit()) or (text[:1] == b"0" and len(text) > 1) or len(text) > digits:
            raise FormatError(f"netstring: no length: {quoted(text)}")
        if end < 0:
            return False
        if not text:
            raise FormatError("netstring: no length before its colon")
        self._size = self._left = int(text)
        self._spend(end + 1 - begin)
        if self._enclosed and self._size >= self._room:
            raise FormatError("netstring: longer than the one that it is in")
        self._state = then
        return True

    def _read_comma(self, then: _Next) -> bool:
        """Read the comma that ends a netstring; return whether it was there. Raises FormatError."""
        if self._at >= len(self._buffer):
            return False
        if self._buffer[self._at] != 0x2C:
            raise FormatError("netstring: no comma at its end")
        self._spend(1)
        self._state = then
        return True

    def _read_kind(self) -> Event | None:
        """Look at the first byte of a package, which also shows the protocol. Raises FormatError."""
        kind = self._buffer[self._at : self._at + 1]
        if self._pieces:
            self._state = _Next.PIECE_KIND
            return Begin(None)
        if not self._size:
            raise FormatError("an empty package")
        if not kind:
            return None
        found = Protocol.QMQP if kind.isdigit() else Protocol.QMTP if kind in (LF, CR, FACTS) else None
        if found is None or self.protocol not in (None, found):
            name = "QMTP or QMQP" if self.protocol is None else self.protocol.value
            raise FormatError(f"not the beginning of a package of {name}: {quoted(kind)}")
        self.protocol = found
        if found is Protocol.QMQP:
            self._enclosed, self._room = True, self._size
            self._state = _Next.INNER
            return None
        if kind == FACTS:
            if self._size > FACTS_MAX:
                raise FormatError(f"facts of {self._size} bytes, limit {FACTS_MAX}")
            self._state = _Next.FACTS
            return None
        self._at += 1
        self._left -= 1
        self._crlf, self._held = kind == CR, False
        self._state = _Next.MESSAGE
        return Begin(self._left)

    def _read_facts(self) -> PackageFacts | None:
        end = self._at + self._size
        if len(self._buffer) <= end:
            return None
        facts = unpack_facts(self._buffer[self._at + 1 : end])
        self._at = end
        if self._pieces:
            if facts.pieces or facts.uid is not None or facts.numbers:
                raise FormatError("facts among pieces that must come before them")
            self._read_comma(_Next.PIECE)
        else:
            self._pieces = facts.pieces
            self._read_comma(_Next.PACKAGE)
        return PackageFacts(facts.uid, facts.hold, facts.copy, facts.priority, facts.numbers, facts.submitter)

    def _read_piece_kind(self) -> None:
        """Look at the first byte of a piece. Raises FormatError."""
        kind = self._buffer[self._at : self._at + 1]
        if not self._size:
            if self._read_comma(_Next.SENDER):
                self._pieces = False
        elif kind == GIVE_UP[2:3] and self._size == 1:
            self._at += 1
            self._pieces = False
            self._state = _Next.GIVEN_UP
        elif kind == FACTS and self._size <= FACTS_MAX:
            self._state = _Next.FACTS
        elif kind == LF and self._size <= PIECE_MAX:
            self._at += 1
            self._left -= 1
            self._crlf = False
            self._state = _Next.MESSAGE
        elif kind:
            raise FormatError(f"not a piece of a message: {self._size} bytes, {quoted(kind)}")

    def _read_message(self) -> Data | None:
        data = self._buffer[self._at : self._at + self._left]
        self._spend(len(data))
        self._left -= len(data)
        if not self._left:
            self._state = _Next.MESSAGE_END
        if self._crlf:
            data = self._change_lines(data)
        return Data(data) if data else None

    def _change_lines(self, data: bytes) -> bytes:
        """Return the bytes with LF line ends. A CR at the end is held back until the next byte is known."""
        if self._held:
            data = CR + data
        self._held = self._left > 0 and data.endswith(CR)
        if self._held:
            data = data[:-1]
        return data.replace(b"\r\n", b"\n")

    def _read_envelope(self) -> Package | None:
        """Read the rest of a package of QMTP, if it is there whole, short and ordinary; else nothing."""
        buffer, head = self._buffer, _AFTER_COMMA.match
        if self._over or (found := head(buffer, self._at)) is None:
            return None
        begin = found.end()
        end = begin + int(found[1])
        if end - begin > ADDRESS_MAX or (found := head(buffer, end)) is None:
            return None
        at = found.end()
        size = int(found[1])
        last = at + size
        if size > SHORT or last >= len(buffer) or buffer[last] != 0x2C:
            return None
        sender = buffer[begin:end]
        recipients: list[bytes] = []
        used = 0
        while at < last:
            found = _WHOLE.match(buffer, at)
            if found is None:
                return None
            begin = found.end()
            end = begin + int(found[1])
            if end >= last or buffer[end] != 0x2C or end - begin > ADDRESS_MAX:
                return None
            recipients.append(buffer[begin:end])
            used += end - begin
            at = end + 1
        count = len(recipients)
        if buffer.find(b"\0", self._at, last) >= 0 or count > self._recipients_most or used > self._bytes_most:
            return None
        self._steps -= count // WHOLE_A_STEP
        self._at = last + 1
        self._state = _Next.PACKAGE
        self._forget()
        return Package(sender, recipients, [], count, False, used + RECIPIENT_EXTRA * count)

    def _read_recipient(self) -> None:
        self._is_sender = False
        self._read_whole_recipients()
        if self._room:
            self._read_length(_Next.ADDRESS, ENVELOPE_DIGITS)
        else:
            self._enclosed = False
            self._state = _Next.END

    def _read_whole_recipients(self) -> None:
        """Read ordinary recipients that are there whole; the first other one is left to the slow way.

        Those of a package that is refused are only counted.
        """
        buffer, at, room, over = self._buffer, self._at, self._room, self._over
        recipients, used, count = self._recipients, self._bytes, self._count
        most, most_bytes = self._recipients_most, self._bytes_most
        match = _WHOLE.match
        last = count + WHOLE_MAX
        while count < last and (found := match(buffer, at)) is not None:
            begin = found.end()
            end = begin + int(found[1])
            taken = end + 1 - at
            if taken > room or end >= len(buffer) or buffer[end] != 0x2C:
                break
            if not over:
                used += end - begin
                if end - begin > ADDRESS_MAX or count >= most or used > most_bytes:
                    break
                address = buffer[begin:end]
                if b"\0" in address:
                    break
                recipients.append(address)
                self._bytes = used
            at, room, count = end + 1, room - taken, count + 1
        self._steps -= (count - self._count) // WHOLE_A_STEP
        self._at, self._room, self._count = at, room, count

    def _read_address(self) -> None:
        """Read an address and its comma. One that is too long, or one too many, is only passed over."""
        if not self._is_sender and not self._over:
            used = self._bytes + min(self._size, ADDRESS_MAX)
            self._over = self._count >= self._recipients_most or used > self._bytes_most
        if self._size <= ADDRESS_MAX and (self._is_sender or not self._over):
            if len(self._buffer) - self._at <= self._size:
                return
            address = self._buffer[self._at : self._at + self._size]
            self._spend(self._size)
            self._read_comma(_Next.RECIPIENT)
            self._take(None if b"\0" in address else address)
            return
        passed = min(self._left, len(self._buffer) - self._at)
        self._spend(passed)
        self._left -= passed
        if not self._left and self._read_comma(_Next.RECIPIENT):
            self._take(None)

    def _take(self, address: bytes | None) -> None:
        """Take an address, None if it is invalid."""
        if self._is_sender:
            self._sender = address
            if self.protocol is Protocol.QMTP:
                self._state = _Next.RECIPIENTS
            return
        if not self._over:
            if address is None and len(self._invalid) == INVALID_MAX:
                self._too_many_invalid = True
                self.forget_recipients()
            elif address is None:
                self._invalid.append(self._count)
            else:
                self._recipients.append(address)
                self._bytes += len(address)
        self._count += 1

    def _read_end(self) -> Package | None:
        after = _Next.CLOSED if self.protocol is Protocol.QMQP else _Next.PACKAGE
        if not self._read_comma(after):
            return None
        memory = self.recipient_bytes
        over, too_many_invalid = self._over, self._too_many_invalid
        package = Package(self._sender, self._recipients, self._invalid, self._count, over, memory, too_many_invalid)
        self._forget()
        return package
