"""Who sends a message: From, the envelope sender and Message-ID, made from the environment (qmail-inject(8)).

Pure: the environment, the time and the process id are arguments.
"""

from queue_inject.header.complete_addresses import complete_parts
from queue_wire.format_error import FormatError, quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from queue_inject.header.complete_addresses import Names

# Replaces control characters, which could end a header line, by spaces.
_SPACED = bytes(32 if byte < 32 or byte == 127 else byte for byte in range(256))


class Identity:
    """User, host and name for From, user and host for the envelope sender, and the letters of QUEUE_INJECT.

    For each, our variable precedes qmail's. A host or name that is set but empty hides the variables after it. A host
    of None stands for defaulthost.
    """

    __slots__ = ("host", "letters", "name", "sender_host", "sender_user", "user")

    def __init__(self, environment: "Mapping[bytes, bytes]") -> None:
        def first(*names: bytes) -> bytes | None:
            return next((environment[name] for name in names if name in environment), None)

        users = (b"QUEUE_USER", b"QMAILUSER", b"MAILUSER", b"USER", b"LOGNAME")
        self.letters = first(b"QUEUE_INJECT", b"QMAILINJECT") or b""
        self.user = next(filter(None, map(environment.get, users)), b"anonymous")
        self.host = first(b"QUEUE_HOST", b"QMAILHOST", b"MAILHOST") or None
        self.name = first(b"QUEUE_NAME", b"QMAILNAME", b"MAILNAME", b"NAME") or b""
        self.sender_user = environment.get(b"QUEUE_SUSER") or environment.get(b"QMAILSUSER") or self.user
        host = first(b"QUEUE_SHOST", b"QMAILSHOST")
        self.sender_host = self.host if host is None else host or None

    def ignored_fields(self) -> frozenset[bytes]:
        """Return the names of the fields to ignore: letters f, i and s."""
        letters = {b"f": b"from", b"i": b"message-id", b"s": b"return-path"}
        return frozenset(name for letter, name in letters.items() if letter in self.letters)


def make_author(identity: Identity, names: "Names") -> bytes:
    """Return the body of a From field. Raises FormatError."""
    # Imported here, as below, because few messages need it.
    from queue_wire.address import quote_address

    address = quote_address(_complete(identity.user, identity.host, names))
    name = identity.name.translate(_SPACED)
    if not name:
        return address
    if b"c" in identity.letters:
        return b"%s (%s)" % (address, _escape(name, b"\\()"))
    return b"%s <%s>" % (_quote(name), address)


def make_sender(identity: Identity, names: "Names", seconds: int, pid: int) -> bytes:
    """Return the envelope sender of a message without Return-Path. Letters m and r make it a VERP.

    Raises FormatError.
    """
    user = identity.sender_user
    if b"m" in identity.letters:
        user += b"-%d.%d" % (seconds, pid)
    if b"r" in identity.letters:
        user += b"-"
    return add_verp_suffix(_complete(user, identity.sender_host, names), identity)


def _complete(user: bytes, host: bytes | None, names: "Names") -> bytes:
    try:
        return complete_parts(user, host, names)
    except FormatError as error:
        shown = quoted(user if host is None else user + b"@" + host)
        raise FormatError(f"the environment makes its author or sender {shown}: {error}") from error


def add_verp_suffix(sender: bytes, identity: Identity) -> bytes:
    """Return the sender with the VERP suffix, which queue-send replaces for each recipient, if letter r is set.

    The empty sender stays as it is: nobody would get the bounce.
    """
    if not sender or b"r" not in identity.letters:
        return sender
    from queue_wire.address import VERP_SUFFIX

    return sender + VERP_SUFFIX


def make_message_id(stamp: str, pid: int, host: bytes) -> bytes:
    """Return a Message-ID. `stamp` is the time in microseconds, so a process can make many."""
    return b"<%s.%d.qmail@%s>" % (stamp.encode("ascii"), pid, host)


def _quote(text: bytes) -> bytes:
    return b'"' + _escape(text.translate(_SPACED), b'\\"') + b'"'


def _escape(text: bytes, characters: bytes) -> bytes:
    for character in characters:
        text = text.replace(bytes((character,)), bytes((0x5C, character)))
    return text
