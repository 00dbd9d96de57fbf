"""Makes a header fit to send (qmail-header(5)): completes its addresses, finds the recipients, adds what is missing.

Pure: what it needs from outside (names from control files, time, process, who sends) comes as arguments.
Fields that need no change stay byte for byte as they are. A field that cannot be parsed raises
FieldError, which names it.
"""

from queue_inject.addresses import rewrite_list
from queue_inject.header import Field
from queue_wire.errors import FormatError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from queue_inject.addresses import Names

_RECIPIENTS = frozenset((b"to", b"cc", b"bcc", b"apparently-to"))
_RESENT_RECIPIENTS = frozenset((b"resent-to", b"resent-cc", b"resent-bcc"))
_RESENT = frozenset((b"resent-sender", b"resent-from", b"resent-reply-to", b"resent-date", b"resent-message-id"))
_SENDERS = frozenset(
    b"sender from reply-to return-receipt-to errors-to return-path resent-sender resent-from resent-reply-to".split()
)
_REMOVED = frozenset((b"bcc", b"resent-bcc", b"return-path", b"content-length"))
_NOT_SHOWN = b"Cc: recipient list not shown: ;\n"


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

    `recipients` are those that count; `return_path` is None where the message has none.
    """

    __slots__ = ("lines", "recipients", "resent", "return_path", "seen")

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.recipients: list[bytes] = []
        self.return_path: bytes | None = None
        self.resent = False
        self.seen: set[bytes] = set()


def rewrite_header(fields: list[Field], names: "Names", ignored: frozenset[bytes]) -> Header:
    """Return the header with complete addresses. Fields in `ignored` are removed unread. Raises FieldError."""
    header = Header()
    resent_recipients: list[bytes] = []
    for field in fields:
        name = field.name
        if name in ignored:
            continue
        header.seen.add(name)
        data = field.data
        if name in _RECIPIENTS or name in _RESENT_RECIPIENTS or name in _SENDERS:
            data, addresses = _rewrite_field(field, names)
            if name in _RECIPIENTS:
                header.recipients += addresses
            elif name in _RESENT_RECIPIENTS:
                resent_recipients += addresses
            elif name == b"return-path" and header.return_path is None and addresses:
                header.return_path = addresses[0]
        if name not in _REMOVED:
            header.lines.append(data)
    header.resent = not header.seen.isdisjoint(_RESENT | _RESENT_RECIPIENTS)
    if header.resent:
        header.recipients = resent_recipients
    return header


def _rewrite_field(field: Field, names: "Names") -> tuple[bytes, list[bytes]]:
    head, colon, body = field.data.partition(b":")
    try:
        body, addresses = rewrite_list(body, names, len(head) + 1, field.name in _SENDERS)
    except FormatError as error:
        raise FieldError(head.strip().decode("ascii", "replace"), field.line, str(error)) from error
    return head + colon + body, addresses


def missing_fields(
    header: Header, date: bytes, message_id: "Callable[[], bytes]", author: "Callable[[], bytes]"
) -> list[bytes]:
    """Return the fields that must be added, in qmail-inject's order; Resent- forms where the message is resent.

    `message_id` and `author` are called only where their field is missing.
    """
    prefix = b"Resent-" if header.resent else b""
    small = prefix.lower()
    added = []
    if small + b"date" not in header.seen:
        added.append(prefix + b"Date: " + date + b"\n")
    if small + b"message-id" not in header.seen:
        added.append(prefix + b"Message-ID: " + message_id() + b"\n")
    if small + b"from" not in header.seen:
        added.append(prefix + b"From: " + author() + b"\n")
    if small + b"to" not in header.seen and small + b"cc" not in header.seen:
        added.append(prefix + _NOT_SHOWN)
    return added
