"""The Received field that the server puts at the head of a message (RFC 5321 section 4.4, RFC 3848).

    Received: from HELLO (NAME [192.0.2.1])
      (using TLSv1.3 with cipher TLS_AES_256_GCM_SHA384)
      by mx.example.org with ESMTPSA id 2663293;
      23 Nov 2026 01:00:00 -0000

Where the listener has the option `authname`, `authenticated as joe` is beside the cipher: else a login, which may be no
address, is for the log alone, and the A of the keyword says that there was one.

The number is that of the message in the queue. queue-intake knows it, and puts it in the place of NUMBER_PLACE.

What the client says of itself, and names from DNS, are shown with `_` for every character that has a meaning in a
header. So they cannot end the field, or be read as another part of it.
"""

import re

from queue_base.queue.writer import mail_date
from queue_smtpd.sessions.client_facts import ClientFacts
from queue_wire.pipes.qmtp import NUMBER_PLACE

_UNSAFE = re.compile(rb"[^A-Za-z0-9.:@+\[\]_-]")
_NAME_MAX = 255


def pack_received(
    client: ClientFacts, me: bytes, seconds: int, smtputf8: bool = False, names_user: bool = False
) -> bytes:
    """Return the field with its LF, and with NUMBER_PLACE."""
    name = shown_name(client.name) or b"unknown"
    address = client.shown_address.encode()
    literal = b"IPv6:" + address if b":" in address else address
    notes = []
    if client.tls is not None:
        notes.append(b"using %s with cipher %s" % (shown_name(client.tls.version), shown_name(client.tls.cipher)))
    if client.user and names_user:
        notes.append(b"authenticated as " + shown_name(client.user))
    lines = [b"Received: from %s (%s [%s])" % (shown_name(client.hello) or b"unknown", name, literal)]
    if notes:
        lines.append(b"(%s)" % b"; ".join(notes))
    lines.append(b"by %s with %s id %s;" % (shown_name(me), protocol_keyword(client, smtputf8), NUMBER_PLACE))
    lines.append(mail_date(seconds).encode())
    return b"\n  ".join(lines) + b"\n"


def protocol_keyword(client: ClientFacts, smtputf8: bool = False) -> bytes:
    """Return the keyword of RFC 3848, or of RFC 6531 section 4.3 for a message with SMTPUTF8; or qmail's, QMTP.

    There is none for HELO under TLS or with AUTH.
    """
    if client.qmtp:
        return b"QMTP"
    if not client.esmtp:
        return b"SMTP"
    word = b"UTF8SMTP" if smtputf8 else b"ESMTP"
    return word + (b"S" if client.tls is not None else b"") + (b"A" if client.user else b"")


def shown_name(name: bytes) -> bytes:
    """Return a name as a header may have it."""
    return _UNSAFE.sub(b"_", name[:_NAME_MAX])
