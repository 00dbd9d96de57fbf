"""The SMTP client's state machine with servers that do not greet, talk nonsense, break off or say anything at all."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_smtp.auth import Credentials
from queue_smtp.client import ClientState, Tls
from support.servers.smtp.smtp_script import PIPELINING, PLAIN, opening, ready, run, transaction, verdicts

DIED = b"Connected to 192.0.2.1 but connection died. (#4.4.2)\nAt RCPT: it closed the connection\n"


@pytest.mark.parametrize(
    ("replies", "text"),
    [
        (b"421 busy\r\n", b"but greeting failed.\nRemote host said: 421 busy\n"),
        (b"554-no\r\n554 mail\r\n", b"but greeting failed.\nRemote host said: 554-no\n554 mail\n"),
        (b"220 hi\r\n450 no\r\n", b"but my name was rejected.\nRemote host said: 450 no\n"),
        (b"220 hi\r\n500 no\r\n550 bad name\r\n", b"but my name was rejected.\nRemote host said: 550 bad name\n"),
    ],
)
def test_a_host_that_does_not_greet_us_is_a_temporary_failure_ended_by_quit(replies: bytes, text: bytes) -> None:
    client = opening()
    assert client.feed(replies).endswith(b"QUIT\r\n")
    assert client.state is ClientState.QUIT
    assert client.failure == (b"Z", b"Connected to 192.0.2.1 " + text)


@pytest.mark.parametrize("garbage", [b"hello\r\n", b"\r\n", b"\xff\xfe\0\r\n", b"HTTP/1.1 400 Bad Request\r\n"])
def test_garbage_is_temporary_wherever_it_comes(garbage: bytes) -> None:
    client = opening()
    client.feed(garbage)
    assert client.failure is not None
    assert client.failure[0] == b"Z"
    for replies in ([], [b"250 ok\r\n"], [b"250 ok\r\n250 ok\r\n"], [b"250 ok\r\n250 ok\r\n", b"354 go\r\n"]):
        client, asked = ready(), transaction()
        run(client, asked, *replies, garbage)
        # After the message a reply may still follow.
        client.lost()
        assert [verdict[0] for verdict in verdicts(client, asked)] == [b"Z"]
        assert client.state is ClientState.CLOSED


def test_a_lost_connection_says_when_the_message_may_have_arrived() -> None:
    client, asked = ready(), transaction()
    run(client, asked, b"250 ok\r\n")
    client.lost()
    assert asked.verdicts() == [(b"Z", DIED)]
    client, asked = ready(), transaction()
    run(client, asked, b"250 ok\r\n250 ok\r\n", b"354 go\r\n")
    client.lost()
    text = (
        b"Connected to 192.0.2.1 but connection died. Possible duplicate! (#4.4.2)\n"
        b"At end of message: it closed the connection\n"
    )
    assert asked.verdicts() == [(b"Z", text)]


def test_a_recipient_refused_before_the_connection_died_stays_refused() -> None:
    client, asked = ready(), transaction(b"a@b", b"c@d")
    run(client, asked, b"250 ok\r\n550 no\r\n")
    client.lost()
    assert [verdict[0] for verdict in asked.verdicts()] == [b"D", b"Z"]


@pytest.mark.parametrize(
    ("reply", "letter"), [(b"552 too big\r\n", b"D"), (b"421 bye\r\n", b"Z"), (b"250 ?\r\n", b"Z")]
)
def test_an_answer_in_the_middle_of_a_message_ends_it(reply: bytes, letter: bytes) -> None:
    client, asked = ready(), transaction()
    client.begin(asked)
    client.feed(b"250 ok\r\n250 ok\r\n")
    client.feed(b"354 go\r\n")
    assert client.feed(reply) == b""
    assert asked.verdicts()[0][0] == letter
    assert client.state is ClientState.CLOSED
    assert client.quit() == b""


def test_a_goodbye_between_messages_closes_the_connection() -> None:
    client = ready()
    client.feed(b"421 idle too long\r\n")
    assert client.state is ClientState.CLOSED


LINES = st.sampled_from([b"220 a", b"250 b", b"250-c", b"354 d", b"421 e", b"452 f", b"550 g", b"554-h", b"x", b""])


@given(st.lists(LINES, max_size=15), st.integers(1, 3), st.booleans())
def test_whatever_a_server_says_every_recipient_gets_one_verdict(lines: list[bytes], count: int, plain: bool) -> None:
    client = ready(PLAIN if plain else PIPELINING)
    asked = transaction(*[b"r%d@b" % number for number in range(count)])
    run(client, asked, *[line + b"\r\n" for line in lines])
    client.lost()
    found = verdicts(client, asked)
    assert len(found) == count
    assert all(letter in b"KZD" and text.endswith(b"\n") for letter, text in found)
    if any(letter == b"K" for letter, _ in found):
        assert b"354 d" in lines
        # Any 2xx says yes (RFC 5321 section 4.2.1): to MAIL, to the recipient and to the message.
        assert sum(line.startswith(b"2") and line[3:4] != b"-" for line in lines) >= 3


TLS_LINES = st.sampled_from(
    [b"220 hi", b"250 ok", b"250-x", b"250-STARTTLS", b"250 AUTH PLAIN", b"334 AAAA", b"235 in", b"421 no", b"502 no"]
)
CHUNKS = st.one_of(TLS_LINES.map(lambda line: line + b"\r\n"), st.binary(max_size=40))


@given(st.lists(CHUNKS, max_size=25), st.sampled_from(Tls), st.booleans(), st.booleans())
def test_no_bytes_of_a_server_raise_and_few_are_kept(
    chunks: list[bytes], tls: Tls, authenticate: bool, esmtp: bool
) -> None:
    client = opening(tls, Credentials(b"user", b"secret", clear=False) if authenticate else None, esmtp)
    asked = transaction(b"a@b", b"c@d")
    for chunk in chunks:
        said = client.feed(chunk)
        assert said == b"" or said.endswith(b"\r\n")
        if client.state is ClientState.TLS:
            client.secured()
        elif client.state is ClientState.READY and not asked.done and client.protocol.transactions == 0:
            client.begin(asked)
        elif client.state is ClientState.MESSAGE:
            client.protocol.message_sent()
        assert b"secret" not in said
        if not client.protocol.secure:
            assert b"AUTH" not in said
    client.lost()
    assert client.feed(b"x" * 1000) == b""
    assert len(verdicts(client, asked)) == 2


@pytest.mark.parametrize("line", [b"250-" + b"x" * 996 + b"\r\n", b"2" * 1000, b"250 ok\r\n" * 100, b"\n" * 1000])
def test_a_flood_ends_the_connection_and_is_forgotten(line: bytes) -> None:
    client = ready()
    asked = transaction()
    client.begin(asked)
    for _ in range(1000):
        client.feed(line)
    assert client.state is ClientState.CLOSED
    [(letter, text)] = verdicts(client, asked)
    assert letter == b"Z"
    assert len(text) < 11000
