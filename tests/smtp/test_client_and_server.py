"""The client and the server of queue_smtp talk to each other: what one sends, the other takes, and as one message."""

from hypothesis import given
from hypothesis import strategies as st

from queue_smtp.auth import Credentials
from queue_smtp.client import ClientState, Event, Session, SmtpClient, SmtpEnvelope, Tls, TransactionAccepted
from queue_smtp.dotstuff import normalize, stuff
from queue_smtp.path import pack_forward_path, pack_reverse_path
from queue_smtp.server_session import ServerState
from support.servers.session import PASSWORD, SETTINGS, ScriptedSession, Taken

LOOSE = SETTINGS._replace(recipients=1000, message=SETTINGS.message._replace(size=0))
CONTENT = st.lists(st.sampled_from([b".", b"\r", b"\n", b"\r\n", b"\n.\n", b"a", b"\0", b"\xff"]), max_size=30).map(
    b"".join
)
LOCAL = st.text(st.sampled_from(list('ab.@"\\ %!<>é')), min_size=1, max_size=8).map(str.encode)


class Loop:
    """A client that is connected to a session. `events` are the client's."""

    def __init__(self, asked: Session) -> None:
        self.session = ScriptedSession(LOOSE)
        self.client = SmtpClient(asked)
        self.events: list[Event] = []
        self._to_client = self.session.feed(b"")
        self._content = b""
        self.run()

    def run(self) -> None:
        """Carry bytes until both wait."""
        while True:
            self.events += self.client.feed(self._to_client) if self._to_client else []
            self._to_client = b""
            if self.client.state is ClientState.TLS:
                self.client.secured()
            data = self.client.data_to_send()
            if self.client.state is ClientState.MESSAGE:
                data += stuff(self._content)
                self.client.message_sent()
            if not data:
                return
            self._to_client = self.session.feed(data)

    def send(self, sender: bytes, recipients: list[bytes], content: bytes) -> None:
        self._content = content
        paths = [pack_forward_path(recipient) for recipient in recipients]
        self.events += self.client.begin(SmtpEnvelope(pack_reverse_path(sender), paths, len(content), True))
        self.run()


def test_a_session_opens_with_tls_and_auth() -> None:
    loop = Loop(Session(b"peer", b"client.example", Tls.MUST, Credentials(b"joe", PASSWORD, False)))
    assert loop.client.state is ClientState.READY, loop.client.failure
    assert (loop.session.server.user, loop.session.server.secure) == (b"joe", True)


@given(st.lists(CONTENT, min_size=1, max_size=3), st.booleans())
def test_what_the_client_sends_the_server_takes_as_one_message(contents: list[bytes], pipelining: bool) -> None:
    loop = Loop(Session(b"peer", b"client.example", Tls.NEVER, pipelining=pipelining))
    for content in contents:
        loop.send(b"a@example.net", [b"joe@example.org", b"jane@example.org"], content)
    assert len([event for event in loop.events if isinstance(event, TransactionAccepted)]) == len(contents)
    wanted = [normalize(content + b" ").removesuffix(b" ") for content in contents]
    wanted = [text if not text or text.endswith(b"\n") else text + b"\n" for text in wanted]
    recipients = (b"joe@example.org", b"jane@example.org")
    assert loop.session.messages == [Taken(b"a@example.net", recipients, text) for text in wanted]
    loop.client.quit()
    loop.run()
    assert loop.session.server.state is ServerState.CLOSED


@given(LOCAL)
def test_an_address_arrives_as_it_left(local: bytes) -> None:
    loop = Loop(Session(b"peer", b"client.example", Tls.MUST, Credentials(b"joe", PASSWORD, False)))
    loop.send(local + b"@example.net", [local + b"@elsewhere.example"], b"x\n")
    assert loop.session.messages == [Taken(local + b"@example.net", (local + b"@elsewhere.example",), b"x\n")]
