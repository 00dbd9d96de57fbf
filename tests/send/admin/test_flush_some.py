"""flush --recipient and --domain: only those recipients are tried, and the others keep their next attempt."""

import signal
import time
from pathlib import Path

import pytest

from queue_base.home import Home
from queue_send.delivery import partial_flush
from queue_send.delivery.loading import RECIPIENTS_MAX
from queue_send.messages.transitions import MessageEvent
from queue_wire.admin.returning import RecipientSelector
from queue_wire.files.recipients import unpack_recipients
from support.processes.suite import wait_until
from support.queues.queued import classified_message
from support.send.control import file, long_id, order, queuectl
from support.send.loop import Loop
from support.send.scripted_send import ScriptedSend


def waiting(home: Home, *remote: bytes, local: list[bytes] | None = None) -> int:
    """Put in a message that is due in an hour."""
    now = time.time()
    return classified_message(home, remote=list(remote), local=local, birth=now - 100, due=int(now) + 3600)


def due(home: Home, message: int, kind: str = "remote") -> float:
    return file(home, kind, message).stat().st_mtime


def left(home: Home, message: int, kind: str = "remote") -> list[bytes]:
    found = unpack_recipients(file(home, kind, message).read_bytes())
    return [address for _, done, address in found if not done]


def test_only_the_chosen_recipient_is_tried_and_the_others_keep_their_next_attempt(home: Home) -> None:
    message = waiting(home, b"u1@c.example", b"u2@c.example", b"u3@d.example")
    before = due(home, message)
    with ScriptedSend(home) as send:
        send.fence()
        done = queuectl(home, "flush", "--recipient", "U1@c.example")
        assert (done.returncode, done.stdout, done.stderr) == (0, "flushed 1 message\n", "")
        job = send.remote.job()
        assert job.recipients == [b"u1@c.example"]
        send.remote.report(job, b"Kok")
        send.wait_for("delivery 1: success: ok")
        send.fence()
        assert send.remote.silent
        wait_until(lambda: left(home, message) == [b"u2@c.example", b"u3@d.example"], why="the DONE mark")
        assert due(home, message) == before


def test_a_chosen_recipient_that_is_deferred_again_waits_for_the_next_attempt_of_its_message(home: Home) -> None:
    message = waiting(home, b"u1@c.example", b"u2@d.example")
    before = due(home, message)
    with ScriptedSend(home) as send:
        send.fence()
        for number in (1, 2):
            order(home, "flush", "--domain", "c.example")
            send.remote.deliver(b"Zlater")
            send.wait_for(f"delivery {number}: deferral: later")
            send.fence()
            assert send.remote.silent and due(home, message) == before
        assert order(home, "flush", long_id(home, message)) == "flushed 1 message"
        jobs = [send.remote.job(), send.remote.job()]
        assert sorted(job.recipients for job in jobs) == [[b"u1@c.example"], [b"u2@d.example"]]


def test_of_two_flushes_before_its_turn_each_counts_and_the_message_is_not_tried_again(home: Home) -> None:
    Path(home.control, "concurrencyremote").write_text("1\n")
    first = waiting(home, b"a@a.example")
    waiting(home, b"u1@c.example", b"u2@d.example", b"u3@e.example")
    with ScriptedSend(home) as send:
        send.fence()
        order(home, "flush", long_id(home, first))
        job = send.remote.job()
        for _ in range(2):
            order(home, "flush", "--recipient", "u1@c.example")
            order(home, "flush", "--recipient", "u2@d.example")
        send.remote.report(job, b"Zlater")
        found = [send.remote.deliver(b"Zlater").recipients, send.remote.deliver(b"Zlater").recipients]
        assert sorted(found) == [[b"u1@c.example"], [b"u2@d.example"]]
        send.wait_for("delivery 3: deferral: later")
        send.fence()
        assert send.remote.silent


def test_what_is_flushed_while_others_of_the_message_are_tried_follows(home: Home) -> None:
    message = waiting(home, b"u1@c.example", b"u2@d.example", b"u3@e.example")
    with ScriptedSend(home) as send:
        send.fence()
        order(home, "flush", "--recipient", "u1@c.example")
        job = send.remote.job()
        order(home, "flush", "--recipient", "u2@d.example")
        send.fence()
        assert send.remote.silent
        send.remote.report(job, b"Kok")
        job = send.remote.job()
        assert job.recipients == [b"u2@d.example"]
        order(home, "flush", long_id(home, message))
        send.remote.report(job, b"Zlater")
        jobs = [send.remote.job(), send.remote.job()]
        assert sorted(job.recipients for job in jobs) == [[b"u2@d.example"], [b"u3@e.example"]]


@pytest.mark.parametrize("when", ["before its turn", "in flight"])
def test_alrm_tries_all_recipients(home: Home, when: str) -> None:
    Path(home.control, "concurrencyremote").write_text("1\n")
    first = waiting(home, b"a@a.example")
    waiting(home, b"u1@c.example", b"u2@d.example")
    with ScriptedSend(home) as send:
        send.fence()
        if when == "before its turn":
            order(home, "flush", long_id(home, first))
            job = send.remote.job()
            order(home, "flush", "--domain", "c.example")
        else:
            order(home, "hold", long_id(home, first))
            order(home, "flush", "--domain", "c.example")
            job = send.remote.job()
        send.signal(signal.SIGALRM)
        send.fence()
        send.remote.report(job, b"Kok")
        tried = []
        while b"u2@d.example" not in tried:
            tried += send.remote.deliver(b"Kok").recipients


def test_only_channels_and_recipients_in_virtual_domains_that_are_chosen_are_tried(home: Home) -> None:
    Path(home.control, "virtualdomains").write_text("v.example:joe\n")
    message = waiting(home, b"a@c.example", local=[b"joe-sales@v.example", b"joe-info@v.example"])
    before = due(home, message), due(home, message, "local")
    with ScriptedSend(home) as send:
        send.fence()
        order(home, "flush", "--recipient", "sales@v.example")
        job = send.local.job()
        assert job.recipients == [b"joe-sales@v.example"]
        send.local.report(job, b"Zlater")
        send.wait_for("delivery 1: deferral: later")
        send.fence()
        assert send.local.silent and send.remote.silent
        assert (due(home, message), due(home, message, "local")) == before


def test_a_message_without_others_and_one_that_is_due_are_flushed_whole(home: Home) -> None:
    alone = waiting(home, b"a@c.example")
    with ScriptedSend(home) as send:
        send.fence()
        before = due(home, alone)
        order(home, "flush", "--domain", "c.example")
        send.remote.deliver(b"Zlater")
        send.wait_for("delivery 1: deferral: later")
        wait_until(lambda: due(home, alone) != before, why="its own next attempt")
        order(home, "hold", long_id(home, alone))
        both = classified_message(home, remote=[b"a@c.example", b"b@d.example"])
        send.todo.classified(both)
        jobs = [send.remote.job(), send.remote.job()]
        assert order(home, "flush", "--domain", "c.example") == "flushed 0 messages"
        assert sorted(job.recipients for job in jobs) == [[b"a@c.example"], [b"b@d.example"]]


def test_of_very_many_recipients_only_the_chosen_ones_are_tried(home: Home) -> None:
    others = [b"u%d@d.example" % number for number in range(2 * RECIPIENTS_MAX)]
    message = waiting(home, b"first@c.example", *others, b"last@c.example")
    before = due(home, message)
    with ScriptedSend(home) as send:
        send.fence()
        order(home, "flush", "--domain", "c.example")
        for expected in ([b"first@c.example"], [b"last@c.example"]):
            job = send.remote.job()
            assert job.recipients == expected
            send.remote.report(job, b"Kok")
        wait_until(lambda: len(left(home, message)) == len(others), why="the DONE marks")
        wait_until(lambda: due(home, message) == before, why="the next attempt")
        send.fence()
        assert send.remote.silent


def test_a_hold_between_the_order_and_its_turn_ends_it(home: Home) -> None:
    Path(home.control, "concurrencyremote").write_text("1\n")
    first = waiting(home, b"a@a.example")
    message = waiting(home, b"u1@c.example", b"u2@d.example")
    with ScriptedSend(home) as send:
        send.fence()
        order(home, "flush", long_id(home, first))
        job = send.remote.job()
        order(home, "flush", "--domain", "c.example")
        order(home, "hold", long_id(home, message))
        order(home, "release", long_id(home, message))
        send.remote.report(job, b"Zlater")
        found = [send.remote.deliver(b"Zlater").recipients, send.remote.deliver(b"Zlater").recipients]
        assert sorted(found) == [[b"u1@c.example"], [b"u2@d.example"]]


def test_more_messages_than_are_kept_are_refused(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partial_flush, "FLUSHED_MAX", 1)
    flushes = partial_flush.PartialFlushes()
    flushes.add(1, RecipientSelector(b"", b"c.example"))
    assert flushes.full
    messages = [waiting(home, b"a@c.example", b"b@d.example") for _ in range(2)]
    loop = Loop(home)
    try:
        loop.settle()
        selector = RecipientSelector(b"", b"c.example")
        assert loop.messages.takes_partial_flushes and loop.messages.make_some_due(messages[0], selector)
        assert not loop.messages.takes_partial_flushes
        loop.messages.happened(MessageEvent.END, messages[0])
        assert loop.messages.takes_partial_flushes
    finally:
        loop.close()


def test_without_queue_send_whole_messages_are_flushed_and_the_others_counted(home: Home) -> None:
    message = waiting(home, b"a@c.example", b"b@d.example", b"c@d.example")
    done = queuectl(home, "flush", "--recipient", "a@c.example", "--dry-run")
    assert done.stderr == "would have flushed 1 message with 2 recipients more than were named\n"
    done = queuectl(home, "flush", "--recipient", "a@c.example")
    assert (done.returncode, done.stdout) == (0, "flushed 1 message\n")
    assert done.stderr == "2 recipients of these messages that were not named: flushed, too\n"
    assert due(home, message) <= time.time()
