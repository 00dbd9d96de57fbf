"""What queue-remote reports: qmail-remote's wording, which log readers and people know.

A verdict is one letter (queue_wire.report) and text of whole lines; a number such as (#4.4.1) is an
enhanced status code (RFC 3463). `peer` is the address of the other host, as text.
"""

from queue_wire.smtp_reply import Reply

Verdict = tuple[bytes, bytes]

NOT_CONNECTED = b"Sorry, I wasn't able to establish an SMTP connection. (#4.4.1)\n"
NO_RESOURCES = b"System resources temporarily unavailable. (#4.3.0)\n"
NO_RECIPIENT_LEFT = b"None of the recipients has an address that SMTP can carry. (#5.1.3)\n"
INVOKED_IMPROPERLY = b"I (queue-remote) was invoked improperly. (#5.3.5)\n"


def no_message(reason: str) -> bytes:
    return b"Unable to read message. (#4.3.0)\n%s\n" % _line(reason)


def no_controls(reason: str) -> bytes:
    return b"Unable to read control files. (#4.3.0)\n%s\n" % _line(reason)


def internal_error(reason: str) -> bytes:
    return b"Internal error in queue-remote. (#4.3.0)\n%s\n" % _line(reason)


def unsendable(reason: str, code: str) -> bytes:
    return b"Sorry, SMTP cannot carry this address. (#%s)\n%s\n" % (code.encode(), _line(reason))


def too_large(peer: bytes, size: int, limit: int) -> bytes:
    return b"Sorry, %s takes no message over %d bytes; this one has %d. (#5.3.4)\n" % (peer, limit, size)


def not_smtp(peer: bytes, reason: str) -> bytes:
    return b"Connected to %s but it does not speak SMTP as I know it. (#4.5.0)\n%s\n" % (peer, _line(reason))


def connection_died(peer: bytes, critical: bool) -> bytes:
    """`critical` once the whole message was sent: the peer may have taken it."""
    return b"Connected to %s but connection died. %s(#4.4.2)\n" % (peer, b"Possible duplicate! " if critical else b"")


def greeting_failed(peer: bytes, reply: Reply) -> bytes:
    return b"Connected to %s but greeting failed.\n" % peer + _said(reply)


def name_rejected(peer: bytes, reply: Reply) -> bytes:
    return b"Connected to %s but my name was rejected.\n" % peer + _said(reply)


def sender_rejected(peer: bytes, reply: Reply) -> bytes:
    return b"Connected to %s but sender was rejected.\n" % peer + _said(reply)


def recipient_rejected(peer: bytes, reply: Reply) -> bytes:
    return b"%s does not like recipient.\n" % peer + _said(reply)


def giving_up(peer: bytes) -> bytes:
    return b"Giving up on %s.\n" % peer


def data_failed(peer: bytes, reply: Reply) -> bytes:
    return b"%s failed on DATA command.\n" % peer + _said(reply)


def message_failed(peer: bytes, reply: Reply) -> bytes:
    return b"%s failed after I sent the message.\n" % peer + _said(reply)


def accepted(peer: bytes, reply: Reply) -> bytes:
    return b"%s accepted message.\n" % peer + _said(reply)


def _said(reply: Reply) -> bytes:
    return b"Remote host said: %s\n" % reply.text


def _line(text: str) -> bytes:
    return text.replace("\n", "/").encode("utf-8", "backslashreplace")
