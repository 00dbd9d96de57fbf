"""The text of a bounce: an RFC 3464 report in three parts. Pure: values in, bytes out.

1. text/plain for people. It begins `Hi. This is the`, and has one paragraph a recipient that begins
   with `<`, as QSBMF asks (cr.yp.to/proto/qsbmf.txt), so that mailing list programs understand it.
2. message/delivery-status (RFC 3464), in ASCII as it must be; addresses beyond that as RFC 6533 writes them.
3. text/rfc822-headers: the header of the message (RFC 6522).
"""

import re
from collections.abc import Generator, Iterator
from email.utils import formatdate
from typing import NamedTuple

from queue_wire.failures import TEXT_MOST

LINE_MOST = 900  # Bytes of what strangers wrote in one line; RFC 5322 allows 998 with our own words.
REASONS_MOST = 500_000  # Bytes of reasons in each of the two lists of a bounce.
STEP = 100  # Failures that are put into words at a time.
LEFT_OUT = b"Reason left out."

# The look behind comes after the first digit, because a pattern that begins with a digit is searched for faster.
_STATUS = re.compile(rb"([45](?<![\d.].)\.\d{1,3}\.\d{1,3})(?![\d.])", re.DOTALL)
_REPLY = re.compile(rb"Remote host said: ([2345]\d\d[^\n]*)")
_TOKEN = bytes(byte if byte > 32 and byte != 127 else ord("_") for byte in range(256))
_PRINTED = bytes(byte if (byte >= 32 and byte != 127) or byte == 10 else ord(" ") for byte in range(256))


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
    return b"".join(compose_steps(facts))


def compose_steps(facts: BounceFacts) -> Iterator[bytes]:
    """Yield the bounce in pieces, some of them empty; between two of them lies work for STEP failures at most.

    Every address is in both lists, with its status. Each list has REASONS_MOST bytes of reasons; the addresses
    after that stand without theirs, so that a host's long replies to many recipients make no huge bounce.
    """
    texts, statuses = [b""], [_status_head(facts)]
    text_room = status_room = REASONS_MOST
    left_out = 0
    for start in range(0, len(facts.failures), STEP):
        text, status = [], []
        for recipient, whole in facts.failures[start : start + STEP]:
            reason = whole[:TEXT_MOST]
            shown = _readable(reason) if text_room else b""
            text_room = max(0, text_room - len(shown))
            left_out += not text_room
            text.append(b"\n<%s>:\n%s\n" % (_readable(recipient), shown if text_room else LEFT_OUT))
            said = _diagnostic(reason) if status_room else b""
            status_room = max(0, status_room - len(said))
            status.append(_status_of(recipient, reason, said if status_room else b""))
        texts.append(b"".join(text))
        statuses.append(b"".join(status))
        yield b""
    texts[0] = _greeting(facts, left_out)
    header = _clean_header(facts.header)
    boundary = yield from _boundary(facts.unique, [*texts, *statuses, header])
    yield _head(facts, boundary)
    yield _part(boundary, b"text/plain; charset=utf-8")
    yield from texts
    yield _part(boundary, b"message/delivery-status")
    yield from statuses
    yield _part(boundary, b"text/rfc822-headers") + header + b"\n--%s--\n" % boundary


def _head(facts: BounceFacts, boundary: bytes) -> bytes:
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
    return b"\n".join(head) + b"\n"


def _part(boundary: bytes, kind: bytes) -> bytes:
    return b"\n--%s\nContent-Type: %s\nContent-Transfer-Encoding: 8bit\n\n" % (boundary, kind)


def _greeting(facts: BounceFacts, left_out: int) -> bytes:
    lines = [b"Hi. This is the queue-send program at %s." % _token(facts.me)]
    if facts.sender:
        lines += [
            b"Your message could not be delivered to the addresses below. This is final:",
            b"nobody will try them again. The reason stands under each address.",
        ]
    else:
        lines.append(b"A bounce could not be delivered to the address below, so it comes to you.")
    if left_out:
        lines.append(b"To keep this report short, the last %d addresses stand without their reasons." % left_out)
    return b"\n".join(lines) + b"\n"


def _status_head(facts: BounceFacts) -> bytes:
    me, birth = _ascii(_token(facts.me)), formatdate(facts.birth).encode()
    return b"Reporting-MTA: dns; %s\nArrival-Date: %s\n" % (me, birth)


def _status_of(recipient: bytes, reason: bytes, said: bytes) -> bytes:
    """Return the fields for one recipient; Diagnostic-Code is left out where `said` is empty (RFC 3464 allows it)."""
    found = _STATUS.search(reason)
    return b"\nFinal-Recipient: %s\nAction: failed\nStatus: %s\n%s" % (
        _typed_address(recipient),
        found[1] if found else b"5.0.0",
        b"Diagnostic-Code: %s\n" % said if said else b"",
    )


def _diagnostic(reason: bytes) -> bytes:
    reply = _REPLY.search(reason)
    kind, text = (b"smtp", reply[1]) if reply else (b"x-queue-suite", reason.strip().replace(b"\n", b" "))
    return b"%s; %s" % (kind, _ascii(_readable(text)))


def _clean_header(header: bytes) -> bytes:
    """Return the header with nothing in it that could end its part early or be no line of a message."""
    lines = header.replace(b"\r", b"").replace(b"\0", b"_").split(b"\n")
    return b"".join(line[:LINE_MOST] + b"\n" for line in lines if line)


def _token(value: bytes) -> bytes:
    """Return an address or host as it may stand in a header field: control characters become `_`, cut at LINE_MOST."""
    return value[:LINE_MOST].translate(_TOKEN)


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
    return value if value.isascii() else value.decode("utf-8", "replace").encode("ascii", "replace")


def _readable(value: bytes) -> bytes:
    """Return text as UTF-8, without control characters, its lines cut at LINE_MOST."""
    shown = value.translate(_PRINTED, b"\r")
    if not shown.isascii():
        shown = shown.decode("utf-8", "replace").encode()
    if len(shown) <= LINE_MOST:
        return shown
    return b"\n".join(line[:LINE_MOST].decode("utf-8", "ignore").encode() for line in shown.split(b"\n"))


def _boundary(unique: str, pieces: list[bytes]) -> Generator[bytes, None, bytes]:
    """Return a boundary that stands in no piece, each of which is whole lines; yield as compose_steps does."""
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
