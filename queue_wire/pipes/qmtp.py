"""QMTP, QMQP: how a client hands messages to queue-intake, and what it answers (cr.yp.to/proto/qmtp.txt, qmqp.html).

QMTP, any number of packages on a connection, and for each an answer for each recipient, in order:

    netstring   LF and the message with LF line ends, or CR and the message with CRLF line ends
    netstring   sender
    netstring   of netstrings, a recipient each
    answer      netstring: K accepted, Z not now, D never; then text

QMQP, one message on a connection, and one answer:

    netstring   of netstrings: the message with LF line ends, sender, recipient, recipient, ...

Our own extension: a client may send facts before a QMTP package, which they are about.

    netstring   + and NUL-separated facts:
                uid=NUMBER   the user whose message it is; for trusted clients
                pieces       the message comes in pieces, because its size is not known yet
                hold=CAUSE   the message is on hold from the beginning, for this reason; for trusted clients
                copy=CAUSE   a copy of it is kept for the postmaster, for this reason; for trusted clients
                class=NAME   the class that is asked for (queue_wire.control.priorities); a higher one than the rules
                             give, for trusted clients
                submitter=S  for whom the message is (queue_wire.submitter); counts from trusted clients alone
                numbers      alone: in each message of this connection the first NUL stands for its number in the queue

A message in pieces is sent in the place of the first netstring of its package:

    netstring   LF and a piece of the message with LF line ends, at most PIECE_MAX bytes; any number of them
    netstring   + and facts other than pieces, which are known only now; anywhere among the pieces
    netstring   empty: the message is complete, sender and recipients follow;
                or !: it is given up, is not answered, and its package ends here

This module has the client's side and what both sides share. queue_intake reads packages.
"""

from queue_wire.files.envelope import is_class_name, is_submitter
from queue_wire.format_error import FormatError, quoted
from queue_wire.pipes.framing import NetstringReader, pack_netstring

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

# The socket of queue-intake, below queue/. Its directory is not lock/, where only the daemons may go.
SOCKET_DIRECTORY = "intake"
SOCKET_DIRECTORY_MODE = 0o711
SOCKET = "intake/socket"
ACCEPTED = b"K"
TEMPORARY = b"Z"
PERMANENT = b"D"
LETTERS = ACCEPTED + TEMPORARY + PERMANENT
LF = b"\n"
CR = b"\r"
MESSAGE_END = b","  # What comes after a message in one netstring.
FACTS = b"+"
FACTS_MAX = 4096
NUMBER_PLACE = b"\0"
CAUSE_MAX = 400  # Bytes of a cause.
PIECE_MAX = 65536
PIECES_END = b"0:,"
GIVE_UP = b"1:!,"
ANSWER_MAX = 4096  # Bytes of an answer; queue-intake's own have at most TEXT_MAX and a letter.
TEXT_MAX = 1000


class Answer:
    """An answer: its letter, K, Z or D, and its text."""

    __slots__ = ("letter", "text")

    def __init__(self, letter: bytes, text: bytes) -> None:
        self.letter = letter
        self.text = text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Answer) and (self.letter, self.text) == (other.letter, other.text)

    def __repr__(self) -> str:
        return f"Answer({self.letter!r}, {self.text!r})"

    @property
    def long_id(self) -> bytes:
        """The long id of the message, if it was accepted by queue-intake; else empty."""
        return self.text.rpartition(b" ")[2] if self.letter == ACCEPTED else b""


def pack_head(size: int) -> bytes:
    """Return what comes before a message of `size` bytes with LF line ends, in QMTP."""
    return b"%d:\n" % (size + 1)


def pack_envelope(sender: bytes, recipients: "Iterable[bytes]") -> bytes:
    """Return sender and recipients, which come after the message and its end, in QMTP."""
    return pack_netstring(sender) + pack_netstring(b"".join(map(pack_netstring, recipients)))


def pack_package(message: bytes, sender: bytes, recipients: "Iterable[bytes]") -> bytes:
    """Return a whole QMTP package for a message with LF line ends."""
    return pack_head(len(message)) + message + MESSAGE_END + pack_envelope(sender, recipients)


def pack_piece(data: bytes) -> bytes:
    """Return a piece of a message with LF line ends, at most PIECE_MAX - 1 bytes."""
    return pack_netstring(LF + data)


def pack_qmqp(message: bytes, sender: bytes, recipients: "Iterable[bytes]") -> bytes:
    """Return what a QMQP client sends for a message with LF line ends."""
    return pack_netstring(b"".join(map(pack_netstring, (message, sender, *recipients))))


class IntakeFacts:
    """What a client says of a package: the user whose message it is; whether it comes in pieces; the causes of a hold
    and of a copy for the postmaster, the class that is asked for, and the submitter, empty for none. numbers: its
    messages have places for their numbers.
    """

    __slots__ = ("copy", "hold", "numbers", "pieces", "priority", "submitter", "uid")

    def __init__(
        self,
        uid: int | None = None,
        pieces: bool = False,
        hold: bytes = b"",
        copy: bytes = b"",
        priority: str = "",
        numbers: bool = False,
        submitter: bytes = b"",
    ) -> None:
        self.uid = uid
        self.pieces = pieces
        self.hold = hold
        self.copy = copy
        self.priority = priority
        self.numbers = numbers
        self.submitter = submitter

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IntakeFacts) and self._values == other._values

    def __repr__(self) -> str:
        return f"IntakeFacts{self._values!r}"

    @property
    def _values(self) -> "tuple[int | None, bool, bytes, bytes, str, bool, bytes]":
        return self.uid, self.pieces, self.hold, self.copy, self.priority, self.numbers, self.submitter


def pack_facts(
    uid: int | None = None,
    pieces: bool = False,
    hold: bytes = b"",
    copy: bytes = b"",
    priority: str = "",
    submitter: bytes = b"",
) -> bytes:
    """Return facts as a netstring. Control characters of a cause become spaces, and its end is cut off."""
    facts = [b"uid=%d" % uid] if uid is not None else []
    if pieces:
        facts.append(b"pieces")
    for name, cause in ((b"hold=", hold), (b"copy=", copy)):
        if cause:
            facts.append(name + cause[:CAUSE_MAX].translate(_PRINTABLE))
    if priority:
        facts.append(b"class=" + priority.encode("ascii"))
    if submitter:
        facts.append(b"submitter=" + submitter)
    return pack_netstring(FACTS + b"\0".join(facts))


def unpack_facts(payload: bytes) -> IntakeFacts:
    """Return the facts; `payload` is without the `+`. Raises FormatError."""
    found = IntakeFacts()
    if payload == b"numbers":
        found.numbers = True
        return found
    for fact in payload.split(b"\0") if payload else ():
        if fact == b"pieces":
            found.pieces = True
        elif fact.startswith((b"hold=", b"copy=")):
            cause = fact[5:]
            if not cause or len(cause) > CAUSE_MAX or cause != cause.translate(_PRINTABLE):
                raise FormatError(f"not a cause: {quoted(cause)}")
            if fact.startswith(b"hold="):
                found.hold = cause
            else:
                found.copy = cause
        elif fact.startswith(b"class="):
            if not is_class_name(fact[6:]):
                raise FormatError(f"not the name of a class: {quoted(fact[6:])}")
            found.priority = fact[6:].decode("ascii")
        elif fact.startswith(b"submitter="):
            if not is_submitter(fact[10:]):
                raise FormatError(f"not a submitter: {quoted(fact[10:])}")
            found.submitter = fact[10:]
        elif fact.startswith(b"uid="):
            value = fact[4:]
            # 2**32 - 1 stands for no user (chown(2)).
            if not value.isdigit() or len(value) > 10 or int(value) >= 2**32 - 1:
                raise FormatError(f"not a uid: {quoted(value)}")
            found.uid = int(value)
        else:
            raise FormatError(f"unknown fact: {quoted(fact)}")
    return found


# What begins a connection whose messages have places for their numbers.
NUMBERS = pack_netstring(FACTS + b"numbers")


def pack_answer(letter: bytes, text: bytes) -> bytes:
    """Return an answer as a netstring; control characters of the text become spaces, and its end is cut off."""
    return pack_netstring(letter + text[:TEXT_MAX].translate(_PRINTABLE))


_PRINTABLE = bytes(32 if byte < 32 or byte == 127 else byte for byte in range(256))


class AnswerReader:
    """Reads the answers of a server in pieces of any size.

    `feed` returns the answers that a piece completes. It raises FormatError for anything that is no answer; what the
    server said before is then lost too, and the fate of its messages is not known.
    """

    def __init__(self) -> None:
        self._reader = NetstringReader(ANSWER_MAX)

    def feed(self, data: bytes) -> list[Answer]:
        self._reader.feed(data)
        answers = []
        while (payload := self._reader.next()) is not None:
            if not payload or payload[:1] not in LETTERS:
                raise FormatError(f"neither K, Z nor D: {quoted(payload)}")
            answers.append(Answer(payload[:1], payload[1:]))
        return answers
