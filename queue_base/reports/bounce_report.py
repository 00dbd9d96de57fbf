"""The text of a bounce (RFC 3464). Pure.

The part for people begins with `Hi. This is the`, and has one paragraph per recipient, which begins with `<`, as QSBMF
requires (cr.yp.to/proto/qsbmf.txt), so that mailing list programs understand it.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from queue_base.reports.dsn import Dsn, compose_dsn, token


class BounceFacts(NamedTuple):
    """The contents of a bounce. Times are in seconds since the epoch; `unique` is for its Message-ID and boundary.

    `failures` are (recipient, text), taken one by one, so that they need not be in memory.
    """

    me: bytes
    bouncefrom: bytes
    recipient: bytes
    sender: bytes
    failures: Iterable[tuple[bytes, bytes]]
    header: bytes
    birth: int
    now: int
    unique: str


def compose_steps(facts: BounceFacts) -> Iterator[bytes]:
    """Yield the bounce in pieces, as compose_dsn does."""
    report = Dsn(
        me=facts.me,
        bouncefrom=facts.bouncefrom,
        recipient=facts.recipient,
        subject=b"failure notice",
        greeting=_greeting(facts),
        action=b"failed",
        classes=b"45",
        default=b"5.0.0",
        words=b"",
        more=b"",
        recipients=facts.failures,
        header=facts.header,
        birth=facts.birth,
        now=facts.now,
        unique=facts.unique,
    )
    return compose_dsn(report)


def _greeting(facts: BounceFacts) -> list[bytes]:
    first = b"Hi. This is the queue-send program at %s." % token(facts.me)
    if not facts.sender:
        return [first, b"A bounce could not be delivered to the address below, so it comes to you."]
    return [
        first,
        b"Your message could not be delivered to the addresses below. This is final:",
        b"nobody will try them again. The reason stands under each address.",
    ]
