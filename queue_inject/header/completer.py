"""Completes the header of a message for sending, as qmail-inject(8) and qmail-header(5) say.

Addresses get their missing parts, fields that must not be sent are removed (Bcc for one), and missing fields are added:
Date, Message-ID, From, and Mail-Followup-To if it was asked for. Fields that need no change stay byte for byte. The
result has the envelope too: its sender and its recipients.

The functions above `ControlNames` are pure. A `Completer` adds what comes from the process: options, environment,
clock, process id and control files. It is made once and completes any number of messages; each control file is read
once, when it is needed.

A field that cannot be parsed stays as it is: often a stranger wrote it. Of one that names recipients, the addresses
that can be read count, and `unread` has its FieldError, which names the field and its line. A message whose recipients
are arguments keeps every field in which no address must be completed: a changed one would break its DKIM signature.
"""

import os
import time

from queue_base.control import read_line, read_me
from queue_base.durable import read_file
from queue_base.errors import Permanent, Temporary, reason
from queue_base.home import Home, trusted_variable
from queue_base.queue.writer import mail_date
from queue_inject.header.complete_addresses import (
    complete_argument,
    plain_addresses,
    readable_addresses,
    rewrite_list,
)
from queue_inject.header.fields import Field
from queue_inject.header.identity import (
    Identity,
    add_verp_suffix,
    make_author,
    make_message_id,
    make_sender,
)
from queue_wire.format_error import FieldError, FormatError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Set

    from queue_inject.header.complete_addresses import Names

# What the addresses of a field are for. To and Cc also make up Mail-Followup-To.
_TO_OR_CC, _RECIPIENT, _RESENT_RECIPIENT, _SENDER = range(4)
_KINDS = {b"to": _TO_OR_CC, b"cc": _TO_OR_CC, b"bcc": _RECIPIENT, b"apparently-to": _RECIPIENT}
_KINDS |= dict.fromkeys((b"resent-to", b"resent-cc", b"resent-bcc"), _RESENT_RECIPIENT)
_KINDS |= dict.fromkeys(b"sender from reply-to return-receipt-to errors-to return-path".split(), _SENDER)
_KINDS |= dict.fromkeys((b"resent-sender", b"resent-from", b"resent-reply-to"), _SENDER)
_RESENT = frozenset(
    b"resent-sender resent-from resent-reply-to resent-to resent-cc resent-bcc resent-date resent-message-id".split()
)
_REMOVED = frozenset((b"bcc", b"resent-bcc", b"return-path", b"content-length", b"notice-requested-upon-delivery-to"))
_NOT_SHOWN = b"Cc: recipient list not shown: ;\n"
# The tokens of the full parser take up to 250 bytes of memory for each byte of a field.
FIELD_MAX = 1 << 20


class RewrittenHeader:
    """A header with complete addresses.

    lines: its fields; seen: the names of all fields, of removed ones too; recipients: the addresses that the message
    goes to; followup: the addresses of each To and Cc; return_path: the address of Return-Path, or None; resent:
    whether there is a Resent- field, so that only the Resent- recipients count; unread: the errors of fields of
    recipients that count.
    """

    __slots__ = ("followup", "lines", "recipients", "resent", "return_path", "seen", "unread")

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.followup: list[list[bytes]] = []
        self.recipients: list[bytes] = []
        self.return_path: bytes | None = None
        self.resent = False
        self.seen: set[bytes] = set()
        self.unread: list[FieldError] = []


def rewrite_header(
    fields: list[Field], names: "Names", ignored: frozenset[bytes], keeps: bool = False
) -> RewrittenHeader:
    """Return the header with complete addresses. Fields in `ignored` are removed unread.

    `keeps`: no recipients are taken from it, and a field changes only where an address must be completed.
    """
    header = RewrittenHeader()
    seen, lines = header.seen, header.lines
    resent_recipients: list[bytes] = []
    resent_unread: list[FieldError] = []
    for field in fields:
        name, data = field.name, field.data
        if name in ignored:
            continue
        seen.add(name)
        kind = _KINDS.get(name)
        if kind is not None:
            try:
                data, addresses = _rewrite_field(field, names, kind == _SENDER, keeps)
            except FormatError as error:
                addresses = []
                if kind != _SENDER and not keeps:
                    head, _, body = data.partition(b":")
                    addresses = readable_addresses(body, names)
                    unread = FieldError(head.strip().decode("ascii", "replace"), field.line, str(error))
                    (resent_unread if kind == _RESENT_RECIPIENT else header.unread).append(unread)
            if kind == _TO_OR_CC:
                header.followup.append(addresses)
            if kind in (_TO_OR_CC, _RECIPIENT):
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
        header.unread = resent_unread
    return header


def _rewrite_field(field: Field, names: "Names", sender: bool, keeps: bool) -> tuple[bytes, list[bytes]]:
    """Return the field with complete addresses, and the addresses. Raises FormatError."""
    data = field.data
    head, colon, body = data.partition(b":")
    plain = plain_addresses(body)
    if plain is not None:
        return data, plain
    if len(body) > FIELD_MAX:
        raise FormatError(f"it is over {FIELD_MAX} bytes, and not all of its addresses are plain and complete")
    asked: list[str] = []

    def name_to_add(kind: str) -> bytes:
        asked.append(kind)
        return names(kind)

    body, addresses = rewrite_list(body, name_to_add, len(head) + 1, sender)
    return data if keeps and not asked else head + colon + body, addresses


def missing_fields(
    header: RewrittenHeader,
    date: "Callable[[], bytes]",
    message_id: "Callable[[], bytes]",
    author: "Callable[[], bytes]",
) -> list[bytes]:
    """Return the fields to add, in qmail-inject's order, with the prefix Resent- if the message is resent.

    `date`, `message_id` and `author` are called only if their field is missing.
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


def followup_field(fields: list[list[bytes]], lists: "Set[bytes]") -> bytes:
    """Return Mail-Followup-To with the addresses of To and Cc, or nothing if none of them is in `lists`.

    An answer to the list then does not reach its author twice. `fields` has the addresses of each To and Cc. Those of
    the last field come first, as qmail-inject gathers addresses from right to left.
    """
    # Imported here because few users have lists.
    from queue_wire.address import quote_address

    addresses = [address for field in reversed(fields) for address in field]
    if lists.isdisjoint(address.lower() for address in addresses):
        return b""
    return b"Mail-Followup-To: " + b",\n  ".join(map(quote_address, addresses)) + b"\n"


def read_lists(path: str) -> frozenset[bytes]:
    """Return the addresses of mailing lists in a file, in lower case; none if there is no file. Raises Temporary."""
    # Imported here because few users have such a file.
    from queue_wire.control.lines import unpack_set

    try:
        return unpack_set(read_file(path))
    except FileNotFoundError:
        return frozenset()
    except OSError as error:
        raise Temporary(f"unable to read {path}, the file of QUEUE_MFTFILE: {reason(error)}") from error


class ControlNames:
    """defaulthost, defaultdomain, plusdomain and idhost: from the environment, else from control/, else `me`."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._known: dict[str, bytes] = {}

    def __call__(self, kind: str) -> bytes:
        """Return the value. Raises Temporary if no file has it."""
        if kind not in self._known:
            variable = kind.upper().encode("ascii")
            name = os.environb.get(b"QUEUE_" + variable) or os.environb.get(b"QMAIL" + variable)
            name = name or read_line(self._home, kind, b"") or read_me(self._home)
            self._known[kind] = name.removesuffix(b".")
        return self._known[kind]


def complete_option(what: str, address: bytes, names: ControlNames) -> bytes:
    """Return an address of the command line, completed. Raises Permanent."""
    try:
        return complete_argument(address, names)
    except FormatError as error:
        shown = address[:80].decode("ascii", "backslashreplace")
        raise Permanent(f"unable to use {what} {shown!r}: {error}; nothing was queued") from error


def choose_recipients(mode: str, arguments: list[bytes], header: list[bytes]) -> list[bytes]:
    """Return the recipients of a message, of those in the arguments and those in the header.

    Mode a: the arguments; h: the header; H: both; A: the arguments, or the header if there are none.
    """
    if mode == "A":
        return arguments or header
    return {"a": arguments, "h": header, "H": arguments + header}[mode]


class CompletedHeader:
    """A header to send, and its envelope.

    text: the fields, without the empty line after them; recipients: empty if neither arguments nor fields name any;
    unread: the errors of fields that name recipients of whom some cannot be read.
    """

    __slots__ = ("recipients", "sender", "text", "unread")

    def __init__(self, text: bytes, sender: bytes, recipients: list[bytes], unread: list[FieldError]) -> None:
        self.text = text
        self.sender = sender
        self.recipients = recipients
        self.unread = unread


class Completer:
    """Completes messages for one process, with the sender and the recipients of its command line.

    `mode` is that of choose_recipients; `unique` removes repeated recipients. Raises Permanent for an argument that is
    no address, Temporary for a control file that cannot be read.
    """

    def __init__(
        self, home: Home, mode: str, sender: bytes | None, recipients: list[bytes], unique: bool = False
    ) -> None:
        self._mode = mode
        self._unique = unique
        self._names = ControlNames(home)
        self._identity = Identity(os.environb)
        self._ignored = self._identity.ignored_fields()
        self._sender = sender and complete_option("sender", sender, self._names)
        arguments = [] if mode == "h" else recipients
        self._arguments = [complete_option("recipient", each, self._names) for each in arguments]
        self._default_sender: bytes | None = None
        self._author: bytes | None = None
        self._stamp = 0
        path = trusted_variable("QUEUE_MFTFILE") or trusted_variable("QMAILMFTFILE")
        self._lists: frozenset[bytes] = read_lists(path) if path else frozenset()

    def complete(self, fields: list[Field], now: int) -> CompletedHeader:
        """Return the completed header of a message, `now` being nanoseconds since the epoch.

        Raises FieldError if there is no recipient because a field cannot be parsed, FormatError, and Temporary for a
        control file that cannot be read.
        """
        keeps = self._mode == "a" or (self._mode == "A" and bool(self._arguments))
        header = rewrite_header(fields, self._names, self._ignored, keeps)
        recipients = choose_recipients(self._mode, self._arguments, header.recipients)
        if not recipients and header.unread:
            raise header.unread[0]
        if self._unique:
            recipients = list(dict.fromkeys(recipients))
        sender = self._sender
        if sender is None:
            if header.return_path is not None:
                sender = add_verp_suffix(header.return_path, self._identity)
            else:
                sender = self._make_sender(now)
        added = missing_fields(
            header, lambda: self._make_date(now), lambda: self._make_message_id(now), self._make_author
        )
        if self._lists and not header.resent and b"mail-followup-to" not in header.seen:
            added.append(followup_field(header.followup, self._lists))
        return CompletedHeader(b"".join(added + header.lines), sender, recipients, header.unread)

    def _make_sender(self, now: int) -> bytes:
        sender = self._default_sender
        if sender is None:
            sender = make_sender(self._identity, self._names, now // 10**9, os.getpid())
            # With letter m each message has a sender of its own.
            if b"m" not in self._identity.letters:
                self._default_sender = sender
        return sender

    def _make_author(self) -> bytes:
        if self._author is None:
            self._author = make_author(self._identity, self._names)
        return self._author

    def _make_date(self, now: int) -> bytes:
        return mail_date(now // 10**9).encode("ascii")

    def _make_message_id(self, now: int) -> bytes:
        # Each message of a process gets another one, even if the clock stands still or is set back.
        self._stamp = stamp = max(self._stamp + 1, now // 1000)
        second, microsecond = divmod(stamp, 10**6)
        text = time.strftime("%Y%m%d%H%M%S", time.gmtime(second)) + f".{microsecond:06}"
        return make_message_id(text, os.getpid(), self._names("idhost"))
