"""The text of a delay notice: an RFC 3464 report (dsn.py) with `Action: delayed`. Pure: values in, bytes out.

It does not begin with `Hi. This is the`: a mailing list program would take it for a bounce (QSBMF), and its reader
for one who cannot be reached.
"""

import re
from collections.abc import Iterable, Iterator
from email.utils import formatdate
from typing import NamedTuple

from queue_send.dsn import Dsn, compose_dsn, token

SUBJECT = b"Delayed Mail (still being retried)"  # Postfix's, which filters know.
_UNKNOWN = b"No delivery to it has succeeded so far."
# As in bounce.py; a status that begins with 5 would be final.
_STATUS = re.compile(rb"(4(?<![\d.].)\.\d{1,3}\.\d{1,3})(?![\d.])", re.DOTALL)


class DelayFacts(NamedTuple):
    """What a delay notice says. Times in seconds since the epoch; `until` is when the message fails at the latest.

    `recipients` are those that are left, as dsn.py has them: (address, what the last attempt reported), or None;
    `recipient` is who is told; `unique` names the notice.
    """

    me: bytes
    bouncefrom: bytes
    recipient: bytes
    recipients: Iterable[tuple[bytes, bytes] | None]
    header: bytes
    birth: int
    until: int
    now: int
    unique: str


def compose_notice(facts: DelayFacts) -> Iterator[bytes]:
    """Return the notice as a message with LF line ends, in pieces, as compose_dsn yields them."""
    until = formatdate(facts.until).encode()
    report = Dsn(
        me=facts.me,
        bouncefrom=facts.bouncefrom,
        recipient=facts.recipient,
        subject=SUBJECT,
        greeting=[
            b"This is the queue-send program at %s." % token(facts.me),
            b"Your message has not been delivered to the addresses below yet. This is only a",
            b"warning: you need not send it again. It will be tried until",
            b"%s. The last reason, if it is known, stands under each address." % until,
        ],
        action=b"delayed",
        status=_STATUS,
        default=b"4.0.0",
        words=_UNKNOWN,
        # RFC 3464, section 2.3.9.
        more=b"Will-Retry-Until: %s\n" % until,
        # As bounces have it: an empty line in an address would begin another paragraph.
        recipients=(
            None if pair is None else (pair[0].replace(b"\n", b"_"), pair[1]) for pair in facts.recipients
        ),
        header=facts.header,
        birth=facts.birth,
        now=facts.now,
        unique=facts.unique,
    )
    return compose_dsn(report)
