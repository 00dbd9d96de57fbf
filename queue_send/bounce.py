"""The text of a bounce: an RFC 3464 report in three parts. Pure: values in, bytes out.

1. text/plain for people. It begins `Hi. This is the`, and has one paragraph a recipient that begins
   with `<`, as QSBMF asks (cr.yp.to/proto/qsbmf.txt), so that mailing list programs understand it.
2. message/delivery-status (RFC 3464), in ASCII as it must be; addresses beyond that as RFC 6533 writes them.
3. text/rfc822-headers: the header of the message (RFC 6522).
"""

import re
from email.utils import formatdate
from typing import NamedTuple

LINE_MOST = 900  # Bytes of what strangers wrote in one line; RFC 5322 allows 998 with our own words.

_STATUS = re.compile(rb"(?<![\d.])([45]\.\d{1,3}\.\d{1,3})(?![\d.])")
_REPLY = re.compile(rb"Remote host said: ([2345]\d\d[^\n]*)")


class BounceFacts(NamedTuple):
    """What a bounce says. Times in seconds since the epoch; `failures` are (recipient, reason); `unique` names it."""

    me: bytes
    bouncefrom: bytes
    recipient: bytes
    sender: bytes
    failures: list[tuple[bytes, bytes]]
    header: bytes
    birth: int
    now: int
    unique: str


def compose_bounce(facts: BounceFacts) -> bytes:
    """Return the bounce as a message with LF line ends."""
    text, status, header = _text(facts), _status(facts), _clean_header(facts.header)
    boundary = _boundary(facts.unique, text + status + header)
    head = [
        b"Date: " + formatdate(facts.now).encode(),
        b"From: Mail Delivery System <%s>" % _token(facts.bouncefrom),
        b"To: <%s>" % _token(facts.recipient) if facts.recipient else b"To: undisclosed-recipients:;",
        b"Subject: failure notice",
        b"Message-ID: <%s@%s>" % (facts.unique.encode(), _token(facts.me)),
        b"Auto-Submitted: auto-replied",
        b"MIME-Version: 1.0",
        b"Content-Type: multipart/report; report-type=delivery-status;",
        b'\tboundary="%s"' % boundary,
        b"Content-Transfer-Encoding: 8bit",
        b"",
        b"This is a delivery report in MIME format (RFC 3464).",
    ]
    parts = [
        (b"text/plain; charset=utf-8", text),
        (b"message/delivery-status", status),
        (b"text/rfc822-headers", header),
    ]
    body = b"".join(
        b"\n--%s\nContent-Type: %s\nContent-Transfer-Encoding: 8bit\n\n%s" % (boundary, kind, part)
        for kind, part in parts
    )
    return b"\n".join(head) + b"\n" + body + b"\n--%s--\n" % boundary


def _text(facts: BounceFacts) -> bytes:
    if facts.sender:
        lines = [
            b"Hi. This is the queue-send program at %s." % _token(facts.me),
            b"Your message could not be delivered to the addresses below. This is final:",
            b"nobody will try them again. The reason stands under each address.",
        ]
    else:
        lines = [
            b"Hi. This is the queue-send program at %s." % _token(facts.me),
            b"A bounce could not be delivered to the address below, so it comes to you.",
        ]
    paragraphs = [b"<%s>:\n%s" % (_readable(recipient), _readable(reason)) for recipient, reason in facts.failures]
    return b"\n".join(lines) + b"\n\n" + b"\n\n".join(paragraphs) + b"\n"


def _status(facts: BounceFacts) -> bytes:
    fields = [
        b"Reporting-MTA: dns; %s\nArrival-Date: %s\n" % (_ascii(_token(facts.me)), formatdate(facts.birth).encode()),
    ]
    for recipient, reason in facts.failures:
        found = _STATUS.search(reason)
        reply = _REPLY.search(reason)
        kind, text = (b"smtp", reply[1]) if reply else (b"x-queue-suite", reason.strip().replace(b"\n", b" "))
        fields.append(
            b"Final-Recipient: %s\nAction: failed\nStatus: %s\nDiagnostic-Code: %s; %s\n"
            % (_typed_address(recipient), found[1] if found else b"5.0.0", kind, _ascii(_readable(text))),
        )
    return b"\n".join(fields)


def _clean_header(header: bytes) -> bytes:
    """Return the header with nothing in it that could end its part early or be no line of a message."""
    lines = header.replace(b"\r", b"").replace(b"\0", b"_").split(b"\n")
    return b"".join(line[:LINE_MOST] + b"\n" for line in lines if line)


def _token(value: bytes) -> bytes:
    """Return an address or host as it may stand in a header field: control characters become `_`, cut at LINE_MOST."""
    return bytes(byte if byte > 32 and byte != 127 else 0x5F for byte in value[:LINE_MOST])


def _typed_address(address: bytes) -> bytes:
    """Return `type; address` for a status field: rfc822, or utf-8 with embedded characters (RFC 6533, section 3)."""
    token = _token(address)
    if token.isascii():
        return b"rfc822; " + token
    chars = token.decode("utf-8", "replace")
    embedded = "".join(char if char.isascii() and char != "\\" else f"\\x{{{ord(char):X}}}" for char in chars)
    return b"utf-8; " + embedded.encode()[:LINE_MOST]


def _ascii(value: bytes) -> bytes:
    """Return text with a `?` for each character that is not ASCII."""
    return value.decode("utf-8", "replace").encode("ascii", "replace")


def _readable(value: bytes) -> bytes:
    """Return text as UTF-8, without control characters, its lines cut at LINE_MOST."""
    lines = []
    for line in value.decode("utf-8", "replace").split("\n"):
        shown = "".join(char if char >= " " and char != "\x7f" else " " for char in line.replace("\r", ""))
        lines.append(shown.encode()[:LINE_MOST].decode("utf-8", "ignore").encode())
    return b"\n".join(lines)


def _boundary(unique: str, content: bytes) -> bytes:
    """Return a boundary that does not stand in the content."""
    number = 0
    while True:
        boundary = b"report-%s-%d" % (unique.encode(), number)
        if boundary not in content:
            return boundary
        number += 1
