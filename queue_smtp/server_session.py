"""What the servers of SMTP and QMTP have in common, without I/O: a session gets bytes, and returns events and replies.

Some events are questions: the session goes on when the caller has answered the one in `asked`. So the rules of a
listener are the same for both protocols (queue_smtp/server.py, queue_smtpd/sessions/qmtp_server.py).
"""

import enum
from typing import NamedTuple

from queue_smtp.incoming import IncomingMessage, MessageLimits
from queue_smtp.server_events import Question, ServerEvent
from queue_smtp.server_replies import ServerReply


class ServerState(enum.Enum):
    """The states of the tables in server.py and in qmtp_server.py; the value is the name in texts."""

    TLS = b"TLS handshake"
    GREETING = b"greeting"
    HELLO = b"EHLO"
    IDLE = b"idle"
    MAIL = b"MAIL"
    RCPT = b"RCPT"
    DATA = b"DATA"
    CHUNK = b"BDAT chunk"
    CHUNKS = b"BDAT"
    SKIP = b"refused BDAT chunk"
    AUTH = b"AUTH"
    REVERSED = b"reversed"
    CLOSED = b"closed"

    # Enum's own hash is slow.
    __hash__ = object.__hash__


class ServerSettings(NamedTuple):
    """What one session offers and allows.

    `name` is this host's, of the greeting. `tls`: STARTTLS is offered; `implicit_tls`: TLS from the first byte. AUTH is
    offered under TLS if there are `mechanisms`; `secret` hides who exists (queue_smtp.auth_server). `recipients` is the
    most that a message may have: RFC 5321 section 4.5.3.1.8 has 100 or more. `errors` is the number of commands against
    the protocol, or refused, also for now, after which the session ends; `useless` that of commands that lead to no
    mail before each counts as such. Both begin anew with each message that is accepted. `etrn`: ETRN is offered.
    `turns`: ATRN is, and no mail is taken.
    """

    name: bytes
    message: MessageLimits = MessageLimits()
    recipients: int = 1000
    tls: bool = False
    implicit_tls: bool = False
    mechanisms: tuple[bytes, ...] = ()
    secret: bytes = b""
    xclient: bool = False
    smtputf8: bool = True
    chunking: bool = True
    etrn: bool = False
    turns: bool = False
    errors: int = 20
    useless: int = 100


class ServerSession:
    """One session. The attributes without an underscore are for the caller to read.

    `asked` is the question that is open, the last event that was returned. `smtputf8`: of the transaction. paused: the
    caller is to feed it again, perhaps nothing, in its next turn.
    """

    __slots__ = (
        *("_deferred", "_errors", "_events", "_incoming", "_out", "_settings", "asked", "paused", "smtputf8", "state"),
    )

    def __init__(self, settings: ServerSettings, state: ServerState) -> None:
        self._settings = settings
        self.state = state
        self.asked: Question | None = None
        self.smtputf8 = False
        self.paused = False
        self._out: list[bytes] = []
        self._events: list[ServerEvent] = []
        self._errors = self._deferred = 0
        self._incoming = IncomingMessage(settings.message)

    @property
    def wants_data(self) -> bool:
        """Whether the caller should read from the client."""
        raise NotImplementedError

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction has begun that is not over: by an accepted MAIL, or in QMTP with a message."""
        raise NotImplementedError

    def feed(self, data: bytes) -> list[ServerEvent]:
        """Take bytes from the client; return what they mean."""
        raise NotImplementedError

    def data_to_send(self) -> bytes:
        """Return the replies to send since the last call."""
        data = b"".join(self._out)
        self._out.clear()
        return data

    def greet(self, reply: ServerReply | None = None) -> list[ServerEvent]:
        """Greet the client, or turn it away."""
        raise NotImplementedError

    def answer(self, reply: ServerReply | None = None) -> list[ServerEvent]:
        """Answer the question in `asked`, with None for yes and the usual reply."""
        raise NotImplementedError

    def close(self, reply: ServerReply, reason: str) -> list[ServerEvent]:
        """End the session with a reply, whatever the state: a timeout, or this server stops."""
        raise NotImplementedError

    def lost(self) -> list[ServerEvent]:
        """Note that the client is gone."""
        raise NotImplementedError

    def forget_input(self) -> None:
        """Forget what the client has sent behind the open question: it is gone, and would get no reply to it."""
        raise NotImplementedError

    def _is_error(self, reply: ServerReply, accepted: int) -> bool:
        """Return whether a recipient that is refused is an error; `accepted` counts those of its message before it.

        As many as a message may have are refused for now without being errors, since those that were accepted count
        (RFC 5321 section 4.5.3.1.10), and would be lost with the session.
        """
        if reply.code >= 500 or not accepted or self._deferred >= self._settings.recipients:
            return True
        self._deferred += 1
        return False

    def _ask(self, question: Question) -> None:
        self.asked = question
        self._events.append(question)

    def _take_events(self) -> list[ServerEvent]:
        events, self._events = self._events, []
        return events
