"""Messages of every kind that an mbox may hold, from a seeded generator: what is put in, and what must come out."""

import random
from collections.abc import Iterator
from typing import NamedTuple

# What is odd about a body, each with what makes it. The mbox's own signs first.
_FROMS = [
    *(b"From here on\n", b">From me\n", b">>From him\n", b" From x\n", b"From\n", b"from a\n", b"From \n"),
]
_LINES = [
    *(b"\n", b"\n\n", b".\n", b"..\n", b".x\n", b"--\n", b"\t tab\n", b"end  \n", b"a\rb\n", b"\r\n", b"x\r\n", b"\0"),
]
_TEXTS = [
    *(b"plain words\n", "grüße, 日本語\n".encode(), b"\xe9\xff latin\n", b"\x1b[31m\x07\n", b"=46rom =\n", b"\x7f\n"),
]
_FIELDS = [
    b"Subject: hello\n",
    b"Subject: folded\n\tonce\n  and again\n",
    b"Subject:\n",
    b"Subject:no space\n",
    b"SUBJECT : a space before the colon\n",
    "Subject: grüße\n".encode(),
    b"Subject: \xe9\xff\n",
    b"Subject: From the field\n",
    b"X-Long: " + b"word " * 2000 + b"\n",
    b"X-Odd!#$%&'*+-^_`|~: x\n",
    b"Received: from a by b; Fri, 20 Nov 2026 10:00:00 +0000\n" * 12,
    b"MIME-Version: 1.0\nContent-Type: multipart/mixed;\n boundary=\"From x\"\n",
    b"Resent-Comment: x\n",
    b"X-Trailing: x \t\n",
    b"List-Id: <a.b>\nList-Unsubscribe: <mailto:x@y>\n",
    b"DKIM-Signature: v=1; a=rsa-sha256;\n\tb=abc\n\t =\n",
]
# Fields that queue-inject takes away, as qmail-inject does.
_GONE = [b"Bcc: nobody at all:;\n", b"Return-Path: <back@example.org>\n", b"Content-Length: 12345\n"]
_MAX = 200_000


class Odd(NamedTuple):
    """A message as it is handed in, and its text as it must arrive: what comes before that is of the way it took."""

    message: bytes
    arrives: bytes


def odd_messages(count: int, recipient: bytes, seed: int = 0) -> Iterator[Odd]:
    """Yield messages to a recipient, no two the same, the same ones for the same seed."""
    source = random.Random(seed)
    for number in range(count):
        fields = [b"X-Number: %d\n" % number, b"Message-ID: <%d@example.org>\n" % number]
        fields += [b"From: Ann <ann@example.org>\n", b"To: %s\n" % recipient]
        fields += [b"Date: Fri, 20 Nov 2026 10:00:00 +0000\n"]
        fields += source.sample(_FIELDS, source.randrange(5))
        source.shuffle(fields)
        gone = source.sample(_GONE, source.randrange(3)) if source.random() < 0.2 else []
        # A folded or long field is whole in the list, so any place between two is one for another field.
        places = {source.randrange(len(fields) + 1): field for field in gone}
        given = b"".join(places.get(place, b"") + field for place, field in enumerate([*fields, b""]))
        body = _body(source)
        yield Odd(given + body, b"".join(fields) + _with_end(body))


def _body(source: random.Random) -> bytes:
    kind = source.random()
    if kind < 0.03:
        return b""
    if kind < 0.06:
        return b"\n"
    parts = [source.choice(source.choice([_FROMS, _LINES, _TEXTS])) for _ in range(source.randrange(1, 60))]
    if kind < 0.08:
        parts.append(b"x" * source.randrange(60_000, _MAX) + b"\n")
    if kind > 0.97:
        parts.append(source.randbytes(source.randrange(1, 5000)) + b"\n")
    body = b"\n" + b"".join(parts)
    return body if source.random() < 0.8 else body.rstrip(b"\n\r") or b"\n"


def _with_end(body: bytes) -> bytes:
    """An mbox cannot say that the last line has no end; a body without one gets it there."""
    return body if not body or body.endswith(b"\n") else body + b"\n"
