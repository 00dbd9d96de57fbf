"""A delivery status notification: an RFC 3464 report in three parts. Pure: values in, bytes out.

1. text/plain for people: the greeting, then one paragraph a recipient that begins with `<`.
2. message/delivery-status (RFC 3464), in ASCII.
3. text/rfc822-headers: the header of the message (RFC 6522).

bounce_report.py and queue_send.notify.delay give the contents.
"""

import re
from collections.abc import Generator, Iterable, Iterator
from email.utils import formatdate
from typing import NamedTuple

from queue_wire.address import (
    ascii_domain,
    dsn_address,
    has_control_character,
    quote_address,
    split_address,
    without_final_dot,
)
from queue_wire.failures import TEXT_MAX
from queue_wire.format_error import FormatError
from queue_wire.status_code import find_status

LINE_MAX = 900  # Bytes of foreign text in one line. RFC 5322 allows 998 with our own words.
REASONS_MAX = 500_000  # Bytes of reasons in each of the two lists of a report.
STEP = 20  # Recipients of one piece of work. One takes at most some 40 microseconds.
PIECE_MAX = 65536  # Bytes of a piece of the report, or little more.
LEFT_OUT = b"Reason left out."
LAST_DATE = 253402300799  # The end of the year 9999.
WORD_MAX = 60  # Bytes of the text of an encoded word, which may have 75 in all (RFC 2047 section 2).

# All lines of a reply; the reply that refused, if there is one.
_REPLIES = [
    re.compile(rb"Remote host said: ((%s\d\d)[^\n]*(?:\n\2(?=[ \n-]|\Z)[^\n]*)*)" % classes)
    for classes in (b"[45]", b"[23]")
]
_DOMAIN = re.compile(rb"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*|\[[A-Za-z0-9:.]+\]")
_TOKEN = bytes(byte if byte > 32 and byte != 127 else ord("_") for byte in range(256))
_PRINTED = bytes(byte if (byte >= 32 and byte != 127) or byte == 10 else ord(" ") for byte in range(256))

# 0xFF is no byte of UTF-8.
_NO_UTF_8 = bytes(byte if byte >= 32 and byte != 127 else 0xFF for byte in range(256))

Reported = tuple[bytes, bytes] | tuple[bytes, bytes, bytes]


class Dsn(NamedTuple):
    """The contents of a report. Times are in seconds since the epoch; `unique` is for its Message-ID and boundary.

    `recipients` are (address, text), the text empty if it is not known, or None if the next one takes time. A third
    member are whole lines for people about earlier attempts. Their status code is the one in the text, of a class in
    `classes`, else `default`; `words` replace an unknown text. `more` are fields at the end of each block.
    """

    me: bytes
    bouncefrom: bytes
    recipient: bytes
    subject: bytes
    greeting: list[bytes]
    action: bytes
    classes: bytes
    default: bytes
    words: bytes
    more: bytes
    recipients: Iterable[Reported | None]
    header: bytes
    birth: int
    now: int
    unique: str


def compose_dsn(facts: Dsn) -> Iterator[bytes]:
    """Yield the report in pieces, some of them empty; the work between two of them is for STEP recipients at most.

    Every address is in both lists, with its status. Each list has REASONS_MAX bytes of reasons; the addresses
    after that have none, so that long replies about many recipients do not make a huge report.
    """
    texts, statuses = _Pieces(), _Pieces()
    statuses.add(_status_head(facts))
    text_room = status_room = REASONS_MAX
    left_out = 0
    for number, pair in enumerate(facts.recipients):
        if pair is not None:
            recipient, reason = pair[0], pair[1][:TEXT_MAX]
            shown = _readable(reason or facts.words) if text_room else b""
            if text_room and len(pair) == 3 and pair[2]:
                shown = b"%s\n%s" % (shown.rstrip(b"\n"), _readable(pair[2]).rstrip(b"\n"))
            text_room = max(0, text_room - len(shown))
            left_out += not text_room
            texts.add(b"\n<%s>:\n%s\n" % (_readable(recipient), shown if text_room else LEFT_OUT))
            said = _diagnostic(reason) if status_room and reason else b""
            status_room = max(0, status_room - len(said))
            statuses.add(_status_of(facts, recipient, reason, said if status_room else b""))
        if pair is None or number % STEP == 0:
            yield b""
    greeting = _greeting(facts, left_out)
    header = _clean_header(facts.header)
    boundary = yield from _boundary(facts.unique, [greeting, *texts.take(), *statuses.take(), header])
    yield _head(facts, boundary)
    yield _part(boundary, b"text/plain; charset=utf-8") + greeting
    yield from texts.take()
    yield _part(boundary, b"message/delivery-status", b"7bit")
    yield from statuses.take()
    yield _part(boundary, b"text/rfc822-headers") + header + b"\n--%s--\n" % boundary


class _Pieces:
    """Text that grows: pieces of PIECE_MAX bytes, each of whole lines."""

    def __init__(self) -> None:
        self._whole: list[bytes] = []
        self._parts: list[bytes] = []
        self._held = 0

    def add(self, text: bytes) -> None:
        self._parts.append(text)
        self._held += len(text)
        if self._held >= PIECE_MAX:
            self.take()

    def take(self) -> list[bytes]:
        """Return all pieces so far."""
        if self._parts:
            self._whole.append(b"".join(self._parts))
            self._parts, self._held = [], 0
        return self._whole


def token(value: bytes) -> bytes:
    """Return an address or host as it may stand in a header field: control characters become `_`, cut at LINE_MAX."""
    return value[:LINE_MAX].translate(_TOKEN)


def dsn_date(seconds: int) -> bytes:
    """Return a time as a field has it: a file may be of any time, and what no field can have is the nearest one."""
    return formatdate(min(max(0, seconds), LAST_DATE)).encode()


def _head(facts: Dsn, boundary: bytes) -> bytes:
    head = [
        b"Date: " + dsn_date(facts.now),
        b"From: Mail Delivery System <%s>" % (_ascii_mailbox(facts.bouncefrom) or b"MAILER-DAEMON@" + _host(facts.me)),
        b"To: " + _header_recipient(facts.recipient),
        b"Subject: " + facts.subject,
        b"Message-ID: <%s@%s>" % (facts.unique.encode(), _host(facts.me)),
        b"Auto-Submitted: auto-replied",
        b"MIME-Version: 1.0",
        b"Content-Type: multipart/report; report-type=delivery-status;",
        b'\tboundary="%s"' % boundary,
        b"Content-Transfer-Encoding: 8bit",
        b"",
        b"This is a delivery report in MIME format (RFC 3464).",
    ]
    return b"\n".join(head) + b"\n"


def _header_recipient(address: bytes) -> bytes:
    """Return the body of a To field that parsers read without a defect.

    An address that a header in ASCII cannot hold is the name of an empty group (RFC 6857 section 3.1.8).
    """
    if not address:
        return b"undisclosed-recipients:;"
    mailbox = _ascii_mailbox(address)
    return b"<%s>" % mailbox if mailbox is not None else _encoded_words(address) + b" :;"


def _ascii_mailbox(address: bytes) -> bytes | None:
    """Return an address for a header, its domain with A-labels; None if it has no such form.

    Parsers read encoded words in a local part, also in quotes: `=?utf-8?q?ann?=@x.example` would be ann's.
    """
    local, domain = split_address(address)
    try:
        domain = without_final_dot(ascii_domain(domain))
    except FormatError:
        return None
    if not local.isascii() or b"=?" in local or has_control_character(local) or not _DOMAIN.fullmatch(domain):
        return None
    mailbox = quote_address(b"%s@%s" % (local, domain))
    return mailbox if len(mailbox) <= LINE_MAX else None


def _host(name: bytes) -> bytes:
    """Return the name of a host for a header, in ASCII."""
    try:
        return ascii_domain(token(name))
    except FormatError:
        return _ascii(token(name)).replace(b"?", b"_")


def _encoded_words(text: bytes) -> bytes:
    """Return text as encoded words (RFC 2047), a line each, with U+FFFD for what is no UTF-8 and for controls."""
    words = [""]
    for char in text.translate(_NO_UTF_8).decode("utf-8", "replace"):
        code = char if char.isascii() and char.isalnum() else "".join(f"={byte:02X}" for byte in char.encode())
        if len(words[-1]) + len(code) > WORD_MAX:
            words.append("")
        words[-1] += code
    return b"\n ".join([b"=?utf-8?q?%s?=" % word.encode() for word in words])


def _part(boundary: bytes, kind: bytes, encoding: bytes = b"8bit") -> bytes:
    return b"\n--%s\nContent-Type: %s\nContent-Transfer-Encoding: %s\n\n" % (boundary, kind, encoding)


def _greeting(facts: Dsn, left_out: int) -> bytes:
    lines = list(facts.greeting)
    if left_out:
        lines.append(b"To keep this report short, the last %d addresses stand without their reasons." % left_out)
    return b"\n".join(lines) + b"\n"


def _status_head(facts: Dsn) -> bytes:
    return b"Reporting-MTA: dns; %s\nArrival-Date: %s\n" % (_host(facts.me), dsn_date(facts.birth))


def _status_of(facts: Dsn, recipient: bytes, reason: bytes, said: bytes) -> bytes:
    """Return the fields for one recipient; Diagnostic-Code is left out where `said` is empty (RFC 3464 allows it)."""
    return b"\nFinal-Recipient: %s\nAction: %s\nStatus: %s\n%s%s" % (
        dsn_address(recipient, LINE_MAX),
        facts.action,
        find_status(reason, facts.classes) or facts.default,
        b"Diagnostic-Code: %s\n" % said if said else b"",
        facts.more,
    )


def _diagnostic(reason: bytes) -> bytes:
    reply = _REPLIES[0].search(reason) or _REPLIES[1].search(reason)
    if reply:
        return b"smtp; " + _ascii(_readable(reply[1].replace(b"\n", b"\n ")))
    return b"x-queue-suite; " + _ascii(_readable(reason.strip().replace(b"\n", b" ")))


def _clean_header(header: bytes) -> bytes:
    """Return the header without characters that could end its part or are not allowed in a message."""
    lines = header.replace(b"\r", b"").replace(b"\0", b"_").split(b"\n")
    return b"".join(line[:LINE_MAX] + b"\n" for line in lines if line)


def _ascii(value: bytes) -> bytes:
    """Return text with a `?` for each character that is not ASCII."""
    return value if value.isascii() else value.decode("utf-8", "replace").encode("ascii", "replace")


def _readable(value: bytes) -> bytes:
    """Return text as UTF-8, without control characters, its lines cut at LINE_MAX."""
    shown = value.translate(_PRINTED, b"\r")
    if not shown.isascii():
        shown = shown.decode("utf-8", "replace").encode()
    if len(shown) <= LINE_MAX:
        return shown
    return b"\n".join(line[:LINE_MAX].decode("utf-8", "ignore").encode() for line in shown.split(b"\n"))


def _boundary(unique: str, pieces: list[bytes]) -> Generator[bytes, None, bytes]:
    """Return a boundary that stands in no piece, each of which is whole lines; yield as compose_dsn does."""
    number = 0
    while True:
        boundary = b"report-%s-%d" % (unique.encode(), number)
        for piece in pieces:
            if boundary in piece:
                break
            yield b""
        else:
            return boundary
        number += 1
