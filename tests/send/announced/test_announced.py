"""Announced messages in queue-send: delivered from the notice, classified when something must wait."""

import errno
import gc
import os
import select
import signal
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from queue_base.daemon.clock import Clock
from queue_base.home import Home
from queue_base.queue import hold_marks
from queue_base.queue.class_trees import make_class_tree
from queue_base.queue.layout import Presence, open_layout
from queue_base.queue.marks_file import LeftMarks, MarksFile
from queue_send.admin.orders import CLASSIFY_WAIT, Orders
from queue_send.messages import announced as module
from queue_send.messages.transitions import MessageEvent, MessageState
from queue_wire.admin.socket import HOLD, TROUBLE, Request, Response
from queue_wire.files.hold_mark import HoldOrder, order_mark
from queue_wire.files.marks import DoneMarks, identify
from queue_wire.files.recipients import pack_marked
from queue_wire.ids import pack_long_id
from queue_wire.pipes.cleaning import REMOVED, TODO, Removal
from queue_wire.pipes.notice import (
    ANNOUNCE,
    CLASSIFY,
    FIRST,
    LEAVE,
    LOCAL,
    REMOTE,
    Arrived,
    ClassifyAnswer,
    ClassifyRequest,
    pack_arrived,
    pack_gone,
    pack_request,
)
from support.queues.home import make_home
from support.queues.queued import classified_message, queue_message
from support.send.control import wait_for_backlog
from support.send.loop import Loop
from support.send.scripted_send import ScriptedSend

TWO = [b"b@c.example", b"d@e.example"]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    found = make_home(tmp_path / "home", split=3)
    Path(found.control, "classifyafter").write_text("5\n")
    return found


@pytest.fixture
def loop(home: Home) -> Iterator[Loop]:
    found = Loop(home)
    found.messages.all_found()
    found.messages.none_late()
    yield found
    found.close()


def notice_of(home: Home, message: int) -> Arrived:
    """Return queue-todo's notice about a message whose recipients are all remote."""
    layout = open_layout(home.queue)
    data = Path(layout.todo(message)).read_bytes()
    birth = os.stat(layout.mess(message)).st_mtime_ns // 1000
    recipients = [(REMOTE, field[1:]) for field in data.split(b"\0") if field[:1] == b"T"]
    known = identify(message, birth, data)
    sender = next(field[1:] for field in data.split(b"\0") if field[:1] == b"F")
    return Arrived(message, birth, 18, sender, recipients, True, known.size, known.check)


def announce(home: Home, loop: Loop, recipients: list[bytes] = TWO, priority: str = "") -> int:
    """Have queue-todo announce a new message; return its number."""
    message = queue_message(home, recipients)
    loop.messages.arrive(notice_of(home, message)._replace(priority=priority), loop.clock.now())
    loop.settle()
    return message


def write_files(home: Home, notice: Arrived, done: int = 0) -> None:
    """Classify a message."""
    layout, message = open_layout(home.queue), notice.message
    marked = [(address, bool(done >> bit & 1)) for bit, (_, address) in enumerate(notice.recipients)]
    Path(layout.hashed("remote", message)).write_bytes(pack_marked(marked))
    info = Path(layout.hashed("info", message))
    info.write_bytes(b"F%s\0" % notice.sender)
    os.utime(info, ns=(notice.birth * 1000, notice.birth * 1000))
    os.unlink(layout.todo(message))


def classify(home: Home, loop: Loop, message: int, done: int = 0) -> None:
    """Classify a message as queue-todo does when queue-send asks for it, and answer."""
    write_files(home, notice_of(home, message), done)
    loop.messages.answer(ClassifyAnswer(message, True))
    loop.settle()


def remote_file(home: Home, message: int) -> Path:
    return Path(open_layout(home.queue).hashed("remote", message))


def wait_for(made: threading.Event) -> None:
    assert made.wait(10)


def asked(loop: Loop) -> list[bytes]:
    return [command for command in loop.sent if command[:1] == b"I"]


def report(loop: Loop, recipient: bytes, verdict: bytes) -> None:
    loop.report(next(job for job in loop.jobs if job.recipients == [recipient]), verdict)
    loop.settle()


def test_a_message_whose_recipients_are_all_done_ends_without_a_file_of_its_own(home: Home, loop: Loop) -> None:
    message = announce(home, loop)
    assert Presence(open_layout(home.queue), message).state() == 4
    report(loop, TWO[0], b"Kdone")
    report(loop, TWO[1], b"Kdone")
    assert not asked(loop)
    birth = notice_of(home, message).birth
    assert [removal for removal, _ in loop.cleaner._asked] == [Removal(message, TODO, 0, birth)]
    assert pack_gone(message) not in loop.sent
    os.write(loop._pipes[3][1], REMOVED)
    loop.settle()
    assert loop.sent[-1] == pack_gone(message)
    assert len(loop.announced) == 0


def test_a_done_recipient_is_marked_at_once_and_not_tried_again_by_the_next_run(home: Home, loop: Loop) -> None:
    message = announce(home, loop)
    report(loop, TWO[1], b"Kdone")
    notice = notice_of(home, message)
    data = Path(open_layout(home.queue).todo(message)).read_bytes()
    assert LeftMarks(open_layout(home.queue)).done(identify(message, notice.birth, data)) == 0b10
    later = Loop(home)
    later.messages.arrive(notice, later.clock.now())
    later.settle()
    assert [job.recipients for job in later.jobs] == [TWO[:1]]
    later.close()


def test_a_record_says_whether_the_log_has_the_lines_of_its_message(home: Home, loop: Loop) -> None:
    layout = open_layout(home.queue)
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    os.write(writer, bytes(os.fpathconf(writer, "PC_PIPE_BUF") * 16))
    os.dup2(writer, loop._nowhere, inheritable=False)  # The log is blocked.
    loop.log.put(b"new msg")
    message = announce(home, loop)
    report(loop, TWO[1], b"Kdone")
    envelope = identify(message, notice_of(home, message).birth, Path(layout.todo(message)).read_bytes())
    assert LeftMarks(layout).marks(envelope) == DoneMarks(envelope, 0b10, logged=False)
    os.read(reader, 1 << 20)
    loop.settle()
    assert LeftMarks(layout).marks(envelope) == DoneMarks(envelope, 0b10, logged=True)
    os.close(reader)
    os.close(writer)


def test_a_record_does_not_say_that_the_log_has_lines_that_were_given_up(home: Home, loop: Loop) -> None:
    layout = open_layout(home.queue)
    message = announce(home, loop)
    loop.log.given_up = True
    report(loop, TWO[1], b"Kdone")
    envelope = identify(message, notice_of(home, message).birth, Path(layout.todo(message)).read_bytes())
    assert LeftMarks(layout).marks(envelope) == DoneMarks(envelope, 0b10, logged=False)


def test_a_bounce_order_does_not_go_on_with_the_next_message_of_its_number(home: Home, loop: Loop) -> None:
    message = classified_message(home, remote=TWO)
    loop.messages.hold(message, HoldOrder.BOUNCE)
    assert loop.is_returning(message)
    loop.messages.happened(MessageEvent.END, message)  # Its last recipients were just done, and its bounce was sent.
    assert not loop.is_returning(message)
    loop.settle()
    assert remote_file(home, message).exists()  # It may be the next message's.


def test_what_an_earlier_run_has_done_ends_at_once(home: Home, loop: Loop) -> None:
    message = queue_message(home, TWO)
    notice = notice_of(home, message)
    marks = MarksFile(open_layout(home.queue))
    data = Path(open_layout(home.queue).todo(message)).read_bytes()
    slot = marks.take()
    assert slot is not None
    marks.write(slot, DoneMarks(identify(message, notice.birth, data), 0b11))
    marks.close()
    loop.messages.arrive(notice, loop.clock.now())
    loop.settle()
    assert not loop.jobs
    assert [removal for removal, _ in loop.cleaner._asked] == [Removal(message, TODO, slot, notice.birth)]


def test_a_deferred_message_is_classified_and_then_waits_for_its_next_attempt(home: Home, loop: Loop) -> None:
    message = announce(home, loop)
    report(loop, TWO[0], b"Kdone")
    report(loop, TWO[1], b"Zlater")
    assert asked(loop) == [pack_request(ClassifyRequest(message, 0b01))]
    classify(home, loop, message, done=0b01)
    assert remote_file(home, message).read_bytes() == b"Db@c.example\0Td@e.example\0"
    assert remote_file(home, message).stat().st_mtime > time.time() + 60
    loop.messages.flush(loop.clock.now())
    loop.settle()
    assert [job.recipients for job in loop.jobs] == [TWO[1:]]


def test_a_flush_while_a_deferred_message_is_being_classified_makes_it_due(home: Home, loop: Loop) -> None:
    message = announce(home, loop, TWO[:1])
    report(loop, TWO[0], b"Zlater")
    loop.messages.flush(loop.clock.now())
    classify(home, loop, message)
    assert [job.recipients for job in loop.jobs] == [TWO[:1]]


def test_a_failure_is_recorded_when_the_message_is_classified_and_not_before(home: Home, loop: Loop) -> None:
    message = announce(home, loop)
    report(loop, TWO[0], b"Dno such user")
    bounce = Path(open_layout(home.queue).bounce(message))
    assert not bounce.exists()
    assert asked(loop) == [pack_request(ClassifyRequest(message, 0))]
    classify(home, loop, message)
    assert bounce.read_bytes().startswith(b"<b@c.example>:\nno such user")
    assert remote_file(home, message).read_bytes() == b"Db@c.example\0Td@e.example\0"


def test_a_delivery_that_ends_while_its_message_is_being_classified_is_marked_in_its_file(
    home: Home, loop: Loop
) -> None:
    message = announce(home, loop)
    loop.classify(message)
    loop.settle()
    assert asked(loop) == [pack_request(ClassifyRequest(message, 0))]
    report(loop, TWO[1], b"Kdone")
    classify(home, loop, message)
    assert remote_file(home, message).read_bytes() == b"Tb@c.example\0Dd@e.example\0"
    assert len(MarksFile(open_layout(home.queue)).left) == 0


@pytest.mark.parametrize("marked", [True, False])
def test_a_file_of_a_channel_that_is_done_and_that_the_disk_keeps_is_removed_later_and_the_message_ends(
    home: Home, monkeypatch: pytest.MonkeyPatch, marked: bool
) -> None:
    passed = 0.0
    loop = Loop(home, Clock(lambda: 2e9 + passed, lambda: passed))
    loop.messages.all_found()
    loop.messages.none_late()
    loop.start_local()
    message = queue_message(home, TWO)
    found = notice_of(home, message)
    notice = found._replace(recipients=[(REMOTE, TWO[0]), (LOCAL, TWO[1])])
    loop.messages.arrive(notice, loop.clock.now())
    loop.settle()
    loop.classify(message)
    loop.settle()
    report(loop, TWO[0], b"Kdone")
    write_files(home, notice._replace(recipients=notice.recipients[:1]))
    local = Path(open_layout(home.queue).hashed("local", message))
    local.write_bytes(pack_marked([(TWO[1], False)]))
    real_open = os.open

    def refuse(path: str, *_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", path)

    def open_or_refuse(path: str, flags: int, *more: int) -> int:
        if path == str(remote_file(home, message)) and flags & os.O_WRONLY:
            refuse(path)
        return real_open(path, flags, *more)

    with monkeypatch.context() as patch:
        if marked:
            patch.setattr(os, "unlink", refuse)
        else:
            patch.setattr(os, "open", open_or_refuse)
        loop.messages.answer(ClassifyAnswer(message, True))
    assert remote_file(home, message).exists() == marked
    passed = 124.0
    loop.settle()
    assert not remote_file(home, message).exists() and local.exists() and not loop.jobs
    loop.report(loop.local_jobs[0], b"Kdone")
    loop.settle()
    assert [removal for removal, _ in loop.cleaner._asked] == [Removal(message)]
    loop.close()


def test_a_message_that_ends_while_it_is_being_classified_ends_after_that(home: Home, loop: Loop) -> None:
    message = announce(home, loop, TWO[:1])
    loop.classify(message)
    loop.settle()
    report(loop, TWO[0], b"Kdone")
    assert not loop.cleaner._asked
    classify(home, loop, message)
    assert [removal for removal, _ in loop.cleaner._asked] == [Removal(message)]


def test_of_a_message_that_has_left_todo_nothing_more_is_tried(home: Home, loop: Loop) -> None:
    Path(home.control, "concurrencyremote").write_text("1\n")
    message = announce(home, loop)
    loop.classify(message)
    loop.settle()
    os.unlink(open_layout(home.queue).todo(message))
    loop.messages.answer(ClassifyAnswer(message, False))
    loop.settle()
    assert len(loop.announced) == 0 and not loop.cleaner._asked
    for job in list(loop.jobs):
        loop.report(job, b"Zlater")
    loop.settle()
    loop.messages.flush(loop.clock.now())
    loop.settle()
    assert not loop.jobs


def test_what_is_not_started_for_classifyafter_is_classified(
    home: Home, loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop.channel.scheduler.apply_settings(loop.channel.scheduler.settings._replace(concurrency=0))
    message = announce(home, loop)
    assert not asked(loop)
    now = time.monotonic()
    monkeypatch.setattr("queue_send.messages.announced.time.monotonic", lambda: now + 6)
    loop.settle()
    assert asked(loop) == [pack_request(ClassifyRequest(message, 0))]


def test_at_the_exit_everything_announced_is_classified(home: Home, loop: Loop) -> None:
    message = announce(home, loop)
    assert loop.jobs
    loop.shutdown.begin()
    loop.settle()
    assert asked(loop) == [pack_request(ClassifyRequest(message, 0))]
    assert loop.sent[-2:] == [CLASSIFY, pack_request(ClassifyRequest(message, 0))]


def leave_behind(home: Home, loop: Loop) -> int:
    """Have queue-todo end without its answers at the exit; return a message with a failure that waits for one."""
    message = announce(home, loop)
    report(loop, TWO[0], b"Dno such user")
    assert asked(loop) == [pack_request(ClassifyRequest(message, 0))]
    report(loop, TWO[1], b"Kdone")
    loop.shutdown.begin()
    loop.settle()
    return message


def test_at_the_exit_a_failure_is_recorded_of_a_message_that_was_classified_without_an_answer(
    home: Home, loop: Loop
) -> None:
    message = leave_behind(home, loop)
    write_files(home, notice_of(home, message))
    assert loop.messages.settle_announced()
    loop.settle()
    bounce = Path(open_layout(home.queue).bounce(message))
    assert bounce.read_bytes().startswith(b"<b@c.example>:\nno such user")
    assert not Path(open_layout(home.queue).hashed("remote", message)).exists()
    assert not loop.messages.settle_announced()
    # An answer that comes all the same changes nothing.
    loop.messages.answer(ClassifyAnswer(message, True))
    loop.settle()
    assert bounce.read_bytes().count(b"no such user") == 1


def test_queue_send_exits_when_it_has_recorded_the_failures_that_queue_todo_did_not_answer_about(home: Home) -> None:
    with ScriptedSend(home) as send:
        send.fence()
        wait_for_backlog(home)
        message = queue_message(home, TWO[:1])
        notice = notice_of(home, message)
        send.todo.send(pack_arrived(notice))
        send.remote.deliver(b"Dno such user")
        assert send.todo.receive() == pack_request(ClassifyRequest(message, 0))
        send.signal(signal.SIGTERM)
        send.wait_for("status: .* exitasap")
        write_files(home, notice)
        send.todo.die()
        assert send.wait() == 0
    layout = open_layout(home.queue)
    assert Path(layout.bounce(message)).read_bytes().startswith(b"<b@c.example>:\nno such user")
    assert not remote_file(home, message).exists()


def test_queue_send_says_at_its_exit_what_the_next_run_delivers_again(home: Home) -> None:
    with ScriptedSend(home) as send:
        send.fence()
        wait_for_backlog(home)
        message = queue_message(home, TWO[:1])
        send.todo.send(pack_arrived(notice_of(home, message)))
        send.remote.deliver(b"Dno such user")
        assert send.todo.receive() == pack_request(ClassifyRequest(message, 0))
        send.signal(signal.SIGTERM)
        send.wait_for("status: .* exitasap")
        send.todo.die()
        assert send.wait() == 0
        assert send.lines[-2:] == [
            "warning: 1 messages could not be classified before the exit; the next run tries all recipients that are "
            "not done",
            "status: exiting",
        ]
    assert Presence(open_layout(home.queue), message).state() == 4


def test_at_the_exit_a_deferral_is_kept_of_a_message_that_was_classified_without_an_answer(
    home: Home, loop: Loop
) -> None:
    message = announce(home, loop)
    report(loop, TWO[0], b"Zlater")
    report(loop, TWO[1], b"Kdone")
    loop.shutdown.begin()
    loop.settle()
    write_files(home, notice_of(home, message), done=0b10)
    assert loop.messages.settle_announced()
    loop.settle()
    assert remote_file(home, message).read_bytes() == b"Tb@c.example\0Dd@e.example\0"
    assert remote_file(home, message).stat().st_mtime > time.time() + 60


def test_at_the_exit_no_failure_is_recorded_of_a_message_that_a_power_cut_may_return_to_todo(
    home: Home, loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = leave_behind(home, loop)
    write_files(home, notice_of(home, message))

    def refuse(handle: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", refuse)
        assert loop.messages.settle_announced()
        loop.settle()
    assert not Path(open_layout(home.queue).bounce(message)).exists()
    assert remote_file(home, message).read_bytes() == b"Tb@c.example\0Dd@e.example\0"
    assert not loop.messages.settle_announced()


def test_at_the_exit_the_directory_is_synced_that_the_envelope_of_a_lower_class_has_left(
    home: Home, loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_class_tree(open_layout(home.queue), "bulk")
    message = announce(home, loop, priority="bulk")
    layout = open_layout(home.queue)
    os.rename(layout.todo_in("", message), layout.todo_in("bulk", message))
    report(loop, TWO[0], b"Dno such user")
    report(loop, TWO[1], b"Kdone")
    loop.shutdown.begin()
    loop.settle()
    write_files(home, notice_of(home, message))
    synced: list[str] = []
    sync = os.fsync

    def note(handle: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{handle}"))
        sync(handle)

    monkeypatch.setattr(os, "fsync", note)
    assert loop.messages.settle_announced()
    loop.settle()
    assert os.path.dirname(layout.todo_in("bulk", message)) in synced
    assert Path(layout.bounce(message)).exists()


def test_at_the_exit_no_failure_is_recorded_of_a_message_that_stays_in_todo(home: Home, loop: Loop) -> None:
    message = leave_behind(home, loop)
    assert not loop.messages.settle_announced()
    layout = open_layout(home.queue)
    assert Presence(layout, message).state() == 4 and not Path(layout.bounce(message)).exists()
    # The next run tries the one that has failed, and not the one that is done.
    assert LeftMarks(layout).done(loop.announced._messages[message].identity) == 0b10


def test_at_the_exit_nothing_is_done_for_a_message_whose_files_somebody_has_removed(home: Home, loop: Loop) -> None:
    message = leave_behind(home, loop)
    layout = open_layout(home.queue)
    for path in (layout.todo(message), layout.mess(message)):
        os.unlink(path)
    assert loop.messages.settle_announced()
    loop.settle()
    assert not Path(layout.bounce(message)).exists() and not remote_file(home, message).exists()
    assert not loop.messages.settle_announced()


def test_a_message_on_hold_is_classified_and_not_started(home: Home, loop: Loop) -> None:
    message = queue_message(home, TWO)
    Path(open_layout(home.queue).hashed("hold", message)).write_bytes(b"why\n")
    loop.messages.hold_new(message)
    loop.messages.arrive(notice_of(home, message), loop.clock.now())
    loop.settle()
    assert asked(loop) == [pack_request(ClassifyRequest(message, 0))] and not loop.jobs
    classify(home, loop, message)
    assert not loop.jobs


def test_a_message_that_is_released_while_it_is_being_classified_is_started(home: Home, loop: Loop) -> None:
    message = queue_message(home, TWO)
    mark = Path(open_layout(home.queue).hashed("hold", message))
    mark.write_bytes(b"why\n")
    loop.messages.hold_new(message)
    loop.messages.arrive(notice_of(home, message), loop.clock.now())
    mark.unlink()
    loop.settle()
    assert not loop.jobs
    loop.messages.release(message)
    loop.settle()
    assert sorted(loop.jobs[0].recipients + loop.jobs[1].recipients) == TWO
    classify(home, loop, message)
    assert loop.messages.state(message) is MessageState.WAITING


def test_new_mail_is_announced_left_or_classified(
    home: Home, loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BRISK", 4)
    loop.settle()
    assert loop.sent == [ANNOUNCE]
    settings = loop.channel.scheduler.settings
    for number in range(4):
        announce(home, loop, [b"u@d%d.example" % number])
    loop.channel.scheduler.apply_settings(settings._replace(concurrency=0))
    for _ in range(4):
        announce(home, loop, TWO[1:])
    assert loop.sent == [ANNOUNCE, LEAVE]
    loop.channel.scheduler.apply_settings(settings)
    loop.settle()
    assert loop.sent == [ANNOUNCE, LEAVE, ANNOUNCE]


def test_while_much_of_lower_classes_waits_for_its_start_only_the_first_class_is_wanted(
    home: Home, loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "UNSTARTED_FIRST", 8)
    monkeypatch.setattr(module, "BRISK", 4)
    loop.settle()
    settings = loop.channel.scheduler.settings
    loop.channel.scheduler.apply_settings(settings._replace(concurrency=0))
    for number in range(4):
        announce(home, loop, [b"u@d%d.example" % number], "bulk")
    assert loop.sent == [ANNOUNCE, FIRST]
    announce(home, loop, TWO[1:])
    assert loop.sent == [ANNOUNCE, FIRST]
    loop.channel.scheduler.apply_settings(settings)
    loop.settle()
    assert loop.sent == [ANNOUNCE, FIRST, ANNOUNCE]


def test_while_new_mail_is_left_it_is_soon_looked_whether_it_is_to_be_classified(
    home: Home, loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BRISK", 4)
    for number in range(4):
        announce(home, loop, [b"u@d%d.example" % number])
    loop.channel.scheduler.apply_settings(loop.channel.scheduler.settings._replace(concurrency=0))
    waiting = [announce(home, loop, TWO[1:]) for _ in range(4)]
    assert loop.sent == [ANNOUNCE, LEAVE]
    # The answers do not come: the disk refuses queue-todo the files.
    for message in waiting:
        loop.classify(message)
    loop.settle()
    assert len(asked(loop)) == 4
    assert loop.announced.prepare(select.poll(), loop.clock.now()) <= 5.0


@pytest.mark.parametrize("started", [0, 1])
def test_while_few_or_none_are_started_new_mail_is_classified_and_not_left(
    home: Home, loop: Loop, monkeypatch: pytest.MonkeyPatch, started: int
) -> None:
    monkeypatch.setattr(module, "UNSTARTED_FIRST", 4)
    loop.announced._begun -= 10  # The run has not just begun.
    loop.settle()
    for _ in range(started):
        announce(home, loop, TWO[:1])
    loop.channel.scheduler.apply_settings(loop.channel.scheduler.settings._replace(concurrency=0))
    for _ in range(5):
        announce(home, loop)
    assert loop.sent == [ANNOUNCE, CLASSIFY]


def test_at_the_start_of_a_run_mail_is_left_in_todo_until_deliveries_can_be_started(
    home: Home, loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "UNSTARTED_FIRST", 4)
    monkeypatch.setattr(module, "WARMING_UP", 0.0)
    loop.settle()
    settings = loop.channel.scheduler.settings
    loop.channel.scheduler.apply_settings(settings._replace(concurrency=0))
    for _ in range(6):
        announce(home, loop, TWO[:1])
    assert loop.sent == [ANNOUNCE, LEAVE]
    # The first deliveries are started, and hang.
    loop.channel.scheduler.apply_settings(settings._replace(concurrency=2))
    loop.settle()
    assert loop.sent == [ANNOUNCE, LEAVE, CLASSIFY]


def test_mail_is_classified_where_marks_cannot_be_written(home: Home, loop: Loop) -> None:
    os.mkdir(home.queue + "/marks")
    loop.settle()
    assert loop.sent == []


def test_without_classifyafter_there_is_no_file_of_marks(tmp_path: Path) -> None:
    home = make_home(tmp_path / "other", split=3)
    Path(home.control, "classifyafter").write_text("0\n")
    loop = Loop(home)
    loop.settle()
    assert loop.sent == [] and not os.path.exists(home.queue + "/marks")
    loop.close()


def test_the_pace_is_what_was_started_recently() -> None:
    pace = module.Pace(0.0)
    for _ in range(1000):
        pace.count()
    assert pace.limit(10.0, 0.5) == module.UNSTARTED_FIRST  # Long ago.
    for _ in range(1000):
        pace.count()
    assert pace.limit(10.4, 0.5) == 1000
    assert pace.limit(10.6, 0.5) == 1000 and pace.recent
    assert pace.limit(11.2, 0.5) == module.UNSTARTED_FIRST and not pace.recent


def test_two_failures_of_one_job_end_it_once(home: Home, loop: Loop) -> None:
    both = [b"x@c.example", b"y@c.example", b"d@e.example"]
    message = announce(home, loop, both)
    job = next(job for job in loop.jobs if len(job.recipients) == 2)
    loop.report(job, b"Dno x", b"Dno y")
    loop.settle()
    classify(home, loop, message)
    assert Path(open_layout(home.queue).bounce(message)).read_bytes().count(b"no ") == 2
    assert remote_file(home, message).read_bytes() == b"Dx@c.example\0Dy@c.example\0Td@e.example\0"
    attempt = loop.channel.scheduler.attempts[message]
    assert attempt is not None
    assert (attempt.in_flight, attempt.left, attempt.deferred) == (1, 1, 0)


def test_deliveries_of_a_message_that_is_gone_do_not_mark_the_next_one_of_its_number(home: Home, loop: Loop) -> None:
    message = announce(home, loop)
    loop.classify(message)
    loop.settle()
    loop.messages.answer(ClassifyAnswer(message, False))
    # The number is used again.
    loop.messages.arrive(notice_of(home, message), loop.clock.now())
    remote_file(home, message).write_bytes(b"Tb@c.example\0Td@e.example\0")
    report(loop, TWO[0], b"Kdone")
    report(loop, TWO[1], b"Dno such user")
    assert remote_file(home, message).read_bytes() == b"Tb@c.example\0Td@e.example\0"
    assert not Path(open_layout(home.queue).bounce(message)).exists()
    # Its notice had waited.
    assert [job.recipients for job in loop.jobs] == [[each] for each in TWO]


@pytest.mark.parametrize("first", ["local", "remote"])
def test_a_number_is_free_when_deliveries_of_a_message_that_is_gone_have_ended_on_both_channels(
    home: Home, loop: Loop, first: str
) -> None:
    loop.start_local()
    message = queue_message(home, TWO)
    notice = notice_of(home, message)
    notice = notice._replace(recipients=[(LOCAL, b"joe@me.example.org"), notice.recipients[1]])
    loop.messages.arrive(notice, loop.clock.now())
    loop.settle()
    loop.classify(message)
    loop.settle()
    loop.messages.answer(ClassifyAnswer(message, False))
    loop.messages.arrive(notice, loop.clock.now())  # The next message of this number.
    jobs = [loop.local_jobs[0], loop.jobs[0]]
    if first == "remote":
        jobs.reverse()
    loop.report(jobs[0], b"Kdone")
    loop.settle()
    assert len(loop.local_jobs) + len(loop.jobs) == 1 and message not in loop.announced
    loop.report(jobs[1], b"Kdone")
    loop.settle()
    assert (len(loop.local_jobs), len(loop.jobs)) == (1, 1)


def test_with_very_many_announced_messages_what_is_in_flight_for_too_long_is_classified(
    home: Home, loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CROWDED", 2)
    first, second = announce(home, loop, TWO[:1]), announce(home, loop, TWO[:1])
    now = time.monotonic()
    monkeypatch.setattr("queue_send.messages.announced.time.monotonic", lambda: now + 6)
    loop.settle()
    assert len(loop.jobs) == 2 and not asked(loop)
    announce(home, loop, TWO[:1])
    loop.settle()
    assert asked(loop) == [pack_request(ClassifyRequest(each, 0)) for each in (first, second)]


def test_a_record_that_cannot_be_written_has_its_message_classified_with_its_marks(
    home: Home, loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = announce(home, loop)

    def refuse(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "pwrite", refuse)
    report(loop, TWO[0], b"Kdone")
    assert asked(loop) == [pack_request(ClassifyRequest(message, 0b01))]
    assert loop.sent[-2:].count(CLASSIFY) == 1
    # Mail is announced again only when a record can be written.
    now = time.monotonic()
    for seconds in (61, 122):
        monkeypatch.setattr("queue_send.messages.announced.time.monotonic", lambda seconds=seconds: now + seconds)
        loop.settle()
        assert loop.sent.count(ANNOUNCE) == 1
    monkeypatch.undo()
    monkeypatch.setattr("queue_send.messages.announced.time.monotonic", lambda: now + 183)
    loop.settle()
    assert loop.sent[-1] == ANNOUNCE


def test_when_queue_clean_is_lost_queue_todo_does_not_wait_for_its_removals(home: Home, loop: Loop) -> None:
    message = announce(home, loop, TWO[:1])
    report(loop, TWO[0], b"Kdone")
    envelope = loop.announced._messages[message].identity
    loop.close_answers()
    loop.settle()
    assert loop.shutdown.begun and loop.sent[-1] == pack_gone(message)
    assert LeftMarks(open_layout(home.queue)).done(envelope) == 1


def test_queue_todo_is_told_in_the_next_turn_what_is_gone_with_queue_clean(home: Home, loop: Loop) -> None:
    message = announce(home, loop, TWO[:1])
    report(loop, TWO[0], b"Kdone")
    # The exit has begun, so that the loss gives nothing else to do.
    loop.shutdown.begin()
    loop.settle()
    loop.close_answers()
    loop.turn()
    assert pack_gone(message) not in loop.sent
    assert loop.turn() == 0.0
    assert loop.sent[-1] == pack_gone(message)
    assert loop.turn() > 0.0


@pytest.mark.parametrize("announced", [True, False])
def test_a_mark_that_is_made_while_the_notice_arrives_is_removed_with_its_message(
    home: Home, loop: Loop, announced: bool
) -> None:
    message = queue_message(home, TWO[:1])
    layout, made = open_layout(home.queue), threading.Event()
    # The disk is slow: the message is delivered before its mark is there.
    loop.disk.submit(partial(wait_for, made), lambda _: None)
    loop.messages.changes.make(
        [message], lambda one, commit: hold_marks.mark(layout, one, order_mark(HoldOrder.BOUNCE), commit),
        lambda *_: None,
        lambda one: loop.messages.hold(one, HoldOrder.BOUNCE),
    )  # fmt: skip
    notice = notice_of(home, message)
    if not announced:
        write_files(home, notice)
    loop.messages.arrive(notice._replace(announced=announced), loop.clock.now())
    while not loop.jobs:
        loop.turn()
    loop.report(loop.jobs[0], b"Kdone")
    for _ in range(5):
        loop.turn()
    made.set()
    loop.settle()
    if announced:
        classify(home, loop, message, done=1)
    assert hold_marks.is_marked(layout, "hold", message)
    assert [removal for removal, _ in loop.cleaner._asked] == [Removal(message)]


def test_an_order_to_bounce_that_comes_before_the_notice_waits_until_the_message_is_classified(
    home: Home, loop: Loop
) -> None:
    loop.channel.scheduler.apply_settings(loop.channel.scheduler.settings._replace(concurrency=0))
    message = queue_message(home, TWO, sender=b"#@[]")
    layout = open_layout(home.queue)
    loop.messages.arrive(notice_of(home, message), loop.clock.now())
    loop.messages.changes.make(
        [message], lambda one, commit: hold_marks.mark(layout, one, order_mark(HoldOrder.BOUNCE), commit),
        lambda *_: None,
        lambda one: loop.messages.hold(one, HoldOrder.BOUNCE),
    )  # fmt: skip
    loop.settle()
    assert asked(loop) == [pack_request(ClassifyRequest(message, 0))]
    assert not Path(layout.bounce(message)).exists()
    classify(home, loop, message)
    assert [removal for removal, _ in loop.cleaner._asked] == [Removal(message)]


def announced_in_memory() -> list[module.AnnouncedMessage]:
    return [each for each in gc.get_objects() if isinstance(each, module.AnnouncedMessage)]


def test_what_has_ended_takes_no_memory_behind_a_message_that_is_not_started(home: Home, loop: Loop) -> None:
    others = announced_in_memory()  # Those of tests that ended before.
    first = queue_message(home, [b"joe"])  # queue-local takes no jobs yet.
    loop.messages.arrive(notice_of(home, first)._replace(recipients=[(LOCAL, b"joe")]), loop.clock.now())
    for number in range(10):
        announce(home, loop, [b"u%d@c.example" % number])
        report(loop, b"u%d@c.example" % number, b"Kok")
        loop.removed()
        loop.settle()
    assert len(loop.announced) == 1
    assert len(announced_in_memory()) == len(others) + 1


def test_an_order_does_not_wait_for_ever_for_a_message_that_is_not_classified(home: Home, loop: Loop) -> None:
    layout, first, second = open_layout(home.queue), announce(home, loop), classified_message(home, remote=TWO)
    orders = Orders(loop.messages, loop.parts, lambda: None)
    names = [pack_long_id(each, hold_marks.birth_of(layout, each) or 0) for each in (first, second)]
    replies: list[Response] = []
    now = loop.clock.now()
    orders.carry_out(Request(HOLD, b"ask Jo", [name.encode() for name in names]), replies.append, now)
    orders.look_again(now + CLASSIFY_WAIT - 1)
    assert not replies and orders.wait(now) <= CLASSIFY_WAIT + 1
    orders.look_again(now + CLASSIFY_WAIT + 1)
    loop.settle()
    (reply,) = replies
    assert reply.touched == 1 and hold_marks.is_marked(layout, "hold", second)
    assert [note.letter for note in reply.notes] == [TROUBLE] and names[0].encode() in reply.notes[0].text
    classify(home, loop, first)
    orders.look_again(now)
    assert len(replies) == 1 and not hold_marks.is_marked(layout, "hold", first)
