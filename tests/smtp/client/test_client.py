"""The SMTP client's state machine against scripted replies."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_remote.smtp.transaction import Transaction
from queue_smtp.client import ClientState
from support.servers.smtp.smtp_script import PIPELINING, PLAIN, opening, ready, run, transaction


def test_a_message_is_taken_with_pipelining() -> None:
    client, asked = ready(), transaction(b"a@b", b"c@d")
    said = run(client, asked, b"250 ok\r\n250 ok\r\n250 ok\r\n354 go\r\n", b"250 queued\r\n")
    assert said == (b"MAIL FROM:<from@a.example> SIZE=500\r\nRCPT TO:<a@b>\r\nRCPT TO:<c@d>\r\nDATA\r\n<message>")
    assert asked.verdicts() == [(b"K", b"192.0.2.1 accepted message.\nRemote host said: 250 queued\n")] * 2
    assert client.state is ClientState.READY
    assert client.quit() == b"QUIT\r\n"


def test_without_pipelining_each_command_waits_for_its_reply() -> None:
    client, asked = ready(PLAIN), transaction(b"a@b", b"c@d")
    assert client.begin(asked) == b"MAIL FROM:<from@a.example>\r\n"
    assert client.feed(b"250 ok\r\n") == b"RCPT TO:<a@b>\r\n"
    assert client.feed(b"250 ok\r\n") == b"RCPT TO:<c@d>\r\n"
    assert client.feed(b"250 ok\r\n") == b"DATA\r\n"


def test_each_recipient_has_its_own_verdict() -> None:
    client, asked = ready(), transaction(b"good@b", b"unknown@b", b"later@b")
    run(client, asked, b"250 ok\r\n250 ok\r\n550 no such user\r\n451 try later\r\n", b"354 go\r\n", b"250 done\r\n")
    assert asked.verdicts() == [
        (b"K", b"192.0.2.1 accepted message.\nRemote host said: 250 done\n"),
        (
            b"D",
            b"192.0.2.1 does not like recipient.\nRemote host said: 550 no such user\nGiving up on 192.0.2.1.\n",
        ),
        (b"Z", b"192.0.2.1 does not like recipient.\nRemote host said: 451 try later\nGiving up on 192.0.2.1.\n"),
    ]


def test_a_refusal_after_data_holds_for_those_that_were_accepted() -> None:
    client, asked = ready(), transaction(b"good@b", b"unknown@b", b"fine@b")
    run(client, asked, b"250 ok\r\n250 ok\r\n550 no\r\n250 ok\r\n", b"354 go\r\n", b"452-full\r\n452 disk\r\n")
    text = b"192.0.2.1 failed after I sent the message.\nRemote host said: 452-full\n452 disk\n"
    assert [verdict[0] for verdict in asked.verdicts()] == [b"Z", b"D", b"Z"]
    assert asked.verdicts()[0] == (b"Z", text)


@pytest.mark.parametrize(("code", "letter"), [(b"450", b"Z"), (b"550", b"D")])
def test_a_refused_sender_is_the_verdict_on_all_whatever_the_recipients_get(code: bytes, letter: bytes) -> None:
    client, asked = ready(), transaction(b"a@b", b"c@d")
    said = run(client, asked, code + b" no\r\n503 what\r\n", b"503 what\r\n503 what\r\n")
    text = b"Connected to 192.0.2.1 but sender was rejected.\nRemote host said: %s no\n" % code
    assert asked.verdicts() == [(letter, text)] * 2
    assert b"<message>" not in said
    assert client.state is ClientState.READY


def test_no_data_without_an_accepted_recipient() -> None:
    client, asked = ready(PLAIN), transaction(b"a@b", b"c@d")
    said = run(client, asked, b"250 ok\r\n550 no\r\n451 no\r\n")
    assert b"DATA" not in said
    assert [verdict[0] for verdict in asked.verdicts()] == [b"D", b"Z"]
    assert client.quit() == b"QUIT\r\n"


def test_after_a_failed_transaction_the_next_one_starts_with_rset() -> None:
    client = ready()
    run(client, transaction(b"a@b"), b"250 ok\r\n550 no\r\n554 nobody to send to\r\n")
    asked = transaction(b"c@d")
    said = run(client, asked, b"250 reset\r\n250 ok\r\n250 ok\r\n", b"354 go\r\n", b"250 done\r\n")
    assert said.startswith(b"RSET\r\nMAIL FROM:")
    assert asked.verdicts()[0][0] == b"K"
    again = transaction(b"e@f")
    assert run(client, again).startswith(b"MAIL FROM:")


def test_too_many_recipients_is_temporary_for_those_who_are_left_out() -> None:
    client, asked = ready(), transaction(b"a@b", b"c@d", b"e@f")
    run(client, asked, b"250 ok\r\n250 ok\r\n552 too many\r\n452 too many\r\n", b"354 go\r\n", b"250 done\r\n")
    assert [verdict[0] for verdict in asked.verdicts()] == [b"K", b"Z", b"Z"]


def test_552_for_the_first_recipient_is_permanent() -> None:
    client, asked = ready(), transaction(b"a@b")
    run(client, asked, b"250 ok\r\n552 mailbox full\r\n")
    assert asked.verdicts()[0][0] == b"D"


@pytest.mark.parametrize(("code", "letter"), [(b"451", b"Z"), (b"554", b"D")])
def test_a_refused_data_command_is_the_verdict(code: bytes, letter: bytes) -> None:
    client, asked = ready(), transaction()
    run(client, asked, b"250 ok\r\n250 ok\r\n", code + b" no\r\n")
    assert asked.verdicts() == [(letter, b"192.0.2.1 failed on DATA command.\nRemote host said: %s no\n" % code)]


def test_data_answered_as_if_the_message_were_there_ends_the_connection() -> None:
    client, asked = ready(), transaction()
    run(client, asked, b"250 ok\r\n250 ok\r\n", b"250 thanks\r\n")
    assert asked.verdicts()[0][0] == b"Z"
    assert client.state is ClientState.CLOSED


def test_a_message_over_the_announced_size_is_refused_without_being_sent() -> None:
    client, asked = ready(), transaction(size=1001)
    assert client.begin(asked) == b""
    [(letter, text)] = asked.verdicts()
    assert letter == b"D"
    assert b"(#5.3.4)" in text
    assert client.state is ClientState.READY
    assert ready().begin(transaction(size=1000)).startswith(b"MAIL FROM:<from@a.example> SIZE=1000\r\n")


def test_helo_follows_when_ehlo_is_not_known() -> None:
    client = opening()
    assert client.feed(b"220 hi\r\n") == b"EHLO client.example\r\n"
    assert client.feed(b"502 what\r\n") == b"HELO client.example\r\n"
    assert client.feed(b"250 hi\r\n") == b""
    assert client.state is ClientState.READY
    assert client.protocol.extensions == {}


def test_extensions_are_noted_in_upper_case_with_their_parameters() -> None:
    assert ready().protocol.extensions == {b"SIZE": b"1000", b"8BITMIME": b"", b"PIPELINING": b""}


def test_addresses_that_cannot_be_sent_fail_without_a_word_on_the_wire() -> None:
    asked = transaction(b"a@b\r\nRSET", b"ok@b", b"\xc3\xa9@b")
    client = ready()
    said = run(client, asked, b"250 ok\r\n250 ok\r\n", b"354 go\r\n", b"250 done\r\n")
    assert said.count(b"RCPT TO:") == 1
    assert b"RSET" not in said
    assert [verdict[0] for verdict in asked.verdicts()] == [b"D", b"K", b"D"]
    assert b"(#5.1.3)" in asked.verdicts()[0][1]
    assert b"(#5.6.7)" in asked.verdicts()[2][1]


def test_a_transaction_with_nobody_to_ask_for_is_done_at_once() -> None:
    assert transaction(b"\n@b").verdicts()[0][0] == b"D"
    refused = Transaction(b"a\n@a", [b"a@b"], 1)
    assert refused.done
    assert b"(#5.1.7)" in refused.verdicts()[0][1]


SESSION = [PIPELINING, b"250 ok\r\n250 ok\r\n550 no\r\n", b"354 go\r\n", b"250 done\r\n"]


@given(st.integers(1, 5))
def test_a_session_in_pieces_is_the_same_session(size: int) -> None:
    asked = transaction(b"a@b", b"c@d")
    client = opening()
    for stage, replies in enumerate(SESSION):
        for start in range(0, len(replies), size):
            client.feed(replies[start : start + size])
        if stage == 0:
            client.begin(asked)
        if client.state is ClientState.MESSAGE:
            client.protocol.message_sent()
    assert [verdict[0] for verdict in asked.verdicts()] == [b"K", b"D"]
