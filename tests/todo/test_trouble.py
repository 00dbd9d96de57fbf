"""queue-todo in trouble: garbage is parked, what the disk refuses waits, names that inotify lost are found."""

import itertools
import os
import signal
from pathlib import Path

import pytest

from queue_base.queue.class_trees import make_class_tree
from queue_base.queue.layout import Layout, Presence, open_layout
from queue_todo.classify import TodoGroup, confirm
from queue_todo.pending import RETRY_AFTER, Pending
from queue_wire.control.rewrite import Rules
from support.processes.suite import wait_until
from support.processes.todo_daemon import TodoDaemon, todo_home
from support.queues.queued import put_mess, put_todo, queue_message
from support.send.piped import limit_files

REMOTE = [b"b@example.net"]
GOOD = b"u7\0p8\0Fa@example.org\0Tb@example.net\0"
GARBAGE = [
    b"",
    b"F",
    b"Fa@example.org\0Tb@example.net",
    b"u7\0p8\0Tb@example.net\0",
    b"u7\0p8\0Fa@example.org\0Xwhat\0",
    b"u-7\0p8\0Fa@example.org\0",
    b"\xff" * 3000 + b"\0",
    b"u7\0p8\0Fa@example.org\0T" + b"a" * 1003 + b"\0",
    b"u7\0p8\0Fa\0Fb\0",
]


def classified(layout: Layout, messages: list[int]) -> TodoGroup:
    """Classify messages as queue-todo does, all that it can at once; return what became of them."""
    group = TodoGroup(layout, Rules(b"me.example.org", frozenset(), frozenset(), {}), messages)
    assert group.prepare()
    group.finish()
    return group


@pytest.mark.parametrize("garbage", GARBAGE)
def test_a_todo_file_that_cannot_be_read_is_parked_and_the_others_go_on(tmp_path: Path, garbage: bytes) -> None:
    home = todo_home(tmp_path / "home")
    layout = open_layout(home.queue)
    bad = put_mess(layout)
    put_todo(layout, bad, garbage)
    good = queue_message(home, REMOTE)
    with TodoDaemon(home) as todo:
        assert todo.line().startswith(f"corrupt msg {bad}: ")
        assert todo.line().startswith(f"alert: queue-todo: msg {bad} cannot be read and is parked in corrupt: ")
        assert todo.notice().message == good
        reason = Path(layout.hashed("corrupt", bad)).read_bytes()
        assert reason.endswith(b"\n") and reason.count(b"\n") == 1
        assert Path(layout.todo(bad)).read_bytes() == garbage
        assert Presence(layout, bad).mess and not Presence(layout, bad).info
        later = queue_message(home, REMOTE)
        assert todo.notice().message == later


def test_a_parked_message_stays_parked_over_a_restart_without_another_alert(tmp_path: Path) -> None:
    home = todo_home(tmp_path / "home")
    layout = open_layout(home.queue)
    bad = put_mess(layout)
    put_todo(layout, bad, b"garbage")
    with TodoDaemon(home) as todo:
        todo.line(), todo.line()
    with TodoDaemon(home) as todo:
        good = queue_message(home, REMOTE)
        assert todo.notice().message == good
        assert todo.silent
        assert [line for line in todo.lines if str(bad) in line] == []
    assert Path(layout.hashed("corrupt", bad)).exists()


def test_a_mended_file_that_is_renamed_into_place_is_classified_and_its_mark_goes(tmp_path: Path) -> None:
    home = todo_home(tmp_path / "home")
    layout = open_layout(home.queue)
    bad = put_mess(layout)
    put_todo(layout, bad, b"garbage")
    with TodoDaemon(home) as todo:
        todo.line(), todo.line()
        mended = Path(home.queue, "pid", "mended")
        mended.write_bytes(GOOD)
        mended.rename(layout.todo(bad))
        assert todo.notice().message == bad
    assert not Path(layout.hashed("corrupt", bad)).exists()
    assert Presence(layout, bad).state() == 5


def test_a_mark_of_an_earlier_message_does_not_stay_for_a_new_one(tmp_path: Path) -> None:
    home = todo_home(tmp_path / "home")
    layout = open_layout(home.queue)
    with TodoDaemon(home) as todo:
        assert queue_message(home, REMOTE) == todo.notice().message
        # Written by queue-send after queue-todo has looked at corrupt/; then a person removed the message.
        message = put_mess(layout)
        Path(layout.hashed("corrupt", message)).write_bytes(b"of an earlier message\n")
        put_todo(layout, message, GOOD)
        assert todo.notice().message == message
    assert not Path(layout.hashed("corrupt", message)).exists()


def test_a_message_whose_mess_is_missing_is_parked(tmp_path: Path) -> None:
    home = todo_home(tmp_path / "home")
    layout = open_layout(home.queue)
    message = queue_message(home, REMOTE)
    os.unlink(layout.mess(message))
    with TodoDaemon(home) as todo:
        assert todo.line().startswith(f"corrupt msg {message}: ")
        assert "is missing" in todo.line()
    assert os.path.exists(layout.todo(message))


def test_a_message_with_another_inode_number_is_parked(tmp_path: Path) -> None:
    home = todo_home(tmp_path / "home")
    layout = open_layout(home.queue)
    message = queue_message(home, REMOTE)
    copy = Path(layout.mess(message) + ".copy")
    copy.write_bytes(Path(layout.mess(message)).read_bytes())
    copy.rename(layout.mess(message))
    with TodoDaemon(home) as todo:
        assert "the queue was copied, not moved" in todo.line()
    assert Path(layout.hashed("corrupt", message)).exists()
    assert not os.path.exists(layout.hashed("info", message))


def test_a_full_disk_is_one_warning_and_the_mail_is_classified_when_there_is_room(tmp_path: Path) -> None:
    home = todo_home(tmp_path / "home")
    layout = open_layout(home.queue)
    with TodoDaemon(home) as todo:
        assert queue_message(home, REMOTE) == todo.notice().message
        limit_files(todo.process.pid, 0)
        message = queue_message(home, REMOTE)
        line = todo.line()
        assert line.startswith("warning: queue-todo: unable to classify msg ")
        assert line.endswith("; will try again later")
        assert "file too large" in line
        assert Presence(layout, message).state() == 4
        limit_files(todo.process.pid, -1)
        # Its retry is 30 seconds away; that somebody names it again is as good.
        away = Path(home.queue, "pid", "away")
        Path(layout.todo(message)).rename(away)
        away.rename(layout.todo(message))
        assert todo.notice().message == message
    assert Path(layout.hashed("remote", message)).read_bytes() == b"Tb@example.net\0"


def test_what_the_disk_refused_is_tried_again_after_half_a_minute(tmp_path: Path) -> None:
    home = todo_home(tmp_path / "home")
    layout = open_layout(home.queue)
    messages = [queue_message(home, REMOTE) for _ in range(3)]
    refused = Path(layout.hashed("remote", messages[1]))
    refused.mkdir()
    outcome = classified(layout, messages)
    assert sorted(entry.message for entry in outcome.entries) == sorted({messages[0], messages[2]})
    assert [message for message, _ in outcome.deferred] == [messages[1]]
    assert Presence(layout, messages[1]).todo and Presence(layout, messages[1]).mess
    pending = Pending(layout)
    pending.run(1000.0)
    pending.take(10)
    pending.defer(messages[1], 1000.0)
    assert pending.wait(1000.0) == RETRY_AFTER
    pending.run(1000.0 + RETRY_AFTER - 1)
    assert len(pending) == 0
    pending.run(1000.0 + RETRY_AFTER)
    refused.rmdir()
    outcome = classified(layout, pending.take(10))
    assert [entry.message for entry in outcome.entries] == [messages[1]]
    assert Presence(layout, messages[1]).state() == 5


@pytest.mark.parametrize("priority", ["", "bulk"])
def test_no_message_is_missed_when_inotify_loses_events(tmp_path: Path, priority: str) -> None:
    home = todo_home(tmp_path / "home")
    layout = open_layout(home.queue)
    make_class_tree(layout, "bulk")
    layout.learn_classes()
    directory = Path(layout.todo_in(priority, 0)).parent
    events = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    with TodoDaemon(home) as todo:
        assert queue_message(home, REMOTE) == todo.notice().message
        todo.process.send_signal(signal.SIGSTOP)
        stat = Path(f"/proc/{todo.process.pid}/stat")
        wait_until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", why="the stop")
        # Two names in turn, since the kernel keeps equal events that follow each other only once.
        for name, _ in zip(itertools.cycle(("one", "two")), range(events + 1), strict=False):
            handle = os.open(directory / name, os.O_CREAT | os.O_WRONLY)
            os.close(handle)
            os.unlink(directory / name)
        lost = {put_mess(layout) for _ in range(20)}
        for message in lost:
            Path(layout.todo_in(priority, message)).write_bytes(GOOD)
        todo.process.send_signal(signal.SIGCONT)
        assert set(todo.notices(20)) == lost


def test_a_message_is_not_announced_before_its_removal_from_todo_is_safe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = todo_home(tmp_path / "home")
    layout = open_layout(home.queue)
    message = queue_message(home, REMOTE)
    real = os.fsync

    def fails_after_removal(handle: int) -> None:
        if not os.path.lexists(layout.todo(message)):
            raise OSError(5, "Input/output error")
        real(handle)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fails_after_removal)
        outcome = classified(layout, [message])
    assert outcome.entries == [] and [entry.message for entry in outcome.unsure] == [message]
    assert Presence(layout, message).state() == 5
    confirm(layout, outcome.unsure)
