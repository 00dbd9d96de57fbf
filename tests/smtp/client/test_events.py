"""The events of a client, and its states: the same whatever the pieces in which a server's bytes arrive."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_smtp.client import (
    ENVELOPE,
    OPENING,
    TRANSITIONS,
    ClientState,
    ConnectionFailed,
    Event,
    Problem,
    RecipientNeedsSmtputf8,
    RecipientRefused,
    Session,
    SmtpClient,
    SmtpEnvelope,
    TransactionAccepted,
    TransactionRejected,
)
from queue_smtp.reply import Reply
from support.servers.smtp.smtp_script import PEER, PIPELINING, PLAIN

ENVELOPE_OF_TWO = SmtpEnvelope((b"<f@a>", False), [(b"<t@b>", False), (b"<u@b>", False)], 9, False)
OK, NO = Reply(250, b"250 ok"), Reply(550, b"550 no")


def opened(replies: bytes = PIPELINING) -> SmtpClient:
    client = SmtpClient(Session(PEER, b"client.example"))
    assert client.feed(replies) == []
    assert client.state is ClientState.READY
    client.data_to_send()
    return client


CASES: dict[bytes, tuple[list[Event], ClientState]] = {
    b"250 ok\r\n250 ok\r\n250 ok\r\n354 go\r\n": ([], ClientState.MESSAGE),
    b"250 ok\r\n550 no\r\n250 ok\r\n354 go\r\n": (
        [RecipientRefused(0, NO, 0)],
        ClientState.MESSAGE,
    ),
    b"250 ok\r\n550 no\r\n550 no\r\n550 no\r\n": (
        [RecipientRefused(0, NO, 0), RecipientRefused(1, NO, 0), TransactionRejected(Problem.RECIPIENTS)],
        ClientState.READY,
    ),
    b"550 no\r\n250 ok\r\n550 no\r\n550 no\r\n": ([TransactionRejected(Problem.SENDER, NO)], ClientState.READY),
    b"250 ok\r\n250 ok\r\n250 ok\r\n550 no\r\n": ([TransactionRejected(Problem.DATA, NO)], ClientState.READY),
    b"250 ok\r\n250 ok\r\n": ([], ClientState.RCPT),
    b"250 ok\r\n250 ok\r\n250 ok\r\nhello\r\n": (
        [ConnectionFailed(Problem.NOT_SMTP, ClientState.DATA, None, "not an SMTP reply: 'hello'", True, 2)],
        ClientState.CLOSED,
    ),
}


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize(("stream", "expected"), CASES.items(), ids=[repr(stream) for stream in CASES])
def test_events_and_state_do_not_depend_on_the_pieces(
    stream: bytes, expected: tuple[list[Event], ClientState], size: int
) -> None:
    client = opened()
    assert client.begin(ENVELOPE_OF_TWO) == []
    events: list[Event] = []
    for at in range(0, len(stream), size):
        events += client.feed(stream[at : at + size])
    assert (events, client.state) == expected


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize(
    ("sent", "after", "problem", "state"),
    [
        (b"250 ok\r\n250 ok\r\n250 ok\r\n354 go\r\n", b"250 more\r\n", Problem.MESSAGE, ClientState.MESSAGE),
        (b"250 ok\r\n250 ok\r\n250 ok\r\n550 no\r\n", b"250 more\r\n", Problem.OUT_OF_TURN, ClientState.READY),
        (b"550 no\r\n550 no\r\n550 no\r\n550 no\r\n", b"250 more\r\n", Problem.OUT_OF_TURN, ClientState.READY),
        (b"550 no\r\n550 no\r\n550 no\r\n550 no\r\n", b"\xff\r\n", Problem.NOT_SMTP, ClientState.READY),
        (b"550 no\r\n550 no\r\n550 no\r\n550 no\r\n", b"421 bye\r\n", Problem.OUT_OF_TURN, ClientState.READY),
    ],
)
def test_bytes_after_the_last_reply_end_the_connection(
    sent: bytes, after: bytes, problem: Problem, state: ClientState, size: int
) -> None:
    client, stream = opened(), sent + after
    client.begin(ENVELOPE_OF_TWO)
    for at in range(0, len(stream), size):
        client.feed(stream[at : at + size])
    assert client.failure is not None
    assert (client.failure.problem, client.failure.state) == (problem, state)
    assert client.state is ClientState.CLOSED
    assert client.feed(b"250 ok\r\n") == []


@pytest.mark.parametrize(
    ("stream", "in_transaction"),
    [(b"", False), (b"250 ok\r\n", True), (b"250 ok\r\n550 no\r\n550 no\r\n", False), (b"550 no\r\n250 ok\r\n", False)],
)
def test_a_failure_takes_a_transaction_with_it_once_mail_is_accepted(stream: bytes, in_transaction: bool) -> None:
    client = opened()
    client.begin(ENVELOPE_OF_TWO)
    client.feed(stream)
    [event] = client.lost()
    assert isinstance(event, ConnectionFailed)
    assert event.in_transaction is in_transaction
    assert client.lost() == []


def test_a_message_that_is_taken_is_one_event() -> None:
    client = opened()
    client.begin(ENVELOPE_OF_TWO)
    client.feed(b"250 ok\r\n250 ok\r\n250 ok\r\n354 go\r\n")
    client.message_sent()
    assert client.feed(b"250 ok\r\n") == [TransactionAccepted(OK)]
    assert client.state is ClientState.READY


def test_paths_that_need_smtputf8_are_named_before_anything_is_sent() -> None:
    client = opened()
    envelope = ENVELOPE_OF_TWO._replace(forward_paths=[("<\u00fc@b>".encode(), True), (b"<t@b>", False)])
    assert client.begin(envelope) == [RecipientNeedsSmtputf8(0)]
    assert client.feed(b"250 ok\r\n250 ok\r\n") == []


def test_without_pipelining_the_state_is_the_command_that_waits_for_its_reply() -> None:
    client, states = opened(PLAIN), []
    client.begin(ENVELOPE_OF_TWO)
    for reply in (b"250 ok\r\n", b"250 ok\r\n", b"250 ok\r\n", b"354 go\r\n"):
        states.append(client.state)
        client.feed(reply)
    assert states == [ClientState.MAIL, ClientState.RCPT, ClientState.RCPT, ClientState.DATA]


def test_quit_is_a_state_until_its_answer() -> None:
    client = opened()
    client.quit()
    assert (client.state, client.data_to_send()) == (ClientState.QUIT, b"QUIT\r\n")
    assert client.feed(b"221 bye\r\n") == []
    assert client.state is ClientState.CLOSED
    assert client.failure is None


LINES = st.sampled_from(
    [*(b"220 a", b"250 b", b"250-STARTTLS", b"250-PIPELINING", b"354 c", b"421 d", b"452 e", b"550 f", b"x")]
)


@given(st.lists(LINES, max_size=12), st.booleans())
def test_each_transition_is_in_the_table(lines: list[bytes], greeted: bool) -> None:
    client = opened() if greeted else SmtpClient(Session(PEER, b"client.example"))
    for line in lines:
        if client.state is ClientState.READY:
            client.begin(ENVELOPE_OF_TWO)
        elif client.state is ClientState.MESSAGE:
            client.message_sent()
        before = client.state
        client.feed(line + b"\r\n")
        if client.state is not before and not client.ended:
            assert client.state in TRANSITIONS[before]


def test_each_state_that_waits_for_a_reply_has_transitions() -> None:
    assert set(TRANSITIONS) == {*OPENING, *ENVELOPE, ClientState.END}
