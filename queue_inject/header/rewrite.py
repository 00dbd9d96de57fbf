"""Makes a header fit to send (qmail-header(5)): completes its addresses, finds the recipients, adds what is missing.

Pure: what it needs from outside (names from control files, time, process, who sends) comes as arguments.
Fields that need no change stay byte for byte as they are. A field that cannot be parsed raises
FieldError, which names it.
"""

from queue_inject.header.addresses import rewrite_list
from queue_inject.header.header import Field
from queue_inject.header.plain import plain_addresses
from queue_wire.format_error import FormatError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from queue_inject.header.addresses import Names

# What the addresses of a field are. Mail-Followup-To is made of those that To and Cc name.
_NAMED, _RECIPIENT, _RESENT_RECIPIENT, _SENDER = range(4)
_KINDS = {b"to": _NAMED, b"cc": _NAMED, b"bcc": _RECIPIENT, b"apparently-to": _RECIPIENT}
_KINDS |= dict.fromkeys((b"resent-to", b"resent-cc", b"resent-bcc"), _RESENT_RECIPIENT)
_KINDS |= dict.fromkeys(b"sender from reply-to return-receipt-to errors-to return-path".split(), _SENDER)
_KINDS |= dict.fromkeys((b"resent-sender", b"resent-from", b"resent-reply-to"), _SENDER)
_RESENT = frozenset(
    b"resent-sender resent-from resent-reply-to resent-to resent-cc resent-bcc resent-date resent-message-id".split()
)
_REMOVED = frozenset((b"bcc", b"resent-bcc", b"return-path", b"content-length", b"notice-requested-upon-delivery-to"))
_NOT_SHOWN = b"Cc: recipient list not shown: ;\n"


# The parser's tokens cost up to 250 bytes for each byte of a field.
FIELD_MAX = 1 << 20


class FieldError(FormatError):
    """A field of the header is wrong; `field` is its name as it was written, `line` the line it begins in."""

    def __init__(self, field: str, line: int, text: str) -> None:
        super().__init__(text)
        self.field = field
        self.line = line

    @property
    def where(self) -> str:
        """What an error message says of the place."""
        return f"the {self.field} field in line {self.line}"


class Header:
    """A rewritten header: `lines` are its fields, `seen` their names (those removed too).

    `recipients` are those that count, `named` those of each To and Cc; `return_path` is None where the
    message has none.
    """

    __slots__ = ("lines", "named", "recipients", "resent", "return_path", "seen")

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.named: list[list[bytes]] = []
        self.recipients: list[bytes] = []
        self.return_path: bytes | None = None
        self.resent = False
        self.seen: set[bytes] = set()


def rewrite_header(fields: list[Field], names: "Names", ignored: frozenset[bytes]) -> Header:
    """Return the header with complete addresses. Fields in `ignored` are removed unread. Raises FieldError."""
    header = Header()
    seen, lines = header.seen, header.lines
    resent_recipients: list[bytes] = []
    for field in fields:
        name, data = field.name, field.data
        if name in ignored:
            continue
        seen.add(name)
        kind = _KINDS.get(name)
        if kind is not None:
            data, addresses = _rewrite_field(field, names, kind == _SENDER)
            if kind == _NAMED:
                header.named.append(addresses)
            if kind in (_NAMED, _RECIPIENT):
                header.recipients += addresses
            elif kind == _RESENT_RECIPIENT:
                resent_recipients += addresses
            elif name == b"return-path" and header.return_path is None and addresses:
                header.return_path = addresses[0]
        if name not in _REMOVED:
            lines.append(data)
    if not seen.isdisjoint(_RESENT):
        header.resent = True
        header.recipients = resent_recipients
    return header


def _rewrite_field(field: Field, names: "Names", sender: bool) -> tuple[bytes, list[bytes]]:
    data = field.data
    head, colon, body = data.partition(b":")
    plain = plain_addresses(body)
    if plain is not None:
        return data, plain
    try:
        if len(body) > FIELD_MAX:
            raise FormatError(f"it is over {FIELD_MAX} bytes, and not all of its addresses are plain and complete")
        body, addresses = rewrite_list(body, names, len(head) + 1, sender)
    except FormatError as error:
        raise FieldError(head.strip().decode("ascii", "replace"), field.line, str(error)) from error
    return head + colon + body, addresses


def missing_fields(
    header: Header, date: "Callable[[], bytes]", message_id: "Callable[[], bytes]", author: "Callable[[], bytes]"
) -> list[bytes]:
    """Return the fields that must be added, in qmail-inject's order; Resent- forms where the message is resent.

    Each of `date`, `message_id` and `author` is called only where its field is missing.
    """
    prefix = b"Resent-" if header.resent else b""
    small = prefix.lower()
    seen = header.seen
    added = []
    if small + b"date" not in seen:
        added.append(prefix + b"Date: " + date() + b"\n")
    if small + b"message-id" not in seen:
        added.append(prefix + b"Message-ID: " + message_id() + b"\n")
    if small + b"from" not in seen:
        added.append(prefix + b"From: " + author() + b"\n")
    if small + b"to" not in seen and small + b"cc" not in seen:
        added.append(prefix + _NOT_SHOWN)
    return added
