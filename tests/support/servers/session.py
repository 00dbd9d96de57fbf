"""A session of the SMTP server with rules that tests know: bytes of a client in, replies and messages out."""

from typing import NamedTuple

from queue_smtp import server_replies as replies
from queue_smtp.auth_server import MECHANISMS, PasswordGiven, VerifierWanted, make_verifier
from queue_smtp.incoming import MessageLimits
from queue_smtp.server import SmtpServer
from queue_smtp.server_events import (
    ClientChanged,
    HelloGiven,
    MailWanted,
    MessageBegun,
    MessageEnded,
    MessagePiece,
    RecipientGiven,
    SenderGiven,
    ServerEvent,
    TlsWanted,
    TransactionDropped,
)
from queue_smtp.server_replies import ServerReply
from queue_smtp.server_session import ServerSettings, ServerState

LIMITS = MessageLimits(size=10_000)
SETTINGS = ServerSettings(b"mx.example.org", LIMITS, recipients=5, tls=True, mechanisms=MECHANISMS, secret=b"a secret")
MAILBOXES = (b"joe@example.org", b"jane@example.org", b"later@example.org", b"closed@example.org", b"postmaster")
PASSWORD = b"secret"
SALT = b"0123456789abcdef"
GREETING = b"220 mx.example.org ESMTP\r\n"


class Taken(NamedTuple):
    """A message that the session took."""

    sender: bytes
    recipients: tuple[bytes, ...]
    content: bytes


class ScriptedSession:
    """A server and the decisions on what it asks. `events` has all events, `said` all replies, `messages` what came.

    Pieces of messages are not in `events`. The TLS handshake takes no bytes.
    """

    def __init__(self, settings: ServerSettings = SETTINGS, greet: bool = True) -> None:
        self.server = SmtpServer(settings)
        self.events: list[ServerEvent] = []
        self.messages: list[Taken] = []
        self.said = b""
        self._sender = b""
        self._recipients: list[bytes] = []
        self._content = b""
        if settings.implicit_tls:
            self._take(self.server.secured())
        if greet:
            self._take(self.server.greet())

    def feed(self, data: bytes) -> bytes:
        """Give the server bytes; return what it says to them."""
        self._take(self.server.feed(data))
        said, self.said = self.said, b""
        return said

    def _take(self, events: list[ServerEvent]) -> None:
        waiting = events
        while True:
            for event in waiting:
                if isinstance(event, MessagePiece):
                    self._content += event.data
                else:
                    self.events.append(event)
                if isinstance(event, TransactionDropped):
                    self._forget()
            if self.server.asked is None:
                break
            waiting = self._decide()
        self.said += self.server.data_to_send()
        if self.server.state is ServerState.TLS:
            self._take(self.server.secured())

    def _forget(self) -> None:
        self._sender, self._recipients, self._content = b"", [], b""

    def _decide(self) -> list[ServerEvent]:
        server, asked = self.server, self.server.asked
        reply: ServerReply | None = None
        if isinstance(asked, SenderGiven):
            if asked.address == b"bad@example.net":
                reply = replies.SENDER_REFUSED
            self._forget()
            self._sender = asked.address
        elif isinstance(asked, RecipientGiven):
            reply = self._judge(asked.address)
            if reply is None:
                self._recipients.append(asked.address)
        elif isinstance(asked, MessageBegun):
            if b"closed@example.org" in self._recipients:
                reply = replies.QUEUE_UNAVAILABLE
        elif isinstance(asked, MessageEnded):
            if b"later@example.org" in self._recipients:
                reply = replies.QUEUE_UNAVAILABLE
            else:
                self.messages.append(Taken(self._sender, tuple(self._recipients), self._content))
            self._forget()
        elif isinstance(asked, PasswordGiven):
            if asked.user == b"when":
                reply = replies.AUTH_FAILED_FOR_NOW
            elif (asked.user, asked.password) != (b"joe", PASSWORD):
                reply = replies.BAD_CREDENTIALS
        elif isinstance(asked, VerifierWanted):
            return server.give_verifier(make_verifier(PASSWORD, SALT) if asked.user == b"joe" else None)
        elif isinstance(asked, MailWanted):
            known = asked.name.lstrip(b"@#") == b"customer.example"
            reply = replies.MAIL_STARTED if known else replies.MAIL_NOT_ALLOWED
        else:
            assert isinstance(asked, HelloGiven | ClientChanged | TlsWanted)
        return server.answer(reply)

    def _judge(self, recipient: bytes) -> ServerReply | None:
        lower = recipient.lower()
        if lower in MAILBOXES or self.server.user:
            return None
        if lower == b"full@example.org":
            return replies.MAILBOX_LATER
        if b"@" not in lower:
            return replies.NO_DOMAIN
        return replies.UNKNOWN_RECIPIENT if lower.endswith(b"@example.org") else replies.RELAYING_DENIED
