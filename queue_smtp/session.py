"""What one SMTP connection is opened with, and the phases that it goes through."""

import enum
from typing import NamedTuple

from queue_smtp.auth import Credentials


class Phase(enum.Enum):
    """GREETING   the peer's greeting, EHLO or HELO, AUTH; then READY, or CLOSED
    STARTTLS   the caller does the handshake and says `secured`; the phase is GREETING again after it
    READY      between messages: `begin` starts one, `quit` ends it all
    ENVELOPE   MAIL, RCPT and DATA are under way
    MESSAGE    the caller sends the message (queue_smtp.dotstuff) and then says `message_sent`
    ANSWER     the answer to the message is awaited
    CLOSED     nothing more can be said; the caller closes the connection
    """

    GREETING = 1
    STARTTLS = 2
    READY = 3
    ENVELOPE = 4
    MESSAGE = 5
    ANSWER = 6
    CLOSED = 7


class Tls(enum.Enum):
    """NEVER: in clear. MAY: STARTTLS if offered. MUST: STARTTLS or nothing. DONE: under TLS from the first byte."""

    NEVER = 1
    MAY = 2
    MUST = 3
    DONE = 4


class Session(NamedTuple):
    """`peer` is the other host as texts name it, `name` what EHLO says; both bytes.

    `credentials` are those for AUTH, None for none. `pipelining` False keeps commands one by one, and
    `esmtp` False says HELO at once, whatever the peer offers. `policy` is what demands TLS, for texts; empty for
    nothing. `ours` are this host's names, in lower case: a peer that gives one as its own is this host; empty where
    that may be.
    """

    peer: bytes
    name: bytes
    tls: Tls = Tls.NEVER
    credentials: Credentials | None = None
    pipelining: bool = True
    esmtp: bool = True
    policy: bytes = b""
    ours: frozenset[bytes] = frozenset()
