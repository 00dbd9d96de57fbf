"""queue-send with scripted peers: senders are told, once per age, that their mail is still in the queue."""

import email
import email.message
import email.utils
import os
import signal
import time
from pathlib import Path
from typing import cast

import pytest

from queue_base.home import Home
from queue_base.queue.hold_marks import birth_of
from queue_base.queue.layout import open_layout
from queue_send.delivery.result_writer import append_results
from queue_wire.files.last_result import SUSPENDED, pack_header, pack_result
from support.faults.delayed import HOUR, LATER, defer, grow_older, make_due, old_message, told
from support.queues.queued import classified_message, injected
from support.send.control import file
from support.send.scripted_send import ScriptedSend

pytestmark = pytest.mark.home(delaywarning="4h 24h")


def text_and_blocks(notice: bytes) -> tuple[str, list[email.message.Message]]:
    """Return the part for people, and the status blocks of the recipients."""
    text, status, _ = cast(list[email.message.Message], email.message_from_bytes(notice).get_payload())
    shown = text.get_payload(decode=True)
    assert isinstance(shown, bytes)
    blocks = cast(list[email.message.Message], status.get_payload())
    return shown.decode(), [block for block in blocks if block["Final-Recipient"]]


def test_a_sender_is_told_at_the_first_deferral_after_an_age_who_is_left_and_until_when(home: Home) -> None:
    birth = int(time.time()) - 5 * HOUR
    message = classified_message(
        home, local=[b"l@me.example.org"], remote=[b"b@c", b"d@c"], birth=birth, data=b"Subject: the one\n\nbody\n"
    )
    with ScriptedSend(home) as send:
        send.local.job()
        send.remote.report(send.remote.job(), LATER, b"Kok")
        line = send.wait_for(rf"delay msg {message} qp \d+")
    [(envelope, notice)] = injected(home)
    assert (envelope.sender, envelope.recipients) == (b"", [b"a@example.org"])
    assert int(line.split()[-1]) == envelope.pid
    head = email.message_from_bytes(notice)
    assert head["Subject"] == "Delayed Mail (still being retried)" and head["To"] == "<a@example.org>"
    text, blocks = text_and_blocks(notice)
    # What begins otherwise is a bounce to the programs of mailing lists.
    assert not text.startswith("Hi. This is")
    assert "<b@c>:\nRemote host said: 451 4.7.1 come back later\n" in text and "<d@c>" not in text
    assert {block["Final-Recipient"] for block in blocks} == {"rfc822; b@c", "rfc822; l@me.example.org"}
    assert {block["Action"] for block in blocks} == {"delayed"}
    [remote] = [block for block in blocks if block["Final-Recipient"] == "rfc822; b@c"]
    assert (remote["Status"], remote["Diagnostic-Code"]) == ("4.7.1", "smtp; 451 4.7.1 come back later")
    assert remote["Will-Retry-Until"] == email.utils.formatdate(birth + 604800)
    assert b"Subject: the one\n" in notice and b"\nbody\n" not in notice


def test_a_message_that_is_younger_than_every_age_makes_no_notice(home: Home) -> None:
    old_message(home, 4 * HOUR - 60)
    with ScriptedSend(home) as send:
        defer(send)
        assert told(send) == []
    assert injected(home) == []


def test_each_age_makes_one_notice_whatever_restarts_between(home: Home) -> None:
    message = old_message(home, 5 * HOUR)
    for age, count in ((0, 1), (0, 1), (18 * HOUR, 1), (2 * HOUR, 2), (0, 2), (60 * HOUR, 2)):
        grow_older(home, message, age)
        make_due(home, message)
        known = len(injected(home))
        with ScriptedSend(home) as send:
            defer(send)
            if count > known:
                send.wait_for(rf"delay msg {message} qp \d+")
            assert len(told(send)) == count - known
    assert len(injected(home)) == 2


def test_in_one_run_an_age_makes_one_notice_however_often_the_message_is_deferred(home: Home) -> None:
    message = old_message(home, 5 * HOUR)
    with ScriptedSend(home) as send:
        for _ in range(3):
            defer(send)
            send.wait_for(r"delay .*")
            send.signal(signal.SIGALRM)
        defer(send)
        assert told(send) == send.found(rf"delay msg {message} qp \d+")[:1]
    assert len(injected(home)) == 1


def test_ages_that_passed_while_nothing_ran_make_one_notice(home: Home) -> None:
    message = old_message(home, 30 * HOUR)
    with ScriptedSend(home) as send:
        defer(send)
        send.wait_for(rf"delay msg {message} qp \d+")
        send.signal(signal.SIGALRM)
        defer(send)
        assert len(told(send)) == 1


def test_the_birth_and_so_the_long_id_stay_as_they_were(home: Home) -> None:
    message = old_message(home, 5 * HOUR)
    layout = open_layout(home.queue)
    birth = birth_of(layout, message)
    with ScriptedSend(home) as send:
        defer(send)
        send.wait_for(r"delay .*")
        send.fence()
    assert birth_of(layout, message) == birth
    assert os.stat(layout.mess(message)).st_mtime > time.time() - 60


@pytest.mark.parametrize("sender", [b"", b"#@[]"])
def test_nobody_is_told_of_a_bounce_that_is_late(home: Home, sender: bytes) -> None:
    old_message(home, 5 * HOUR, sender=sender)
    with ScriptedSend(home) as send:
        defer(send)
        assert told(send) == []
    assert injected(home) == []


def test_the_notice_for_a_verp_sender_goes_to_the_sender_without_its_suffix(home: Home) -> None:
    old_message(home, 5 * HOUR, sender=b"list-@lists.example-@[]")
    with ScriptedSend(home) as send:
        defer(send)
        send.wait_for("delay .*")
    assert [envelope.recipients for envelope, _ in injected(home)] == [[b"list-@lists.example"]]


def test_recipients_that_a_dead_destination_defers_without_an_attempt_count_too(home: Home) -> None:
    Path(home.control, "destinationcohorts").write_text("1\n")
    Path(home.control, "destinationinitial").write_text("1\n")
    messages = {old_message(home, 5 * HOUR, due=1 + number) for number in range(3)}
    with ScriptedSend(home) as send:
        send.remote.report(send.remote.job(), b"Zno host\n", scope=b"h")
        send.wait_for("dest c dead: .*")
        lines = [send.wait_for("delay .*", times) for times in (1, 2, 3)]
        assert {int(line.split()[2]) for line in lines} == messages
        assert send.remote.silent


def test_the_reasons_of_earlier_attempts_stand_beside_the_last_one_and_the_fields_have_the_last(home: Home) -> None:
    birth = int(time.time()) - 5 * HOUR
    message = classified_message(home, local=[b"l@me.example.org"], remote=[b"b@c", b"d@c"], birth=birth)
    texts = [b"Sorry, I wasn't able to connect. (#4.4.1)", b"Remote host said: 450 4.2.0 greylisted", LATER[1:]]
    records = [pack_result("remote", 0, birth + 60 * number, b"c", text) for number, text in enumerate(texts * 2)]
    records.append(pack_result("remote", 5, 10**15 - 1, b"c", b"x" * 5000 + b"\n--report"))
    append_results(open_layout(home.queue), message, b"".join(records))
    with ScriptedSend(home) as send:
        send.local.job()
        send.remote.report(send.remote.job(), LATER, LATER)
        send.wait_for(rf"delay msg {message} qp \d+")
    [(_, notice)] = injected(home)
    text, blocks = text_and_blocks(notice)
    dates = [email.utils.formatdate(birth + 60 * number) for number in (4, 3)]
    assert (
        "<b@c>:\nRemote host said: 451 4.7.1 come back later\n"
        f"Before, on {dates[0]}, c: 450 4.2.0 greylisted\n"
        f"Before, on {dates[1]}, c: Sorry, I wasn't able to connect. (#4.4.1)\n"
    ) in text
    assert "9999" in text and "x" * 200 in text and "x" * 201 not in text
    [block] = [block for block in blocks if block["Final-Recipient"] == "rfc822; b@c"]
    assert (block["Status"], block["Diagnostic-Code"]) == ("4.7.1", "smtp; 451 4.7.1 come back later")


def test_what_is_deferred_without_an_attempt_has_the_reason_of_its_last_one(home: Home) -> None:
    Path(home.control, "destinationcohorts").write_text("1\n")
    Path(home.control, "destinationinitial").write_text("1\n")
    result = pack_result("remote", 0, int(time.time()) - HOUR, b"c", b"Remote host said: 450 4.2.0 greylisted")
    messages = [old_message(home, 5 * HOUR, due=due) for due in (1, 2)]
    for message in messages:
        append_results(open_layout(home.queue), message, result)
    with ScriptedSend(home) as send:
        # One of them is tried.
        send.remote.report(send.remote.job(), b"Zno host\n", scope=b"h")
        for message in messages:
            send.wait_for(f"delay msg {message} .*")
    found = [text_and_blocks(notice) for _, notice in injected(home)]
    [(text, [block])] = [each for each in found if "Before, on" not in each[0]]
    assert len(found) == 2 and "Remote host said: 450 4.2.0 greylisted\n" in text
    assert (block["Status"], block["Diagnostic-Code"]) == ("4.2.0", "smtp; 450 4.2.0 greylisted")


def test_that_a_destination_is_dead_is_the_reason_only_for_who_was_never_tried(home: Home) -> None:
    Path(home.control, "destinationcohorts").write_text("1\n")
    Path(home.control, "destinationinitial").write_text("1\n")
    then = int(time.time()) - HOUR
    tried = pack_result("remote", 0, then, b"c", b"450 4.2.0 greylisted")
    suspended = pack_result("remote", 0, then + 60, b"c", SUSPENDED + b"c is dead: timed out")
    messages = [old_message(home, 5 * HOUR, due=due) for due in (1, 2, 3)]
    for message, results in zip(messages, (tried, tried + suspended, suspended), strict=True):
        append_results(open_layout(home.queue), message, results)
    with ScriptedSend(home) as send:
        send.remote.report(send.remote.job(), b"Zno host\n", scope=b"h")
        for message in messages:
            send.wait_for(f"delay msg {message} .*")
    texts = [text_and_blocks(notice)[0] for _, notice in injected(home)]
    assert sum("450 4.2.0 greylisted" in text for text in texts) == 2
    [never] = [text for text in texts if "greylisted" not in text]
    assert "delivery temporarily suspended: c is dead: " in never
    assert sum("temporarily suspended" in text for text in texts) == 1


def test_the_results_of_an_earlier_message_of_the_number_are_not_quoted(home: Home) -> None:
    message = old_message(home, 5 * HOUR)
    append_results(open_layout(home.queue), message, pack_result("remote", 0, 1, b"c", b"of another message"))
    last = file(home, "last", message)
    last.write_bytes(pack_header(1) + last.read_bytes().split(b"\n", 1)[1])
    with ScriptedSend(home) as send:
        defer(send)
        send.wait_for("delay .*")
    [(_, notice)] = injected(home)
    assert b"of another message" not in notice
