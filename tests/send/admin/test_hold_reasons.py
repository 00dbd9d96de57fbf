"""The reason of a hold is never an order, whatever it says; an order is a record of the mark."""

import pytest

from queue_base.durable import Commit
from queue_base.home import Home
from queue_base.queue import hold_marks
from queue_base.queue.layout import open_layout
from queue_wire.admin.returning import RecipientSelector
from queue_wire.files.hold_mark import HoldMark, HoldOrder, order_mark, pack_mark, unpack_mark
from support.processes.suite import Suite, wait_until
from support.queues.queued import classified_message, queue_message
from support.send.control import file, long_id, order, queuectl
from support.send.scripted_send import ScriptedSend

SENTENCES = [each.value.decode() for each in HoldOrder]
EARLIER_MARKS = [HoldOrder.DELETE.value + b"\n", HoldOrder.BOUNCE.value + b"\n"]


@pytest.mark.parametrize("reason", SENTENCES)
def test_a_hold_with_the_words_of_an_order_only_holds(home: Home, reason: str) -> None:
    message = classified_message(home, remote=[b"a@c.example"], due=2_000_000_000)
    with ScriptedSend(home) as send:
        assert order(home, "hold", long_id(home, message), "--reason", reason) == "held 1 message"
        send.fence()
    # The next run reads the mark.
    with ScriptedSend(home) as send:
        send.wait_for(f"alert: msg {message} stays on hold, .* words of an order, and no order; .*")
        order(home, "release", long_id(home, message))
        assert send.remote.job().recipients == [b"a@c.example"]
    assert not file(home, "bounce", message).exists()


@pytest.mark.parametrize("reason", SENTENCES)
def test_so_does_one_that_is_made_while_queue_send_does_not_run(home: Home, reason: str) -> None:
    message = classified_message(home, remote=[b"a@c.example"])
    order(home, "hold", long_id(home, message), "--reason", reason)
    assert f"held: {reason}" in queuectl(home, "show", long_id(home, message)).stdout
    assert long_id(home, message) in queuectl(home, "list").stdout
    with ScriptedSend(home) as send:
        send.wait_for(f"alert: msg {message} stays on hold, .*")
        send.fence()
        assert send.remote.silent and file(home, "info", message).exists()


@pytest.mark.parametrize("reason", SENTENCES)
def test_so_does_a_standing_hold(home: Home, reason: str) -> None:
    queuectl(home, "hold", "--standing", "--recipient", "a@c.example", "--reason", reason)
    message = queue_message(home, [b"a@c.example"])
    for _ in range(2):
        with Suite(home) as suite:
            suite.wait_for("^status: local 0/")
            wait_until(lambda: file(home, "info", message).exists(), why="the classification")
    assert file(home, "hold", message).read_bytes() == reason.encode() + b"\n"
    assert not file(home, "bounce", message).exists() and file(home, "remote", message).exists()


@pytest.mark.parametrize("data", EARLIER_MARKS)
def test_an_order_of_an_earlier_version_is_named_and_its_message_stays(home: Home, data: bytes) -> None:
    message = classified_message(home, remote=[b"a@c.example"])
    file(home, "hold", message).write_bytes(data)
    with ScriptedSend(home) as send:
        send.wait_for(f"alert: msg {message} stays on hold, .*; delete, bounce or release it")
        assert order(home, "delete", long_id(home, message)) == "deleted 1 message"
        send.wait_for(f"end msg {message}")


def test_an_order_of_an_earlier_version_to_bounce_some_recipients_is_carried_out() -> None:
    mark = unpack_mark(HoldOrder.BOUNCE_SOME.value + b"\nRa@c.example\0Hask Jo\0")
    assert mark == order_mark(HoldOrder.BOUNCE_SOME, RecipientSelector(b"a@c.example", b""), b"ask Jo")


@pytest.mark.parametrize(
    "mark",
    [
        HoldMark(b""),
        HoldMark(b"ask Jo"),
        order_mark(HoldOrder.DELETE),
        order_mark(HoldOrder.BOUNCE),
        order_mark(HoldOrder.BOUNCE_SOME, RecipientSelector(b"a\nb@c", b"")),
        order_mark(HoldOrder.BOUNCE_SOME, RecipientSelector(b"a@c", b"c"), b""),
    ],
)
def test_a_mark_is_read_as_it_was_written(mark: HoldMark) -> None:
    assert unpack_mark(pack_mark(mark)) == mark


RECORDS = [b"Hx\0", b"Ra@b", b"Ra@b\0Ra@c\0", b"Xa\0", b"Ra@b\0x", b"O\0", b"Odelete", b"Oflush\0", b"R\0"]
RECORDS += [b"Odelete\0Ra@b\0"]


@pytest.mark.parametrize("records", RECORDS)
def test_records_that_are_garbage_or_choose_nobody_are_no_order(records: bytes) -> None:
    mark = unpack_mark(b"ask Jo\n" + records)
    assert mark.order is None and mark.reason == b"ask Jo" and mark.fault


def test_the_reason_of_an_order_that_holds_back_others_keeps_to_its_record(home: Home) -> None:
    message, layout, commit = classified_message(home, remote=[b"a@c.example"]), open_layout(home.queue), Commit()
    file(home, "hold", message).write_bytes(b"x\0Odelete\0\n")
    hold_marks.mark_return(layout, message, RecipientSelector(b"a@c.example", b""), commit)
    commit.sync()
    mark = hold_marks.read_mark(layout, message)
    assert mark is not None and mark.order == HoldOrder.BOUNCE_SOME and mark.held == b"x Odelete"
