"""The next envelope behind the final dot (RFC 2920 section 3.1): it has a result of its own."""

import pytest

from queue_smtp.client import (
    ClientState,
    ConnectionFailed,
    Event,
    Problem,
    Session,
    SmtpClient,
    SmtpEnvelope,
    TransactionAccepted,
    TransactionRejected,
)
from queue_smtp.reply import Reply
from support.servers.smtp.smtp_script import PEER, PIPELINING, PLAIN

FIRST = SmtpEnvelope((b"<f@a>", False), [(b"<one@b>", False)], 9, False)
SECOND = SmtpEnvelope((b"<f@a>", False), [(b"<two@b>", False)], 9, False)
TAKEN = b"250 ok\r\n250 ok\r\n354 go\r\n"


def sent(greeting: bytes = PIPELINING) -> SmtpClient:
    """A client that has sent the first message and waits for the reply to its dot."""
    client = SmtpClient(Session(PEER, b"client.example"))
    client.feed(greeting)
    client.begin(FIRST)
    for reply in TAKEN.splitlines(keepends=True):
        client.feed(reply)
    client.message_sent()
    client.data_to_send()
    return client


def behind() -> SmtpClient:
    """The same with the next envelope sent behind the dot."""
    client = sent()
    assert client.begin(SECOND) == []
    assert client.data_to_send() == b"RSET\r\nMAIL FROM:<f@a> SIZE=9\r\nRCPT TO:<two@b>\r\nDATA\r\n"
    return client


def feed(client: SmtpClient, data: bytes, size: int) -> list[Event]:
    return [event for at in range(0, len(data), size) for event in client.feed(data[at : at + size])]


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize(
    ("dot", "result"),
    [
        (b"250 done", TransactionAccepted(Reply(250, b"250 done"))),
        (b"450 later", TransactionRejected(Problem.MESSAGE, Reply(450, b"450 later"))),
        (b"554 spam", TransactionRejected(Problem.MESSAGE, Reply(554, b"554 spam"))),
    ],
)
def test_the_next_message_goes_on_whatever_the_dot_is_answered(dot: bytes, result: Event, size: int) -> None:
    client = behind()
    assert feed(client, dot + b"\r\n250 reset\r\n" + TAKEN, size) == [result]
    client.message_sent()
    assert client.feed(b"250 two\r\n") == [TransactionAccepted(Reply(250, b"250 two"))]
    assert client.state is ClientState.READY


@pytest.mark.parametrize("size", [1, 1000])
@pytest.mark.parametrize(
    "replies",
    [b"421 bye\r\n", b"250 ok\r\n421 bye\r\n", b"250 ok\r\n550 no\r\n", b"554 no\r\n250 ok\r\n421 no\r\n"],
)
def test_a_connection_that_ends_before_mail_is_accepted_has_not_attempted_the_next(replies: bytes, size: int) -> None:
    client = behind()
    result, failed = feed(client, replies, size)
    assert isinstance(result, TransactionAccepted | TransactionRejected)
    assert isinstance(failed, ConnectionFailed)
    assert not failed.in_transaction
    assert client.state is ClientState.CLOSED


def test_a_connection_that_is_lost_before_the_dot_is_answered_takes_the_first_message_alone() -> None:
    [failed] = behind().lost()
    assert isinstance(failed, ConnectionFailed)
    assert (failed.in_transaction, failed.state) == (True, ClientState.END)


def test_a_connection_whose_next_message_is_withdrawn_ends_with_the_reply_to_the_dot() -> None:
    client = behind()
    client.withdraw()
    assert not client.takes_next
    result, failed = client.feed(b"250 done\r\n250 reset\r\n" + TAKEN)
    assert result == TransactionAccepted(Reply(250, b"250 done"))
    assert isinstance(failed, ConnectionFailed)
    assert not failed.in_transaction
    assert client.state is ClientState.CLOSED


def test_nothing_goes_behind_the_dot_without_pipelining() -> None:
    client = sent(PLAIN)
    assert client.state is ClientState.END
    assert not client.takes_next


def test_a_second_envelope_does_not_go_behind_the_same_dot() -> None:
    assert not behind().takes_next
