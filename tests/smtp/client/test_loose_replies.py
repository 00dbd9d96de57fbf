"""Replies that are not strict, from servers that have the message all the same."""

from collections.abc import Callable

import pytest

from queue_smtp.client import ClientState
from queue_smtp.reply import REPLY_MAX
from support.servers.smtp.smtp_script import PLAIN, ScriptedClient, ready, ready_lmtp, run, transaction

GONE = b"250 ok\r\n250 ok\r\n354 go\r\n"
# Strict replies, of which a line is cut.
CUT = b"%d " + b"x" * 9000 + b"\r\n", b"%d-" + b"x" * 9000 + b"\r\n%d queued\r\n"
LOOSE = {
    "blank line": b"\r\n%d queued\r\n",
    "uncoded line": b"one moment\r\n%d queued\r\n",
    "uncoded line within": b"%d-so far\r\none moment\r\n%d queued\r\n",
    "no space": b"%dok\r\n",
    "a number before it": b"450ms later\r\n%d queued\r\n",
    "two classes": b"354-so far\r\n%d queued\r\n",
    "long line": CUT[0],
    "long line of many": CUT[1],
    "long uncoded line": b"x" * 9000 + b"\r\n%d queued\r\n",
}


def with_code(form: bytes, code: int) -> bytes:
    return form.replace(b"%d", b"%d" % code)


@pytest.mark.parametrize("form", LOOSE.values(), ids=LOOSE)
@pytest.mark.parametrize(("code", "letter"), [(250, b"K"), (451, b"Z"), (550, b"D")])
@pytest.mark.parametrize("cut", [False, True], ids=["whole", "in two"])
def test_the_last_coded_line_after_the_dot_is_the_verdict(form: bytes, code: int, letter: bytes, cut: bool) -> None:
    client, asked = ready(), transaction()
    reply = with_code(form, code)
    pieces = [reply[: len(reply) // 2], reply[len(reply) // 2 :]] if cut and b"ms" not in reply else [reply]
    run(client, asked, GONE, *pieces)
    [(found, text)] = asked.verdicts()
    assert found == letter
    assert b"Remote host said: %d" % code in text or b"\n%d" % code in text
    assert b"duplicate" not in text
    assert client.state is (ClientState.READY if form in CUT else ClientState.QUIT)


@pytest.mark.parametrize("opening", [ready, lambda: ready(PLAIN)], ids=["pipelining", "plain"])
def test_the_next_message_needs_another_connection_since_the_rest_of_the_reply_may_come_late(
    opening: Callable[[], ScriptedClient],
) -> None:
    client, asked = opening(), transaction()
    sent = run(client, asked, b"250 ok\r\n", b"250 ok\r\n", b"354 go\r\n", b"250ok\r\n")
    assert asked.verdicts()[0][0] == b"K"
    assert sent.endswith(b"QUIT\r\n")
    assert not client.protocol.takes_next
    client.feed(b"250 queued\r\n")
    assert client.failure is None


@pytest.mark.parametrize(
    "flood", [b"x" * (REPLY_MAX + 1), b"\r\n" * (REPLY_MAX + 1), b"250-" + b"x" * REPLY_MAX + b"\r\n", b"354 go on\r\n"]
)
def test_what_cannot_be_read_after_the_dot_says_possible_duplicate(flood: bytes) -> None:
    client, asked = ready(), transaction()
    run(client, asked, GONE, *[flood[at : at + 4000] for at in range(0, len(flood), 4000)])
    [(letter, text)] = asked.verdicts()
    assert letter == b"Z"
    assert b"Possible duplicate! (#4.5.0)\n" in text
    assert client.state is ClientState.CLOSED


@pytest.mark.parametrize("form", LOOSE.values(), ids=LOOSE)
def test_the_only_reply_that_is_awaited_to_the_envelope_is_read_in_the_same_way(form: bytes) -> None:
    client, asked = ready(PLAIN), transaction(b"a@b", b"no@b")
    pieces = [with_code(form, code) for code in (250, 250, 550)]
    run(client, asked, *pieces, b"\r\n354 go\r\n", b"250 ok\r\n")
    assert [letter for letter, _ in asked.verdicts()] == [b"K", b"D"]


@pytest.mark.parametrize("line", [b"", b"one moment", b"250ok"])
def test_a_line_that_may_be_one_of_several_replies_ends_the_connection(line: bytes) -> None:
    client, asked = ready(), transaction(b"a@b", b"c@d")
    run(client, asked, b"250 ok\r\n" + line + b"\r\n")
    assert [letter for letter, _ in asked.verdicts()] == [b"Z", b"Z"]
    assert b"At RCPT: not an SMTP reply" in asked.verdicts()[0][1]
    assert client.state is ClientState.CLOSED


def test_a_long_line_of_a_recipient_is_cut() -> None:
    client, asked = ready(), transaction(b"a@b", b"c@d")
    run(client, asked, b"250 ok\r\n550 " + b"x" * 9000 + b"\r\n250 ok\r\n354 go\r\n", b"250 ok\r\n")
    assert [letter for letter, _ in asked.verdicts()] == [b"D", b"K"]


def take_by_lmtp(*replies: bytes) -> tuple[ScriptedClient, list[tuple[bytes, bytes]]]:
    client, asked = ready_lmtp(), transaction(b"a@b", b"c@b")
    run(client, asked, b"250 ok\r\n250 ok\r\n250 ok\r\n354 go\r\n", *replies)
    return client, asked.verdicts()


def test_of_the_replies_of_lmtp_the_last_one_is_read_in_the_same_way() -> None:
    _, verdicts = take_by_lmtp(b"250 saved\r\n", b"\r\n", b"550no\r\n")
    assert [letter for letter, _ in verdicts] == [b"K", b"D"]


def test_a_line_that_may_be_another_recipients_reply_of_lmtp_says_possible_duplicate() -> None:
    client, verdicts = take_by_lmtp(b"saved\r\n250 saved\r\n")
    assert [letter for letter, _ in verdicts] == [b"Z", b"Z"]
    assert all(b"does not speak LMTP as I know it. Possible duplicate! (#4.5.0)" in text for _, text in verdicts)
    assert client.state is ClientState.CLOSED


def test_421_in_the_place_of_replies_of_lmtp_says_possible_duplicate_to_those_that_have_none() -> None:
    _, verdicts = take_by_lmtp(b"421 bye\r\n")
    assert [b"Possible duplicate!" in text for _, text in verdicts] == [False, True]
