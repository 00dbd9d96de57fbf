"""queue-todo as a process: what it finds, how it learns of it, and what it leaves on the disk."""

import os
import re
from pathlib import Path

import pytest

from queue_base.queue.layout import Presence, open_layout
from queue_wire.files.envelope import pack_info, unpack_info
from queue_wire.files.recipients import unpack_pending
from support.processes.todo_daemon import TodoDaemon, todo_home
from support.queues.queued import MESSAGE, put_mess, put_todo, queue_message
from support.send.piped import Piped
from support.tools import need

REMOTE = [b"b@example.net"]
LOCAL = [b"c@me.example.org"]
ENVELOPE = b"u7\0p8\0Fa@example.org\0Tb@example.net\0"


@pytest.mark.parametrize("flat", [False, True])
def test_what_is_there_at_the_start_is_classified(tmp_path: Path, flat: bool) -> None:
    home = todo_home(tmp_path / "home", flat=flat)
    expected = {
        queue_message(home, REMOTE): "R",
        queue_message(home, LOCAL): "L",
        queue_message(home, [*REMOTE, *LOCAL]): "B",
        queue_message(home, []): "X",
    }
    with TodoDaemon(home) as todo:
        found = todo.notices(4)
        assert {message: "XLRB"[notice.local + 2 * notice.remote] for message, notice in found.items()} == expected
        assert all(Presence(todo.layout, message).state() == 5 for message in expected)
        assert todo.exit() == 0


def test_the_log_tells_of_a_message_before_the_notice_does(tmp_path: Path) -> None:
    home = todo_home(tmp_path / "home")
    message = queue_message(home, REMOTE, b"a b\n@\xff.org", uid=1000, pid=4321)
    with TodoDaemon(home) as todo:
        assert todo.notice().message == message
        assert todo.lines == [
            f"new msg {message}",
            f"info msg {message}: bytes {len(MESSAGE)} from <a_b/@_.org> qp 4321 uid 1000",
        ]


def test_a_classified_message_has_its_sender_its_recipients_and_its_birth(tmp_path: Path) -> None:
    home = todo_home(tmp_path / "home")
    message = queue_message(home, [b"B@Example.net", b"joe", b"c@me.example.org", b"d@example.net"], b"s@example.org")
    layout = open_layout(home.queue)
    os.utime(layout.mess(message), ns=(1, 1_600_000_000_123_456_789))
    with TodoDaemon(home) as todo:
        todo.notice()
    info, local, remote = (Path(layout.hashed(kind, message)) for kind in ("info", "local", "remote"))
    assert unpack_info(info.read_bytes()) == b"s@example.org"
    assert [address for _, address in unpack_pending(local.read_bytes())] == [
        b"joe@me.example.org",
        b"c@me.example.org",
    ]
    assert [address for _, address in unpack_pending(remote.read_bytes())] == [b"B@Example.net", b"d@example.net"]
    assert info.stat().st_mtime_ns == 1_600_000_000_123_456_000
    assert {path.stat().st_mode & 0o777 for path in (info, local, remote)} == {0o600}


@pytest.mark.parametrize("flat", [False, True])
def test_a_message_that_is_linked_later_is_classified_without_a_trigger(tmp_path: Path, flat: bool) -> None:
    home = todo_home(tmp_path / "home", flat=flat)
    with TodoDaemon(home) as todo:
        for _ in range(3):
            message = queue_message(home, REMOTE)
            assert todo.notice().message == message


def test_a_message_that_is_renamed_into_todo_is_classified(tmp_path: Path) -> None:
    home = todo_home(tmp_path / "home")
    layout = open_layout(home.queue)
    with TodoDaemon(home) as todo:
        message = put_mess(layout)
        Path(layout.intd(message)).write_bytes(ENVELOPE)
        os.rename(layout.intd(message), layout.todo(message))
        assert todo.notice().message == message


def test_a_message_that_inotify_does_not_see_is_found_by_its_trigger(tmp_path: Path) -> None:
    home = todo_home(tmp_path / "home")
    layout = open_layout(home.queue)
    with TodoDaemon(home) as todo:
        assert queue_message(home, REMOTE) == todo.notice().message
        todo.pull()
        # A directory that was put in the place of a watched one is seen by nobody but a scan.
        message = put_mess(layout)
        bucket = Path(layout.todo(message)).parent
        bucket.rename(bucket.with_name("old"))
        bucket.mkdir()
        put_todo(layout, message, ENVELOPE)
        todo.pull()
        assert todo.notice().message == message


def test_names_in_todo_that_are_no_ids_are_left_alone(tmp_path: Path) -> None:
    home = todo_home(tmp_path / "home")
    todo_directory = Path(home.queue, "todo", "0")
    names = [b"README", b"0", b"007", b"-5", b"1.tmp", b"99999999999999999999", b"caf\xe9"]
    for name in names[:4]:
        Path(os.fsdecode(bytes(todo_directory) + b"/" + name)).write_bytes(b"x")
    with TodoDaemon(home) as todo:
        assert queue_message(home, REMOTE) == todo.notice().message
        for name in names[4:]:
            Path(os.fsdecode(bytes(todo_directory) + b"/" + name)).write_bytes(b"x")
        message = queue_message(home, REMOTE)
        assert todo.notice().message == message
        assert todo.silent
        assert sorted(os.listdir(bytes(todo_directory))) == sorted(names)


def test_a_burst_becomes_a_few_large_groups(tmp_path: Path) -> None:
    home = todo_home(tmp_path / "home")
    count = 600
    trace = tmp_path / "trace"
    expected = {queue_message(home, REMOTE) for _ in range(count)}
    with TodoDaemon(
        home, wrapper=(need("strace"), "-f", "-y", "-o", str(trace), "-e", "trace=fsync,fdatasync,syncfs,sync,write")
    ) as todo:
        assert set(todo.notices(count)) == expected
        assert todo.exit() == 0
    calls = trace.read_text().splitlines()
    assert not any("syncfs" in line or " sync(" in line for line in calls)
    directories = [line for line in calls if re.search(r" fsync\(\d+<[^>]*/\d{1,2}>", line)]
    assert len(directories) <= count // 2, "a group of messages shares its commits"
    files = [line for line in calls if re.search(r" fsync\(\d+<[^>]*/\d{3,}>", line)]
    assert len(files) == count * 2, "each file is synced once"
    assert sum(" write(1," in line for line in calls) <= 20
    assert all(Presence(todo.layout, message).state() == 5 for message in expected)


def test_a_message_is_told_of_once_however_often_it_is_named(tmp_path: Path) -> None:
    home = todo_home(tmp_path / "home")
    with TodoDaemon(home) as todo:
        assert queue_message(home, REMOTE) == todo.notice().message
        for _ in range(5):
            message = queue_message(home, REMOTE)
            for _ in range(3):
                todo.pull()
            assert todo.notice().message == message
        message = queue_message(home, LOCAL)
        assert todo.notice().message == message
        assert todo.silent


def test_what_an_interrupted_classification_left_is_replaced(tmp_path: Path) -> None:
    home = todo_home(tmp_path / "home")
    layout = open_layout(home.queue)
    message = queue_message(home, REMOTE)
    Path(layout.hashed("info", message)).write_bytes(b"Fwro")
    Path(layout.hashed("local", message)).write_bytes(b"Twrong@me.example.org\0")
    Path(layout.hashed("remote", message)).write_bytes(b"Twrong@example.net\0Dwrong")
    with TodoDaemon(home) as todo:
        assert todo.notice().message == message
    assert Path(layout.hashed("info", message)).read_bytes() == pack_info(b"a@example.org", "", 7)
    assert Path(layout.hashed("remote", message)).read_bytes() == b"Tb@example.net\0"
    assert not Path(layout.hashed("local", message)).exists()


def test_the_end_of_its_input_ends_it(tmp_path: Path) -> None:
    home = todo_home(tmp_path / "home")
    with TodoDaemon(home) as todo:
        queue_message(home, REMOTE)
        todo.notice()
        assert todo.end() == 0


def test_it_ends_when_nobody_reads_its_notices_any_more(tmp_path: Path) -> None:
    home = todo_home(tmp_path / "home")
    with TodoDaemon(home) as todo:
        queue_message(home, REMOTE)
        todo.notice()
        todo.stdout.close()
        assert todo.process.wait(30) == 0


def test_an_unknown_command_is_a_warning_and_nothing_else(tmp_path: Path) -> None:
    home = todo_home(tmp_path / "home")
    with TodoDaemon(home) as todo:
        todo.write(b"?")
        assert todo.line() == "warning: queue-todo: unknown command 63"
        message = queue_message(home, REMOTE)
        assert todo.notice().message == message


def test_a_queue_without_buckets_is_refused(tmp_path: Path) -> None:
    home = todo_home(tmp_path / "home")
    for bucket in Path(home.queue, "mess").iterdir():
        bucket.rmdir()
    with Piped("queue-todo", home) as todo:
        assert todo.process.wait(30) == 100
        assert b"queue-todo: fatal: unable to use" in todo.complaint()
