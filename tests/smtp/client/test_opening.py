"""How an SMTP session is opened: HELO after EHLO, STARTTLS and what is believed before it."""

import pytest

from queue_smtp.client import ClientState, Tls
from support.servers.smtp.smtp_script import ANN, EHLO, PLAIN, STARTTLS, opening, ready, run, transaction

HELO = b"HELO client.example\r\n"


def test_helo_is_said_at_once_where_that_is_asked_for() -> None:
    client = opening(esmtp=False)
    assert client.feed(b"220 hi\r\n") == HELO
    client.feed(b"250 hi\r\n")
    assert client.state is ClientState.READY


@pytest.mark.parametrize(
    ("replies", "reason", "broken"),
    [
        (b"220 hi\r\n500 what\r\n", "it closed the connection", True),
        (b"220 hi\r\n", "it closed the connection", True),
        (b"220 hi\r\n", "no answer in time", False),
        (b"", "it closed the connection", False),
    ],
)
def test_a_connection_that_ends_over_ehlo_may_be_tried_with_helo(replies: bytes, reason: str, broken: bool) -> None:
    client = opening()
    client.feed(replies)
    client.lost(reason)
    assert client.protocol.ehlo_broken is broken


@pytest.mark.parametrize("tls", [Tls.MAY, Tls.MUST])
def test_starttls_is_asked_for_and_everything_before_it_forgotten(tls: Tls) -> None:
    client = opening(tls)
    assert client.feed(STARTTLS) == EHLO + b"STARTTLS\r\n"
    assert client.feed(b"220 go\r\n") == b""
    assert client.state.name == "TLS"
    assert client.secured() == EHLO
    assert client.protocol.extensions == {}
    client.feed(b"250-raw.example\r\n250-STARTTLS\r\n250 SIZE 7\r\n")
    assert client.state is ClientState.READY
    assert client.protocol.size_limit == 7


@pytest.mark.parametrize("tls", [Tls.NEVER, Tls.IMPLICIT])
def test_starttls_is_not_asked_for_in_clear_or_under_tls(tls: Tls) -> None:
    client = opening(tls)
    assert client.feed(STARTTLS) == EHLO
    assert client.state is ClientState.READY


@pytest.mark.parametrize(
    "pieces", [[b"220 go\r\n250 "], [b"220 go\r\n", b"2"], [b"220 go\r\n250 raw.example\r\n"], [b"220 go\r\n\n"]]
)
def test_a_byte_behind_the_answer_to_starttls_ends_the_connection(pieces: list[bytes]) -> None:
    client = opening(Tls.MAY)
    client.feed(STARTTLS)
    for piece in pieces:
        assert client.feed(piece) == b""
    assert client.state is ClientState.CLOSED
    assert client.protocol.tls_broken
    assert client.failure is not None
    assert b"before TLS" in client.failure[1]


@pytest.mark.parametrize(
    ("replies", "text"),
    [
        (PLAIN, b"does not offer STARTTLS"),
        (b"220 hi\r\n500 what\r\n250 hi\r\n", b"does not offer STARTTLS"),
        (STARTTLS + b"454 no\r\n", b"STARTTLS failed.\nRemote host said: 454 no\n"),
        (STARTTLS + b"554 no\r\n", b"STARTTLS failed.\nRemote host said: 554 no\n"),
    ],
)
def test_without_tls_that_must_be_the_session_ends_for_now(replies: bytes, text: bytes) -> None:
    client = opening(Tls.MUST)
    assert client.feed(replies).endswith(b"QUIT\r\n")
    assert client.failure is not None
    assert client.failure[0] == b"Z"
    assert text in client.failure[1]
    assert not client.protocol.tls_broken


def test_without_tls_that_may_be_the_session_goes_on() -> None:
    for replies in (PLAIN, b"220 hi\r\n500 what\r\n250 hi\r\n", STARTTLS + b"454 no\r\n"):
        client = opening(Tls.MAY)
        client.feed(replies)
        assert client.state is ClientState.READY


@pytest.mark.parametrize(("tls", "broken"), [(Tls.MAY, True), (Tls.MUST, False)])
def test_421_to_starttls_ends_the_session_and_is_about_tls_if_that_is_optional(tls: Tls, broken: bool) -> None:
    client = opening(tls)
    client.feed(STARTTLS + b"421 bye\r\n")
    assert client.state is ClientState.QUIT
    assert client.protocol.tls_broken is broken


def test_a_connection_that_ends_between_starttls_and_ready_is_broken_by_tls() -> None:
    client = opening(Tls.MAY)
    client.feed(STARTTLS + b"220 go\r\n")
    client.lost()
    assert client.protocol.tls_broken
    assert client.failure is not None
    assert b"\nAt TLS handshake: " in client.failure[1]
    later = opening(Tls.MAY)
    later.feed(STARTTLS + b"220 go\r\n")
    later.secured()
    later.lost()
    assert later.protocol.tls_broken
    assert not later.protocol.ehlo_broken


def test_under_tls_from_the_first_byte_the_greeting_comes_after_the_handshake() -> None:
    client = opening(Tls.IMPLICIT)
    assert client.state.value == b"TLS handshake"
    assert client.secured() == b""
    assert client.state.value == b"greeting"
    assert client.feed(STARTTLS) == EHLO
    assert client.state is ClientState.READY


def test_ehlo_refused_under_tls_is_not_followed_by_helo() -> None:
    client = opening(Tls.MAY)
    client.feed(STARTTLS + b"220 go\r\n")
    client.secured()
    assert client.feed(b"502 no\r\n") == b"QUIT\r\n"
    assert client.state is ClientState.QUIT


def test_a_failed_handshake_and_a_bad_certificate_say_why() -> None:
    for tell in ("handshake_failed", "unverified"):
        client = opening(Tls.MUST)
        client.feed(STARTTLS + b"220 go\r\n")
        getattr(client.protocol, tell)("it has expired")
        assert client.protocol.tls_broken
        assert client.failure is not None
        assert client.failure[1].endswith(b"(#4.7.5)\nit has expired\n")


def test_mail_goes_over_a_session_with_all_of_it() -> None:
    client = opening(Tls.MUST, ANN)
    client.feed(STARTTLS + b"220 go\r\n")
    client.secured()
    client.feed(b"250-raw.example\r\n250-PIPELINING\r\n250 AUTH PLAIN\r\n")
    client.feed(b"235 ok\r\n")
    sent = transaction()
    run(client, sent, b"250 ok\r\n250 ok\r\n354 go\r\n", b"250 done\r\n")
    assert sent.verdicts()[0][0] == b"K"
    assert ready().protocol.secure is False
