"""An SMTP client's state machine, ready for mail, and scripted replies to play to it."""

from queue_smtp.auth import Credentials
from queue_smtp.client import SmtpClient
from queue_smtp.session import Phase, Session, Tls
from queue_smtp.text import Verdict
from queue_smtp.transaction import Transaction

PEER = b"192.0.2.1"
EHLO = b"EHLO client.example\r\n"
ANN = Credentials(b"user", b"secret", clear=False)
PLAIN = b"220 hi\r\n250 raw.example\r\n"
STARTTLS = b"220 hi\r\n250-raw.example\r\n250-STARTTLS\r\n250 AUTH PLAIN\r\n"
PIPELINING = b"220 hi\r\n250-raw.example\r\n250-SIZE 1000\r\n250-8bitmime\r\n250 PIPELINING\r\n"


def opening(tls: Tls = Tls.NEVER, credentials: Credentials | None = None, esmtp: bool = True) -> SmtpClient:
    """A client that waits for the greeting."""
    return SmtpClient(Session(PEER, b"client.example", tls, credentials, esmtp=esmtp))


def ready(replies: bytes = PIPELINING) -> SmtpClient:
    client = opening()
    assert client.feed(replies).startswith(b"EHLO client.example\r\n")
    assert client.phase is Phase.READY
    return client


def transaction(*recipients: bytes, size: int = 500) -> Transaction:
    return Transaction(b"from@a.example", list(recipients or [b"to@b.example"]), size)


def run(client: SmtpClient, asked: Transaction, *replies: bytes) -> bytes:
    """Play the replies, sending the message as soon as it is wanted; return everything the client said."""
    said = client.begin(asked)
    for reply in replies:
        said += client.feed(reply)
        if client.phase is Phase.MESSAGE:
            said += b"<message>"
            client.message_sent()
    return said


def verdicts(client: SmtpClient, asked: Transaction) -> list[Verdict]:
    """The verdicts; where the peer has not accepted MAIL, all of them are why the connection failed."""
    if not asked.done:
        assert client.failure is not None
        asked.finish(*client.failure)
    return asked.verdicts()
