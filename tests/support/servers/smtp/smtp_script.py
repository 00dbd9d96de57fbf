"""An SMTP client's state machine, ready for mail, and scripted replies to play to it."""

from queue_remote.report_text import Verdict, describe_failure
from queue_remote.smtp.transaction import Transaction
from queue_smtp.auth import Credentials
from queue_smtp.client import ClientState, Event, Session, SmtpClient, Tls

PEER = b"192.0.2.1"
EHLO = b"EHLO client.example\r\n"
ANN = Credentials(b"user", b"secret", clear=False)
PLAIN = b"220 hi\r\n250 raw.example\r\n"
STARTTLS = b"220 hi\r\n250-raw.example\r\n250-STARTTLS\r\n250 AUTH PLAIN\r\n"
PIPELINING = b"220 hi\r\n250-raw.example\r\n250-SIZE 1000\r\n250-8bitmime\r\n250 PIPELINING\r\n"


class ScriptedClient:
    """A client and its transactions: each method returns what the client sends, and its events become verdicts.

    Under implicit TLS the first bytes come after the handshake.
    """

    def __init__(self, session: Session) -> None:
        self.protocol = SmtpClient(session)
        self._asked: Transaction | None = None

    @property
    def state(self) -> ClientState:
        return self.protocol.state

    @property
    def failure(self) -> Verdict | None:
        failed = self.protocol.failure
        return None if failed is None else describe_failure(self.protocol, failed)

    def begin(self, asked: Transaction) -> bytes:
        self._asked = asked
        return self._apply(self.protocol.begin(asked.start(PEER)))

    def feed(self, data: bytes) -> bytes:
        if self.state is ClientState.TLS and self.protocol.secure:
            self.protocol.secured()
        return self._apply(self.protocol.feed(data))

    def secured(self) -> bytes:
        self.protocol.secured()
        return self._apply([])

    def lost(self, *reason: str) -> bytes:
        return self._apply(self.protocol.lost(*reason))

    def quit(self) -> bytes:
        self.protocol.quit()
        return self._apply([])

    def _apply(self, events: list[Event]) -> bytes:
        for event in events:
            if self._asked is not None:
                self._asked.take(event, self.protocol)
        return self.protocol.data_to_send()


def opening(tls: Tls = Tls.NEVER, credentials: Credentials | None = None, esmtp: bool = True) -> ScriptedClient:
    """A client that waits for the greeting."""
    return ScriptedClient(Session(PEER, b"client.example", tls, credentials, esmtp=esmtp))


def ready_lmtp(replies: bytes = PIPELINING) -> ScriptedClient:
    """Return a client of an LMTP server that waits for mail."""
    client = ScriptedClient(Session(PEER, b"client.example", lmtp=True))
    assert client.feed(replies).startswith(b"LHLO client.example\r\n")
    assert client.state is ClientState.READY
    return client


def ready(replies: bytes = PIPELINING) -> ScriptedClient:
    client = opening()
    assert client.feed(replies).startswith(b"EHLO client.example\r\n")
    assert client.state is ClientState.READY
    return client


def transaction(*recipients: bytes, size: int = 500) -> Transaction:
    return Transaction(b"from@a.example", list(recipients or [b"to@b.example"]), size)


def run(client: ScriptedClient, asked: Transaction, *replies: bytes) -> bytes:
    """Play the replies, sending the message as soon as it is wanted; return everything the client said."""
    said = client.begin(asked)
    for reply in replies:
        said += client.feed(reply)
        if client.state is ClientState.MESSAGE:
            said += b"<message>"
            client.protocol.message_sent()
    return said


def verdicts(client: ScriptedClient, asked: Transaction) -> list[Verdict]:
    """The verdicts; where the peer has not accepted MAIL, all of them are why the connection failed."""
    if not asked.done:
        assert client.failure is not None
        asked.finish(*client.failure)
    return asked.verdicts()
