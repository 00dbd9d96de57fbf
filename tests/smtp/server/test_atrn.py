"""ATRN (RFC 2645) in the session: who may say it, what is said to all else, and the end of the session's own part."""

import base64

import pytest

from queue_smtp import server_replies as replies
from queue_smtp.auth_server import CRAM_MD5, MECHANISMS, PasswordGiven, digest_of
from queue_smtp.server_events import BadCommand, SessionClosed, TurnWanted
from queue_smtp.server_replies import ServerReply
from queue_smtp.server_session import ServerState
from support.servers.session import SETTINGS, ScriptedSession

OFFERED = SETTINGS._replace(turns=True, mechanisms=(*MECHANISMS, CRAM_MD5))
OF_MAIL = [
    b"MAIL FROM:<a@example.net>", b"RCPT TO:<joe@example.org>", b"DATA", b"BDAT 3\r\nabc", b"VRFY joe",
    b"ETRN x.example", b"ATRN", b"ATRN customer.example",
]  # fmt: skip


class TurnedSession(ScriptedSession):
    """A session for ATRN, whose caller gives the reply `verdict`."""

    def __init__(self, verdict: ServerReply = replies.TURNING) -> None:
        self.verdict = verdict
        super().__init__(OFFERED)

    def _decide(self) -> list:  # type: ignore[type-arg]
        if isinstance(self.server.asked, TurnWanted):
            return list(self.server.answer(self.verdict))
        return list(super()._decide())

    def wanted(self) -> list[list[bytes]]:
        return [event.domains for event in self.events if isinstance(event, TurnWanted)]


def secured(verdict: ServerReply = replies.TURNING) -> TurnedSession:
    found = TurnedSession(verdict)
    found.feed(b"EHLO c\r\nSTARTTLS\r\n")
    found.feed(b"EHLO c\r\n")
    return found


def authenticated(verdict: ServerReply = replies.TURNING) -> TurnedSession:
    found = secured(verdict)
    said = found.feed(b"AUTH PLAIN " + base64.b64encode(b"\0joe\0secret") + b"\r\n")
    assert said.startswith(b"235 ")
    return found


def keywords(said: bytes) -> list[bytes]:
    return [line[4:].split(b" ")[0] for line in said.splitlines()][1:]


def test_ehlo_offers_no_extension_of_mail_and_auth_under_tls_alone() -> None:
    found = TurnedSession()
    assert keywords(found.feed(b"EHLO c\r\n")[26:]) == [b"PIPELINING", b"STARTTLS", b"ENHANCEDSTATUSCODES", b"ATRN"]
    found.feed(b"STARTTLS\r\n")
    assert keywords(found.feed(b"EHLO c\r\n")) == [b"PIPELINING", b"AUTH", b"ENHANCEDSTATUSCODES", b"ATRN"]


@pytest.mark.parametrize("command", OF_MAIL)
def test_before_tls_and_before_auth_it_is_530(command: bytes) -> None:
    found = TurnedSession()
    found.feed(b"EHLO c\r\n")
    assert found.feed(command + b"\r\n").startswith(b"530 5.7.0 Must issue a STARTTLS")
    found = secured()
    assert found.feed(command + b"\r\n").startswith(b"530 5.7.0 Authentication required")
    assert not found.wanted()


@pytest.mark.parametrize("command", OF_MAIL[:-2])
def test_a_session_for_it_takes_no_mail(command: bytes) -> None:
    assert authenticated().feed(command + b"\r\n").startswith(b"502 5.5.1 ")


def test_what_needs_no_authentication_is_taken_before() -> None:
    found = TurnedSession()
    assert found.feed(b"")
    said = found.feed(b"NOOP\r\nHELO c\r\nEHLO c\r\nRSET\r\nHELP\r\nQUIT\r\n")
    assert [line[:4] for line in said.splitlines() if line[3:4] == b" "] == [
        b"250 ", b"250 ", b"250 ", b"250 ", b"214 ", b"221 ",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("command", "domains"),
    [
        (b"ATRN", []),
        (b"atrn Customer.Example", [b"customer.example"]),
        (b"ATRN a.example,b_c.example", [b"a.example", b"b_c.example"]),
        (b"ATRN a.example, b.example", [b"a.example", b"b.example"]),
    ],
)
def test_it_names_domains_or_none_for_all_of_the_users(command: bytes, domains: list[bytes]) -> None:
    found = authenticated()
    assert found.feed(command + b"\r\n") == b"250 2.0.0 OK now reversing the connection\r\n"
    assert found.wanted() == [domains]
    assert found.server.state is ServerState.REVERSED


@pytest.mark.parametrize(
    "argument", [b"a..b", b".", b",", b"a,", b"@a.example", b"[192.0.2.1]", b"a b", b"a" * 64 + b".net", b"\xe9.net"]
)
def test_what_is_no_domain_is_501(argument: bytes) -> None:
    found = authenticated()
    assert found.feed(b"ATRN " + argument + b"\r\n")[:4] in (b"501 ", b"500 ")
    assert not found.wanted()


@pytest.mark.parametrize(
    ("verdict", "code"),
    [(replies.TURN_REFUSED, b"450 "), (replies.TURN_BUSY, b"450 "), (replies.TURN_LATER, b"451 "),
     (replies.TURN_NONE, b"453 ")],
)  # fmt: skip
def test_after_a_refusal_the_session_goes_on(verdict: ServerReply, code: bytes) -> None:
    found = authenticated(verdict)
    assert found.feed(b"ATRN\r\n").startswith(code)
    assert found.feed(b"NOOP\r\n").startswith(b"250 ")
    assert found.feed(b"QUIT\r\n").startswith(b"221 ")


def test_what_comes_behind_it_is_no_command() -> None:
    found = authenticated()
    found.feed(b"ATRN\r\n220 c.example ready\r\nMAIL FROM:<>\r\n")
    assert found.server.take_rest() == b"220 c.example ready\r\nMAIL FROM:<>\r\n"
    assert found.feed(b"QUIT\r\n") == b""
    assert found.server.end_turn() == [SessionClosed("ATRN")]
    assert found.server.data_to_send() == b""


def test_a_reversed_session_ends_without_a_word() -> None:
    found = authenticated()
    found.feed(b"ATRN\r\n")
    assert found.server.close(replies.TIMED_OUT, "timeout") == [SessionClosed("timeout")]
    assert found.server.data_to_send() == b""


def test_it_is_502_where_it_is_not_offered() -> None:
    found = ScriptedSession(SETTINGS)
    found.feed(b"EHLO c\r\n")
    assert found.feed(b"ATRN customer.example\r\n").startswith(b"502 ")


def test_who_asks_without_end_is_ended() -> None:
    found = authenticated(replies.TURN_NONE)
    for _ in range(200):
        found.feed(b"ATRN\r\n")
    assert found.server.state is ServerState.CLOSED


def test_cram_md5_shows_the_response_to_its_challenge_and_no_password() -> None:
    found = secured()
    challenge = base64.b64decode(found.feed(b"AUTH CRAM-MD5\r\n").removeprefix(b"334 "))
    assert challenge.startswith(b"<") and challenge.endswith(b"@mx.example.org>")
    digest = digest_of(challenge, b"tanstaaftanstaaf")
    found.feed(base64.b64encode(b"tim " + digest) + b"\r\n")
    [given] = [event for event in found.events if isinstance(event, PasswordGiven)]
    assert given == PasswordGiven(CRAM_MD5, b"tim", digest, challenge)
    assert digest.decode() not in repr(given)


def test_the_digest_is_that_of_rfc_2195() -> None:
    known = digest_of(b"<1896.697170952@postoffice.reston.mci.net>", b"tanstaaftanstaaf")
    assert known == b"b913a602c7eda7a495b4e6e7334d3890"


def test_cram_md5_takes_no_initial_response() -> None:
    found = secured()
    assert found.feed(b"AUTH CRAM-MD5 aGVsbG8=\r\n").startswith(b"501 ")
    assert any(isinstance(event, BadCommand) for event in found.events)
