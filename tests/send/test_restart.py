"""queue-send and what the disk holds: numbers that are used again, late notices, files that cannot be read."""

import os
import signal
import time
from pathlib import Path

import pytest

from queue_base.home import Home
from queue_base.queue.layout import open_layout
from queue_wire.files.recipients import pack_recipients
from queue_wire.ids import ID_MAX
from support.queues.queued import classified_message, put_mess, queue_message
from support.send.scripted_send import ScriptedSend


def remove(home: Home, message: int, *kinds: str) -> None:
    """Remove files of a message."""
    for kind in kinds:
        os.unlink(open_layout(home.queue).hashed(kind, message))


def test_files_whose_number_is_too_large_for_a_message_are_passed_by_at_the_start(home: Home) -> None:
    layout, number = open_layout(home.queue), ID_MAX + 1
    message = classified_message(home, remote=[b"stray@c"])
    for kind in ("mess", "info", "remote"):
        os.rename(layout.hashed(kind, message), layout.hashed(kind, number))
    classified_message(home, remote=[b"b@c"])
    with ScriptedSend(home) as send:
        assert send.remote.job().recipients == [b"b@c"]
        send.fence()
        assert send.remote.silent


def test_a_late_notice_about_a_message_that_is_gone_does_nothing(home: Home) -> None:
    with ScriptedSend(home) as send:
        for channels in "LRBX":
            send.todo.classified(123456789, channels)
        send.fence()
        assert send.local.silent and send.remote.silent and send.clean.silent
        assert not send.found(r"end msg .*")


def test_a_late_notice_does_not_touch_a_new_message_that_is_still_being_written(home: Home) -> None:
    layout = open_layout(home.queue)
    writing, waiting = put_mess(layout), queue_message(home, [b"b@c"])
    with ScriptedSend(home) as send:
        for message in (writing, waiting):
            for channels in "XLRB":
                send.todo.classified(message, channels)
        send.fence()
        assert send.clean.silent and send.local.silent and send.remote.silent


@pytest.mark.parametrize("late", ["L", "X", "R"])
def test_a_late_notice_about_an_earlier_message_of_the_number_loses_no_recipient_of_the_new_one(
    home: Home, late: str
) -> None:
    with ScriptedSend(home) as send:
        message = classified_message(home, local=[b"x@me.example.org"], remote=[b"b@c"])
        send.todo.classified(message, late)
        send.todo.classified(message, "B")
        send.local.deliver(b"Kok")
        send.fence()
        assert send.clean.silent
        send.remote.deliver(b"Kok")
        assert send.clean.removed() == message
        assert len(send.found(r"starting delivery .*")) == 2


def test_a_message_that_was_found_at_start_and_is_then_told_of_is_delivered_once(home: Home) -> None:
    message = classified_message(home, remote=[b"b@c"])
    with ScriptedSend(home) as send:
        job = send.remote.job()
        send.todo.classified(message)
        send.fence()
        assert send.remote.silent
        send.remote.report(job, b"Kok")
        assert send.clean.removed() == message
        send.fence()
        assert len(send.found(rf"end msg {message}")) == 1


def test_a_notice_for_a_number_that_is_still_being_removed_waits_for_the_answer(home: Home) -> None:
    with ScriptedSend(home) as send:
        message = classified_message(home, remote=[b"old@c"])
        send.todo.classified(message)
        send.remote.deliver(b"Kok")
        assert send.clean.asked() == message
        # queue-clean has removed it, the number was used again, and the notice is faster than the answer.
        path = Path(open_layout(home.queue).hashed("remote", message))
        path.write_bytes(pack_recipients([b"new@c"]))
        send.todo.classified(message)
        send.fence()
        assert send.remote.silent
        send.clean.send(b"+")
        assert send.remote.deliver(b"Kok").recipients == [b"new@c"]
        assert send.clean.removed() == message


def test_a_number_whose_removal_failed_is_not_used_for_a_notice(home: Home) -> None:
    with ScriptedSend(home) as send:
        message = classified_message(home, remote=[b"old@c"])
        send.todo.classified(message)
        send.remote.deliver(b"Kok")
        assert send.clean.asked() == message
        send.clean.send(b"!")
        send.wait_for(f"warning: unable to clean up msg {message}; will try again later")
        send.todo.classified(message)
        send.fence()
        assert send.remote.silent


def test_a_message_that_still_waits_in_todo_is_not_taken_from_info_at_the_start(home: Home) -> None:
    layout = open_layout(home.queue)
    message = queue_message(home, [b"b@c"])
    Path(layout.hashed("info", message)).write_bytes(b"Fa@example.org\0")
    Path(layout.hashed("remote", message)).write_bytes(b"Tb@c\0")
    with ScriptedSend(home) as send:
        send.fence()
        assert send.remote.silent and send.clean.silent
        os.unlink(layout.todo(message))
        send.todo.classified(message)
        send.remote.deliver(b"Kok")
        assert send.clean.removed() == message


@pytest.mark.parametrize(
    ("kind", "garbage"), [("info", b"garbage"), ("info", b""), ("remote", b"Tb@c"), ("remote", b"Tb@c\0x\0")]
)
def test_a_message_with_a_file_that_cannot_be_read_is_parked_and_others_go_on(
    home: Home, kind: str, garbage: bytes
) -> None:
    layout = open_layout(home.queue)
    message = classified_message(home, remote=[b"b@c"])
    Path(layout.hashed(kind, message)).write_bytes(garbage)
    with ScriptedSend(home) as send:
        # A person has to know which file it is.
        why = rf"{kind}/\d+/{message}: .*"
        send.wait_for(f"corrupt msg {message}: {why}")
        send.wait_for(f"alert: msg {message} cannot be read and is parked in corrupt: {why}")
        assert Path(layout.hashed("corrupt", message)).read_text().count("\n") == 1
        other = classified_message(home, remote=[b"other@c"])
        send.todo.classified(other)
        assert send.remote.deliver(b"Kok").recipients == [b"other@c"]
        assert send.clean.removed() == other
        assert Path(layout.hashed(kind, message)).read_bytes() == garbage
        send.signal(signal.SIGTERM)
        assert send.wait() == 0
    with ScriptedSend(home) as send:
        send.fence()
        assert send.remote.silent and not send.found(r"(alert|corrupt).*")


def test_nothing_of_a_parked_message_is_delivered_or_removed(home: Home) -> None:
    layout = open_layout(home.queue)
    message = classified_message(home, local=[b"x@me.example.org"], remote=[b"b@c"])
    Path(layout.hashed("local", message)).write_bytes(b"garbage")
    with ScriptedSend(home, ready=False) as send:
        send.local.ready()
        send.wait_for(f"corrupt msg {message}: .*")
        send.remote.ready()
        send.fence()
        assert send.remote.silent and send.clean.silent
        assert Path(layout.hashed("remote", message)).read_bytes() == b"Tb@c\0"


def test_a_message_that_neither_channel_can_read_is_parked_once(home: Home) -> None:
    message = classified_message(home, local=[b"x@me.example.org"], remote=[b"b@c"])
    Path(open_layout(home.queue).hashed("info", message)).write_bytes(b"garbage")
    with ScriptedSend(home) as send:
        send.wait_for(f"alert: msg {message} cannot be read and is parked in corrupt: .*")
        send.fence()
        send.signal(signal.SIGTERM)
        assert send.wait() == 0
        assert sum(line.startswith(f"corrupt msg {message}: ") for line in send.lines) == 1


def test_a_finished_message_whose_info_cannot_be_read_is_parked_instead_of_bounced_for_ever(home: Home) -> None:
    message = classified_message(home, bounce=b"<b@c>:\nno\n\n")
    Path(open_layout(home.queue).hashed("info", message)).write_bytes(b"garbage")
    with ScriptedSend(home) as send:
        send.wait_for(f"alert: msg {message} cannot be read and is parked in corrupt: .*")
        assert os.path.exists(open_layout(home.queue).bounce(message))


def test_a_finished_message_that_a_crash_left_is_ended(home: Home) -> None:
    message = classified_message(home)
    with ScriptedSend(home) as send:
        assert send.clean.removed() == message
        send.wait_for(f"end msg {message}")


def test_a_recipients_file_with_everybody_done_is_finished_without_a_delivery(home: Home) -> None:
    message = classified_message(home, remote=[b"b@c"])
    Path(open_layout(home.queue).hashed("remote", message)).write_bytes(b"Db@c\0")
    with ScriptedSend(home) as send:
        assert send.clean.removed() == message
        assert not send.found(r"starting delivery .*")


def test_new_mail_is_delivered_while_a_long_backlog_is_read(home: Home) -> None:
    later = time.time() + 100_000
    for number in range(1500):
        classified_message(home, remote=[b"%d@c" % number], due=later)
    new = classified_message(home, remote=[b"new@c"])
    with ScriptedSend(home) as send:
        send.todo.classified(new)
        assert send.remote.deliver(b"Kok").recipients == [b"new@c"]
        assert send.clean.removed() == new


def test_files_that_are_no_messages_are_left_alone(home: Home) -> None:
    note = Path(home.queue, "info", "0", "README")
    note.write_text("a person's file")
    with ScriptedSend(home) as send:
        send.fence()
        assert send.clean.silent and note.exists()


def test_a_message_that_vanishes_while_it_waits_is_forgotten(home: Home) -> None:
    message = classified_message(home, remote=[b"b@c"])
    with ScriptedSend(home, ready=False) as send:
        send.fence()
        remove(home, message, "info", "remote", "mess")
        send.remote.ready()
        send.fence()
        assert send.remote.silent and send.clean.silent
