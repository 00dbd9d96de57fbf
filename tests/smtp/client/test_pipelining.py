"""The envelope in one flight: DATA with it, what is done where that was too much, and 421 at any point."""

from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_remote.report_text import Verdict
from queue_smtp.client import PIPELINED_MAX, ClientState, Session, Tls
from support.servers.smtp.smtp_script import (
    PEER,
    PIPELINING,
    PLAIN,
    ScriptedClient,
    opening,
    ready,
    run,
    transaction,
    verdicts,
)

GO = b"354 go\r\n"


def test_where_nobody_was_accepted_a_server_that_wants_a_message_gets_none() -> None:
    # The lone dot of RFC 2920 would be an empty message to whomever the server has kept from before.
    client, asked = ready(), transaction(b"a@b", b"c@d")
    said = run(client, asked, b"250 ok\r\n550 no\r\n451 no\r\n")
    assert [letter for letter, _ in asked.verdicts()] == [b"D", b"Z"]
    assert said.endswith(b"DATA\r\n")
    assert client.feed(GO) == b""
    assert client.state is ClientState.CLOSED
    assert client.quit() == b""
    assert [letter for letter, _ in asked.verdicts()] == [b"D", b"Z"]


def test_where_data_is_refused_for_want_of_recipients_rset_comes_next() -> None:
    client = ready()
    assert b"<message>" not in run(client, transaction(), b"250 ok\r\n550 no\r\n554 no valid recipients\r\n")
    assert client.begin(transaction()).startswith(b"RSET\r\nMAIL FROM:")


def test_a_refused_mail_needs_no_rset() -> None:
    client = ready()
    run(client, transaction(), b"550 no\r\n503 no\r\n503 no\r\n")
    assert client.begin(transaction()).startswith(b"MAIL FROM:")


def test_a_recipient_accepted_behind_a_refused_mail_is_reset_before_the_next_mail() -> None:
    client, first, second = ready(), transaction(b"a@b"), transaction(b"c@d")
    run(client, first, b"550 no\r\n250 ok\r\n503 no\r\n")
    assert client.begin(second).startswith(b"RSET\r\nMAIL FROM:")
    # The next one is refused as well, and the server wants a message all the same: for whom, nobody knows.
    assert client.feed(b"250 ok\r\n550 no\r\n550 no\r\n" + GO) == b""
    assert client.state is ClientState.CLOSED
    assert client.quit() == b""


def test_a_refused_message_is_reset_before_the_next_mail() -> None:
    # RFC 5321 section 4.1.1.4 has the recipients forgotten once the message is dealt with; not all servers agree.
    client = ready()
    run(client, transaction(), b"250 ok\r\n250 ok\r\n", GO, b"554 spam\r\n")
    assert client.begin(transaction()).startswith(b"RSET\r\nMAIL FROM:")


@pytest.mark.parametrize("greeting", [PIPELINING, PLAIN])
@pytest.mark.parametrize("before", [[], [b"250 ok\r\n"], [b"250 ok\r\n", b"250 ok\r\n"]])
def test_354_to_another_command_than_data_ends_the_session(greeting: bytes, before: list[bytes]) -> None:
    client, asked = ready(greeting), transaction(b"a@b", b"c@d")
    said = run(client, asked, *before, GO)
    assert b"<message>" not in said
    assert client.state is ClientState.CLOSED
    assert client.quit() == b""
    assert [letter for letter, _ in verdicts(client, asked)] == [b"Z", b"Z"]


def test_354_to_the_end_of_a_message_ends_the_session() -> None:
    # Its answer is still to come, and would be taken for the answer to the next MAIL.
    client, asked = ready(), transaction()
    run(client, asked, b"250 ok\r\n250 ok\r\n", GO, GO)
    assert client.state is ClientState.CLOSED
    assert [letter for letter, _ in asked.verdicts()] == [b"Z"]


def test_a_server_that_wants_a_message_without_a_sender_gets_none() -> None:
    # A dot would be an empty message to whom it has accepted.
    client, asked = ready(), transaction()
    said = run(client, asked, b"550 no\r\n250 ok\r\n", GO)
    assert said.endswith(b"DATA\r\n")
    assert client.state is ClientState.CLOSED
    assert client.quit() == b""
    assert asked.verdicts()[0][0] == b"D"


def test_without_pipelining_rset_waits_for_its_reply_too() -> None:
    client = ready(PLAIN)
    run(client, transaction(), b"250 ok\r\n", b"550 no\r\n")
    assert client.begin(transaction()) == b"RSET\r\n"
    assert client.feed(b"250 ok\r\n") == b"MAIL FROM:<from@a.example>\r\n"


def test_pipelining_can_be_forbidden() -> None:
    client = ScriptedClient(Session(PEER, b"client.example", pipelining=False))
    client.feed(PIPELINING)
    assert client.begin(transaction()) == b"MAIL FROM:<from@a.example> SIZE=500\r\n"


def test_a_flight_is_bounded_and_goes_on_as_replies_come() -> None:
    recipients = [b"r%d@b" % number for number in range(250)]
    client, asked = ready(), transaction(*recipients)
    said = client.begin(asked)
    assert said.count(b"\r\n") == PIPELINED_MAX
    while not said.endswith(b"DATA\r\n"):
        more = client.feed(b"250 ok\r\n")
        assert more
        said += more
    assert said.count(b"RCPT TO:") == 250
    client.feed(b"250 ok\r\n" * (PIPELINED_MAX - 1))
    assert client.state.name == "DATA"
    client.feed(GO)
    assert client.state is ClientState.MESSAGE


def test_data_is_asked_for_only_once_where_all_of_many_are_refused() -> None:
    client, asked = ready(), transaction(*[b"r%d@b" % number for number in range(250)])
    said = client.begin(asked) + client.feed(b"250 ok\r\n" + b"550 no\r\n" * 250)
    assert said.count(b"DATA\r\n") == 1
    assert client.feed(b"554 no valid recipients\r\n") == b""
    assert client.begin(transaction()).startswith(b"RSET\r\nMAIL FROM:")


STAGES = [b"250 ok\r\n", b"250 ok\r\n", b"250 ok\r\n", GO, b"250 done\r\n"]


@pytest.mark.parametrize("greeting", [PIPELINING, PLAIN])
@pytest.mark.parametrize("stage", range(5))
def test_421_ends_the_session_wherever_it_comes(greeting: bytes, stage: int) -> None:
    client, asked = ready(greeting), transaction(b"a@b", b"c@d")
    run(client, asked, *STAGES[:stage], b"421 4.3.2 shutting down\r\n")
    assert client.state is ClientState.CLOSED
    assert client.protocol.dismissed
    # Only before MAIL was accepted is nothing decided, so that the mail may go elsewhere.
    assert asked.done is (stage > 0)
    assert [letter for letter, _ in verdicts(client, asked)] == [b"Z", b"Z"]
    assert all(b"421 4.3.2 shutting down" in text for _, text in asked.verdicts()[-1:])


def test_421_to_a_recipient_leaves_the_refusals_before_it_as_they_are() -> None:
    client, asked = ready(), transaction(b"a@b", b"c@d", b"e@f")
    run(client, asked, b"250 ok\r\n550 no\r\n250 ok\r\n421 bye\r\n")
    assert [letter for letter, _ in asked.verdicts()] == [b"D", b"Z", b"Z"]


def test_a_connection_that_dies_before_mail_is_accepted_leaves_the_transaction_for_another() -> None:
    for replies in ([], [b"garbage\r\n"], [b"421 bye\r\n"]):
        client, asked = ready(), transaction(b"a@b")
        run(client, asked, *replies)
        client.lost()
        assert not asked.done
        other = ready()
        run(other, asked, b"250 ok\r\n250 ok\r\n", GO, b"250 done\r\n")
        assert asked.verdicts()[0][0] == b"K"


OPENINGS = {
    "esmtp": (Tls.NEVER, [PIPELINING]),
    "helo": (Tls.NEVER, [b"220-a\r\n220 hi\r\n", b"502-no\r\n502 no\r\n", b"250 hi\r\n"]),
    "starttls": (Tls.MAY, [b"220 hi\r\n250-raw.example\r\n250 STARTTLS\r\n220 go\r\n", b"250-x\r\n250 PIPELINING\r\n"]),
}
TRANSACTIONS = [
    [b"250 ok\r\n250-two\r\n250 lines\r\n550 no\r\n", GO, b"250 done\r\n"],
    [b"250 ok\r\n550 no\r\n550 no\r\n", GO],
    [b"550 no\r\n250 ok\r\n250 ok\r\n503 no\r\n"],
    [b"250 ok\r\n354 go\r\n"],
    [b"451 no\r\n503 no\r\n503 no\r\n503 no\r\n"],
    [b"250 ok\r\n250 ok\r\n250 ok\r\n", b"552 no\r\n"],
    [b"250 ok\r\n250 ok\r\n452 many\r\n", GO, b"451 later\r\n"],
    [b"250 ok\r\n421 bye\r\n"],
    [b"250 ok\r\n250 ok\r\n250 ok\r\n", GO, b"421 bye\r\n"],
    [b"250 ok\r\n250 ok\r\n250 ok\r\n", b"hello?\r\n"],
]


def play(tls: Tls, replies: list[bytes], lines: list[bytes], size: int) -> tuple[bytes, ClientState, list[Verdict]]:
    """Open a session and carry a transaction, the peer speaking in pieces of `size`; return all that came of it."""

    def pieces(reply: bytes) -> list[bytes]:
        return [reply[start : start + size] for start in range(0, len(reply), size)]

    client, asked, said = opening(tls), transaction(b"a@b", b"c@d"), b""
    for piece in chain.from_iterable(map(pieces, replies)):
        said += client.feed(piece)
        if client.state is ClientState.TLS:
            said += client.secured()
    said += client.begin(asked)
    for piece in chain.from_iterable(map(pieces, lines)):
        said += client.feed(piece)
        if client.state is ClientState.MESSAGE:
            said += b"<message>"
            client.protocol.message_sent()
    if not asked.done:
        client.lost()
    return said, client.state, verdicts(client, asked)


@pytest.mark.parametrize("lines", TRANSACTIONS, ids=[lines[0][:3].decode() + str(len(lines)) for lines in TRANSACTIONS])
@pytest.mark.parametrize("opened", OPENINGS)
def test_a_session_byte_by_byte_is_the_same_session(opened: str, lines: list[bytes]) -> None:
    tls, replies = OPENINGS[opened]
    whole = play(tls, replies, lines, 10_000)
    assert play(tls, replies, lines, 1) == whole
    assert play(tls, replies, lines, 7) == whole


@pytest.mark.parametrize("greeting", [PIPELINING, PLAIN])
@pytest.mark.parametrize("lines", TRANSACTIONS)
def test_all_replies_at_once_are_no_more_than_a_verdict_each(greeting: bytes, lines: list[bytes]) -> None:
    client, asked = ready(greeting), transaction(b"a@b", b"c@d")
    client.begin(asked)
    client.feed(b"".join(lines))
    client.lost()
    assert len(verdicts(client, asked)) == 2
    assert not any(letter == b"K" for letter, _ in asked.verdicts())


@given(st.lists(st.sampled_from([b"250 ok\r\n", b"550 no\r\n", b"452 many\r\n", b"354 go\r\n"]), max_size=300))
def test_whatever_is_answered_no_more_than_a_flight_is_under_way(replies: list[bytes]) -> None:
    client, asked = ready(), transaction(*[b"r%d@b" % number for number in range(250)])
    commands = client.begin(asked).count(b"\r\n")
    for number, reply in enumerate(replies, 1):
        commands += client.feed(reply).count(b"\r\n")
        assert commands - number <= PIPELINED_MAX
