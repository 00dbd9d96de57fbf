"""AUTH in the opening of an SMTP session: when it is done, what it may tell, and its troubles."""

from base64 import b64encode

import pytest

from queue_smtp.auth import Credentials, Mechanism
from queue_smtp.client import ClientState, Tls
from queue_wire.format_error import FormatError
from support.servers.smtp.smtp_script import ANN, EHLO, PLAIN, STARTTLS, opening

IN_CLEAR = ANN._replace(clear=True)
SAID = b64encode(b"\0user\0secret")


@pytest.mark.parametrize("offer", [b"AUTH PLAIN", b"AUTH=PLAIN", b"auth LOGIN plain"])
def test_auth_follows_ehlo_where_there_are_credentials(offer: bytes) -> None:
    client = opening(Tls.IMPLICIT, ANN)
    assert client.feed(b"220 hi\r\n250-raw.example\r\n250 " + offer + b"\r\n") == EHLO + b"AUTH PLAIN " + SAID + b"\r\n"
    assert client.state.name == "AUTH"
    client.feed(b"235 welcome\r\n")
    assert client.state is ClientState.READY


def test_auth_is_done_under_tls_and_not_before() -> None:
    client = opening(Tls.MAY, ANN)
    assert client.feed(STARTTLS) == EHLO + b"STARTTLS\r\n"
    client.feed(b"220 go\r\n")
    client.secured()
    assert client.feed(b"250-raw.example\r\n250 AUTH PLAIN\r\n").startswith(b"AUTH PLAIN ")


@pytest.mark.parametrize("replies", [PLAIN, STARTTLS, b"220 hi\r\n500 what\r\n250 hi\r\n"])
def test_without_a_mechanism_that_may_be_used_no_mail_goes_out_and_none_bounces(replies: bytes) -> None:
    client = opening(Tls.NEVER, ANN)
    said = client.feed(replies)
    assert said.endswith(b"QUIT\r\n")
    assert b"AUTH" not in said
    assert client.failure is not None
    assert client.failure[0] == b"Z"
    assert b"control/smtpauth" in client.failure[1]


def test_a_password_in_clear_needs_leave() -> None:
    assert SAID in opening(Tls.NEVER, IN_CLEAR).feed(STARTTLS)


@pytest.mark.parametrize("reply", [b"535 5.7.8 bad password", b"454 later", b"421 bye", b"354 what"])
def test_auth_refused_defers_and_says_so(reply: bytes) -> None:
    client = opening(Tls.IMPLICIT, ANN)
    client.feed(STARTTLS)
    assert client.feed(reply + b"\r\n") == b"QUIT\r\n"
    assert client.failure is not None
    assert client.failure[0] == b"Z"
    assert b"AUTH failed" in client.failure[1]
    assert reply in client.failure[1]


class Questions:
    """A mechanism that answers challenges."""

    name = b"QUESTIONS"

    def initial(self) -> bytes | None:
        return None

    def answer(self, challenge: bytes) -> bytes:
        if challenge == b"nonsense":
            raise FormatError("nonsense")
        return b"answer to " + challenge

    def finish(self) -> None:
        """Anybody may be content."""


def asked(monkeypatch: pytest.MonkeyPatch, *replies: bytes) -> tuple[bytes, ClientState]:
    """Play replies to AUTH with that mechanism; return what was said from AUTH on, and the state."""

    def choose(offered: bytes, credentials: Credentials, secure: bool) -> Mechanism:
        return Questions()

    monkeypatch.setattr("queue_smtp.client.choose", choose)
    client = opening(Tls.IMPLICIT, ANN)
    said = client.feed(STARTTLS)
    return said.removeprefix(EHLO) + b"".join([client.feed(reply + b"\r\n") for reply in replies]), client.state


def test_challenges_are_answered_in_base64(monkeypatch: pytest.MonkeyPatch) -> None:
    said, state = asked(monkeypatch, b"334 " + b64encode(b"one"), b"334", b"235 ok")
    answers = [b"AUTH QUESTIONS", b64encode(b"answer to one"), b64encode(b"answer to "), b""]
    assert (said, state) == (b"\r\n".join(answers), ClientState.READY)


@pytest.mark.parametrize("challenge", [b64encode(b"nonsense"), b"x", b"a"])
def test_a_challenge_that_makes_no_sense_defers(monkeypatch: pytest.MonkeyPatch, challenge: bytes) -> None:
    said, state = asked(monkeypatch, b"334 " + challenge)
    assert said.endswith(b"\r\n*\r\nQUIT\r\n")
    assert state is ClientState.QUIT


def test_a_server_that_never_has_enough_answers_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    said, state = asked(monkeypatch, *[b"334 " + b64encode(b"more")] * 20)
    assert state is ClientState.CLOSED
    assert said.count(b64encode(b"answer to more")) == 10
