"""The client with LMTP (RFC 2033): LHLO, and a reply to the message for each recipient that was accepted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_remote.alone import pack_transaction
from queue_remote.smtp.transaction import Transaction
from queue_smtp.client import ClientState, Session, Tls
from support.servers.smtp.smtp_script import (
    PEER,
    PIPELINING,
    PLAIN,
    STARTTLS,
    ScriptedClient,
    ready_lmtp,
    run,
    transaction,
)

TAKEN_TWO = b"250 ok\r\n250 ok\r\n250 ok\r\n354 go\r\n"


def letters(asked: Transaction) -> bytes:
    return b"".join(letter for letter, _ in asked.verdicts())


def test_each_recipient_has_the_verdict_of_its_own_reply_to_the_message() -> None:
    client, asked = ready_lmtp(), transaction(b"a@b", b"full@b", b"later@b")
    said = run(
        client, asked, b"250 ok\r\n250 ok\r\n250 ok\r\n250 ok\r\n354 go\r\n",
        b"250 a saved\r\n552 5.2.2 quota\r\n451 4.2.0 busy\r\n",
    )  # fmt: skip
    assert said.endswith(b"RCPT TO:<later@b>\r\nDATA\r\n<message>")
    assert asked.verdicts() == [
        (b"K", b"192.0.2.1 accepted message.\nRemote host said: 250 a saved\n"),
        (b"D", b"192.0.2.1 failed after I sent the message.\nRemote host said: 552 5.2.2 quota\n"),
        (b"Z", b"192.0.2.1 failed after I sent the message.\nRemote host said: 451 4.2.0 busy\n"),
    ]
    assert client.state is ClientState.READY


def test_a_recipient_that_was_refused_before_the_message_has_no_reply_to_it() -> None:
    client, asked = ready_lmtp(PLAIN), transaction(b"no@b", b"a@b", b"never@b", b"full@b")
    run(
        client, asked, b"250 ok\r\n", b"550 unknown\r\n", b"250 ok\r\n", b"451 no\r\n", b"250 ok\r\n", b"354 go\r\n",
        b"250 a saved\r\n", b"552 quota\r\n",
    )  # fmt: skip
    assert letters(asked) == b"DKZD"
    assert b"552 quota" in asked.verdicts()[3][1]


def test_a_connection_that_is_lost_between_the_replies_defers_those_that_have_none() -> None:
    client, asked = ready_lmtp(), transaction(b"a@b", b"c@b", b"d@b")
    run(client, asked, b"250 ok\r\n250 ok\r\n250 ok\r\n250 ok\r\n354 go\r\n", b"250 a saved\r\n550 no\r\n")
    assert not asked.done
    client.lost()
    assert letters(asked) == b"KDZ"
    assert b"Possible duplicate! (#4.4.2)\nAt end of message: it closed the connection" in asked.verdicts()[2][1]


def test_421_between_the_replies_defers_those_that_have_none() -> None:
    client, asked = ready_lmtp(), transaction(b"a@b", b"c@b", b"d@b")
    run(client, asked, b"250 ok\r\n250 ok\r\n250 ok\r\n250 ok\r\n354 go\r\n", b"250 saved\r\n421 bye\r\n250 saved\r\n")
    assert letters(asked) == b"KZZ"
    assert client.state is ClientState.CLOSED


def test_a_reply_too_many_ends_the_connection_and_changes_no_verdict() -> None:
    client, asked = ready_lmtp(), transaction(b"a@b", b"c@b")
    run(client, asked, TAKEN_TWO, b"250 saved\r\n550 no\r\n250 and one more\r\n")
    assert letters(asked) == b"KD"
    assert client.state is ClientState.CLOSED


def test_no_envelope_is_sent_behind_the_final_dot() -> None:
    # If the server gave a reply too few, the next one would be taken for it.
    client, asked = ready_lmtp(), transaction(b"a@b")
    run(client, asked, b"250 ok\r\n250 ok\r\n354 go\r\n")
    assert client.state is ClientState.END
    assert not client.protocol.takes_next


def test_the_next_message_follows_on_the_same_connection() -> None:
    client = ready_lmtp()
    run(client, transaction(b"a@b"), b"250 ok\r\n250 ok\r\n354 go\r\n", b"250 saved\r\n")
    asked = transaction(b"c@d")
    assert run(client, asked, b"250 ok\r\n250 ok\r\n354 go\r\n", b"250 saved\r\n").startswith(b"MAIL FROM:")
    assert letters(asked) == b"K"


def test_a_message_that_nobody_got_is_refused_for_all_and_rset_follows() -> None:
    client, asked = ready_lmtp(), transaction(b"a@b", b"c@b")
    run(client, asked, TAKEN_TWO, b"552 full\r\n452 full\r\n")
    assert letters(asked) == b"DZ"
    assert run(client, transaction(b"e@f")).startswith(b"RSET\r\nMAIL FROM:")


def test_a_reply_before_the_end_of_the_message_is_the_verdict_on_all() -> None:
    client, asked = ready_lmtp(), transaction(b"a@b", b"c@b")
    client.begin(asked)
    client.feed(TAKEN_TWO)
    client.feed(b"552 too much\r\n")
    assert letters(asked) == b"DD"
    assert client.state is ClientState.CLOSED


def test_3xx_to_the_message_ends_the_connection() -> None:
    client, asked = ready_lmtp(), transaction(b"a@b", b"c@b")
    run(client, asked, TAKEN_TWO, b"250 saved\r\n354 go on\r\n")
    assert letters(asked) == b"KZ"
    assert client.state is ClientState.CLOSED


def test_a_server_that_refuses_lhlo_is_not_greeted_with_helo() -> None:
    client = ScriptedClient(Session(PEER, b"client.example", lmtp=True))
    assert client.feed(b"220 hi\r\n") == b"LHLO client.example\r\n"
    assert client.feed(b"500 what\r\n") == b"QUIT\r\n"
    assert client.failure == (
        b"Z",
        b"Connected to 192.0.2.1 but my name was rejected.\nRemote host said: 500 what\n",
    )


def test_lhlo_is_said_again_under_tls() -> None:
    client = ScriptedClient(Session(PEER, b"client.example", Tls.MUST, lmtp=True))
    assert client.feed(STARTTLS) == b"LHLO client.example\r\nSTARTTLS\r\n"
    client.feed(b"220 go\r\n")
    assert client.secured() == b"LHLO client.example\r\n"
    client.feed(b"250 lmtp.example\r\n")
    assert client.state is ClientState.READY


def test_8bitmime_and_smtputf8_are_asked_for_where_they_are_offered() -> None:
    greeting = b"220 hi\r\n250-raw.example\r\n250-8BITMIME\r\n250-SMTPUTF8\r\n250 PIPELINING\r\n"
    client = ready_lmtp(greeting)
    asked = Transaction(b"f@a", ["zoë@b.example".encode()], 9, eight_bit=True)
    assert client.begin(asked).startswith(b"MAIL FROM:<f@a> BODY=8BITMIME SMTPUTF8\r\n")
    without = Transaction(b"f@a", [b"a@b", "zoë@b.example".encode()], 9)
    run(ready_lmtp(), without, b"250 ok\r\n250 ok\r\n354 go\r\n", b"250 saved\r\n")
    assert letters(without) == b"KD"


@given(st.lists(st.sampled_from([b"250 saved", b"550 no", b"451 wait"]), min_size=1, max_size=6), st.data())
def test_the_verdicts_do_not_depend_on_how_the_replies_are_divided(answers: list[bytes], data: st.DataObject) -> None:
    replies = b"250 ok\r\n" * (1 + len(answers)) + b"354 go\r\n"
    after = b"".join(answer + b"\r\n" for answer in answers)
    places = data.draw(st.lists(st.integers(0, len(after)), max_size=5).map(sorted))
    client, asked = ready_lmtp(), transaction(*[b"to%d@b" % number for number in range(len(answers))])
    pieces = [after[begin:end] for begin, end in zip([0, *places], [*places, len(after)], strict=True)]
    run(client, asked, replies, *[piece for piece in pieces if piece])
    assert letters(asked) == b"".join({b"2": b"K", b"5": b"D", b"4": b"Z"}[answer[:1]] for answer in answers)


@pytest.mark.parametrize("answers", [0, 1, 2])
def test_a_server_that_gives_too_few_replies_loses_no_mail(answers: int) -> None:
    client, asked = ready_lmtp(), transaction(b"a@b", b"c@b", b"d@b")
    run(client, asked, b"250 ok\r\n" * 4 + b"354 go\r\n", *[b"250 saved\r\n"] * answers)
    client.lost("no answer in time")
    assert letters(asked) == b"K" * answers + b"Z" * (3 - answers)


def test_lmtp_replies_are_reported_for_each_recipient_when_queue_remote_runs_alone() -> None:
    client, asked = ready_lmtp(PIPELINING), transaction(b"a@b", b"c@b", b"d@b")
    run(client, asked, b"250 ok\r\n" * 4 + b"354 go\r\n", b"550 no\r\n250 saved\r\n")
    client.lost()
    reports = pack_transaction(asked).split(b"\0")
    assert [report[:1] for report in reports] == [b"h", b"r", b"s", b"K", b""]
