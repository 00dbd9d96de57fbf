"""The mail of an experiment: how much of it, for whom, and over which routes. The same bytes for both sides."""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

SENDER = "ann@bench.example"
RELAY = "relay.example"
SMALL = 2048
_LINE = b"A line of an ordinary message, of some length.\n"


class Mail(NamedTuple):
    """So many messages of `size` bytes, each for one recipient, in these domains in turn."""

    messages: int
    size: int = SMALL
    domains: Sequence[str] = (RELAY,)

    def recipients(self) -> Iterator[str]:
        """Yield the recipient of each message."""
        for number in range(self.messages):
            yield f"bob{number}@{self.domains[number % len(self.domains)]}"


class Routes(NamedTuple):
    """The port of 127.0.0.1 that takes all mail, and address and port of domains that have their own."""

    port: int
    others: Mapping[str, tuple[str, int]] = MappingProxyType({})


def letter(size: int, subject: str = "a message") -> bytes:
    """Return a message of `size` bytes, with a complete header."""
    head = (
        f"From: Ann <{SENDER}>\nTo: Bob <bob@{RELAY}>\nSubject: {subject}\n"
        f"Date: Fri, 20 Nov 2026 10:00:00 +0000\nMessage-ID: <1@bench.example>\n\n"
    ).encode()
    room = max(1, size - len(head))
    body = _LINE * (room // len(_LINE) + 1)
    return head + body[: room - 1] + b"\n"
