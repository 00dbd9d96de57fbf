"""queue-todo's groups: bounded by bytes, worked on beside its loop, in the log before a message leaves todo/."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import queue_todo.classify
from queue_base.home import Home
from queue_base.queue.layout import Presence, open_layout
from queue_todo.classify import PIECE, TodoGroup
from queue_todo.pending import RETRY_AFTER, SLICE, Pending
from queue_wire.address import DOUBLE_BOUNCE_SENDER
from queue_wire.control.rewrite import Rules
from queue_wire.files.recipients import unpack_pending
from queue_wire.pipes.notice import EXIT, WRITTEN, Ask, pack_ask, pack_log, unpack_notice
from support.processes.forked import BIN
from support.processes.suite import Suite, enqueue, wait_until
from support.processes.todo_daemon import TodoDaemon, todo_home
from support.queues.home import make_home
from support.queues.inflow import patched_programs
from support.queues.queued import queue_message
from support.send.scripted_send import ScriptedSend
from support.site import LOCAL, mail_site
from support.tools import need

REMOTE = [b"b@example.net"]
RULES = Rules(b"me.example.org", frozenset([b"me.example.org"]), frozenset(), {})
LARGE_ONE = [b"recipient.%06d@example.net" % number for number in range(250_000)]  # 7 MB.
HANGING = 300_000_000  # Microseconds: longer than any test takes.


@contextmanager
def hanging(home: Home, calls: str, *more: str, programs: Path = BIN) -> Iterator[TodoDaemon]:
    """Run queue-todo so that its thread hangs in some calls, as on a disk that does not answer."""
    words = (need("strace"), "-D", "-f", "-o", os.devnull, "-e", f"trace={calls}", *more)
    fault = ("-e", f"inject={calls}:delay_enter={HANGING}", "--")
    with TodoDaemon(home, wrapper=(*words, *fault), programs=programs) as todo:
        status = Path(f"/proc/{todo.process.pid}/status")
        wait_until(lambda: "TracerPid:\t0\n" not in status.read_text(), why="strace")
        tracer = int(status.read_text().partition("TracerPid:")[2].split()[0])
        try:
            yield todo
        finally:
            # A process has not ended while one of its threads hangs.
            os.kill(tracer, signal.SIGKILL)


def is_hanging(pid: int) -> bool:
    """Return whether a thread other than the main one is held by strace."""
    states = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        if task.name != str(pid):
            states.append(task.joinpath("stat").read_text().rpartition(")")[2].split()[0])
    return "t" in states


def test_a_group_ends_where_its_envelopes_have_bytes_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = make_home(tmp_path / "home", split=3)
    messages = [queue_message(home, [b"x" * 900 + b"@example.net"]) for _ in range(5)]
    monkeypatch.setattr(queue_todo.classify, "GROUP_BYTES", 2500)
    group = TodoGroup(open_layout(home.queue), RULES, messages)
    assert group.prepare()
    assert [entry.message for entry in group.entries] == messages[:2] and group.left == messages[2:]


def test_a_large_envelope_is_a_group_by_itself_and_what_it_holds_is_written_in_pieces(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", split=3)
    layout = open_layout(home.queue)
    recipients = [b"r%d@%s" % (n, b"me.example.org" if n % 3 else b"example.net") for n in range(40_000)]
    message = queue_message(home, recipients, sender=DOUBLE_BOUNCE_SENDER)
    small = queue_message(home, REMOTE)
    group = TodoGroup(layout, RULES, [message, small])
    assert group.prepare()
    assert [entry.message for entry in group.entries] == [small] and group.large == [message]
    alone = TodoGroup(layout, RULES, [message], large=True)
    turns = 1
    while not alone.prepare(0.0):
        turns += 1
    assert turns > os.path.getsize(layout.todo(message)) // PIECE
    alone.finish()
    (entry,) = alone.entries
    assert (entry.sender, entry.uid, entry.pid, entry.local, entry.remote) == (DOUBLE_BOUNCE_SENDER, 7, 8, True, True)
    for kind, wanted in (("local", lambda n: n % 3), ("remote", lambda n: not n % 3)):
        data = Path(layout.hashed(kind, message)).read_bytes()
        expected = [recipient for n, recipient in enumerate(recipients) if wanted(n)]
        assert [address for _, address in unpack_pending(data)] == expected
    assert Presence(layout, message).state() == 5


def test_garbage_at_the_end_of_a_large_envelope_parks_it_and_leaves_no_large_file(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", split=3)
    layout = open_layout(home.queue)
    message = queue_message(home, LARGE_ONE[:20_000])
    with open(layout.todo(message), "ab") as stream:
        stream.write(b"Xwhat\0")
    group = TodoGroup(layout, RULES, [message], large=True)
    assert group.prepare()
    assert [parked for parked, _ in group.parked] == [message] and not group.entries
    assert not os.path.exists(layout.hashed("remote", message))
    assert Presence(layout, message).state() == 4


def test_an_envelope_for_which_there_is_no_memory_is_deferred_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = make_home(tmp_path / "home", split=3)
    messages = [queue_message(home, [b"%d@example.net" % number]) for number in range(3)]
    real = os.read

    def scarce(handle: int, most: int) -> bytes:
        data = real(handle, most)
        if b"T1@" in data:
            raise MemoryError
        return data

    monkeypatch.setattr(os, "read", scarce)
    group = TodoGroup(open_layout(home.queue), RULES, messages)
    assert group.prepare()
    assert [entry.message for entry in group.entries] == [messages[0], messages[2]]
    ((message, why),) = group.deferred
    assert message == messages[1] and why.endswith("out of memory")
    assert Presence(open_layout(home.queue), message).state() == 4


def test_large_envelopes_cost_little_memory_and_hold_up_nobody(tmp_path: Path) -> None:
    home = todo_home(tmp_path / "home")
    large = [queue_message(home, LARGE_ONE) for _ in range(3)]
    small = queue_message(home, REMOTE)
    with TodoDaemon(home) as todo:
        assert todo.notice().message == small
        assert set(todo.notices(3)) == set(large)
        status = Path(f"/proc/{todo.process.pid}/status").read_text()
        peak = int(status.partition("VmHWM:")[2].split()[0])
    assert peak < 60_000, f"{peak} kB"


@pytest.mark.exhaustive
def test_a_suite_with_little_memory_starts_with_large_envelopes_in_todo_and_delivers_other_mail() -> None:
    with mail_site() as site:
        large = [queue_message(site.home, LARGE_ONE) for _ in range(10)]
        limited = ("sh", "-c", 'ulimit -v 450000; exec "$@"', "sh")
        with Suite(site.home, wrapper=limited) as suite:
            assert enqueue(site.home, b"", [f"ann@{LOCAL}".encode()], b"Subject: x\n\n").returncode == 0
            suite.wait_for(r"^delivery \d+: success: ")
            for message in large:
                suite.wait_for(rf"^info msg {message}: ")
            assert suite.count("oh no! lost") == 0


def test_commands_are_answered_and_an_exit_obeyed_while_a_sync_hangs(tmp_path: Path) -> None:
    home = todo_home(tmp_path / "home")
    with hanging(home, "fsync,fdatasync,syncfs") as todo:
        todo.write(b"?")
        assert todo.line() == "warning: queue-todo: unknown command 63"
        message = queue_message(home, REMOTE)
        wait_until(lambda: is_hanging(todo.process.pid), why="the thread to wait for the disk")
        todo.write(b"!")
        assert todo.line() == "warning: queue-todo: unknown command 33"
        todo.write(EXIT)
        # This end is what queue-send waits for.
        assert not todo.more()
        assert is_hanging(todo.process.pid)
        assert Presence(todo.layout, message).state() == 4
    with TodoDaemon(home) as todo:
        assert todo.notice().message == message


def test_the_mark_of_a_slow_queue_is_renewed_while_the_disk_hangs(tmp_path: Path) -> None:
    home = todo_home(tmp_path / "home")
    code = "import queue_todo.backpressure as backpressure, queue_todo.pipeline as pipeline\n"
    code += "backpressure.SLOW_AFTER = 0.2; backpressure.MARK_EVERY = 0.1; pipeline.GROUP = 1"
    programs = patched_programs(tmp_path, queue_todo=code)
    slow = Path(home.queue, "lock", "slow")
    layout = open_layout(home.queue)
    first = queue_message(home, REMOTE)
    # What hangs must be there before strace looks for it, and be named after the first.
    second = queue_message(home, REMOTE)
    os.rename(layout.todo(second), f"{home.queue}/pid/second")
    with hanging(home, "openat", "-P", layout.todo(second), programs=programs) as todo:
        assert todo.notice().message == first
        os.rename(f"{home.queue}/pid/second", layout.todo(second))
        for _ in range(3):
            queue_message(home, REMOTE)
        wait_until(lambda: is_hanging(todo.process.pid), why="the thread to hang")
        wait_until(slow.exists, why="the mark")
        before = slow.stat().st_mtime_ns
        wait_until(lambda: slow.stat().st_mtime_ns > before, why="the mark to be renewed")
        assert Presence(layout, second).todo


def test_a_message_stays_in_todo_until_its_lines_are_in_the_log(tmp_path: Path) -> None:
    home = todo_home(tmp_path / "home")
    message = queue_message(home, REMOTE)
    with TodoDaemon(home, answers=False) as todo:
        assert todo.line() == f"new msg {message}"
        assert todo.line().startswith(f"info msg {message}: ")
        assert unpack_notice(todo.record()) is Ask.WRITTEN
        todo.write(b"?")
        assert todo.line().startswith("warning: ")
        assert Presence(todo.layout, message).state() == 4
        todo.write(WRITTEN)
        assert todo.notice().message == message
        assert Presence(todo.layout, message).state() == 5


def test_what_the_log_tells_of_is_finished_before_an_exit(tmp_path: Path) -> None:
    home = todo_home(tmp_path / "home")
    message = queue_message(home, REMOTE)
    with TodoDaemon(home, answers=False) as todo:
        todo.line(), todo.line()
        assert unpack_notice(todo.record()) is Ask.WRITTEN
        todo.write(EXIT + WRITTEN)
        assert todo.notice().message == message
        assert todo.process.wait(60) == 0
        assert Presence(todo.layout, message).state() == 5


def test_a_message_is_not_announced_while_it_is_in_todo_also_where_memory_is_short_at_its_end(tmp_path: Path) -> None:
    home = todo_home(tmp_path / "home")
    code = """
import os, queue_todo.pending as pending, queue_todo.pipeline as pipeline
pending.RETRY_AFTER = pipeline.RETRY_AFTER = 0.2
real, calls = os.unlink, []
def unlink(path, **more):
    if "/todo/" in path:
        calls.append(path)
        if len(calls) == 1:
            raise MemoryError
    real(path, **more)
os.unlink = unlink"""
    message = queue_message(home, REMOTE)
    with TodoDaemon(home, programs=patched_programs(tmp_path, queue_todo=code)) as todo:
        assert todo.notice().message == message
        assert Presence(todo.layout, message).state() == 5
        (warning,) = [line for line in todo.lines if line.startswith("warning: ")]
        assert warning.startswith("warning: queue-todo: unable to classify ") and "cannot allocate memory" in warning


def test_a_todo_file_that_was_replaced_while_its_lines_were_written_is_read_again(tmp_path: Path) -> None:
    home = todo_home(tmp_path / "home")
    message = queue_message(home, REMOTE)
    with TodoDaemon(home, answers=False) as todo:
        todo.line(), todo.line()
        assert unpack_notice(todo.record()) is Ask.WRITTEN
        fresh = Path(home.queue, "pid", "fresh")
        fresh.write_bytes(b"u7\0p8\0Fa@example.org\0Tc@me.example.org\0")
        fresh.rename(todo.layout.todo(message))
        todo.write(WRITTEN)
        assert todo.line().startswith(f"warning: queue-todo: unable to classify msg {message}: ")
        todo.line(), todo.line()
        assert unpack_notice(todo.record()) is Ask.WRITTEN
        todo.write(WRITTEN)
        notice = todo.notice()
        assert (notice.message, notice.local, notice.remote) == (message, True, False)


def test_queue_send_answers_when_the_lines_are_in_the_log_and_not_before(send: ScriptedSend) -> None:
    send.todo.send(pack_log(b"one line") + pack_ask(Ask.WRITTEN))
    assert send.todo.receive() == WRITTEN
    os.kill(send.pid, signal.SIGSTOP)
    # Nothing that it does from now on can have put it there.
    assert send.wait_for("one line")
    os.kill(send.pid, signal.SIGCONT)


def test_queue_send_does_not_answer_while_nobody_takes_the_log(send: ScriptedSend) -> None:
    line = b"x" * 900
    lines = 200  # More than the pipe takes.
    for _ in range(lines):
        send.todo.send(pack_log(line))
    # The turn that reads the second one comes after that in which the first one is carried out.
    for notice in (pack_ask(Ask.WRITTEN), pack_log(b"later")):
        send.todo.send(notice)
        wait_until(lambda: not send.todo.unread, why="queue-send to read the notice")
    assert send.todo.silent
    send.wait_for("x+", times=lines)
    assert send.todo.receive() == WRITTEN


def test_a_turn_costs_no_more_where_many_messages_are_deferred(tmp_path: Path) -> None:
    pending = Pending(open_layout(make_home(tmp_path / "home", split=3).queue))
    pending.run(0.0)
    count = 200_000
    for message in range(1, count + 1):
        pending.defer(message, 1.0)
    began = time.process_time()
    for _ in range(1000):
        pending.run(2.0)
        pending.wait(2.0)
    assert time.process_time() - began < 2.0
    assert len(pending) == 0
    pending.run(100.0)
    assert 0 < len(pending) <= SLICE
    while pending.wait(100.0) == 0.0:
        pending.run(100.0)
    assert len(pending) == count


def test_a_message_that_is_named_while_it_is_in_hand_is_looked_at_once_more_and_not_twice_at_a_time(
    tmp_path: Path,
) -> None:
    pending = Pending(open_layout(make_home(tmp_path / "home", split=3).queue))
    pending.add([5, 6, 7], 1.0)
    assert pending.take(2) == [5, 6]
    pending.add([5], 2.0)
    assert pending.take(9) == [7]
    pending.done([5, 6, 7], 3.0)
    assert pending.take(9) == [5]
    pending.give_back([5], 1.0)
    pending.add([8], 4.0)
    assert pending.arrival == 1.0 and pending.take(9) == [5, 8]


def test_the_next_message_of_a_number_in_hand_that_only_a_scan_finds_is_looked_at_after_that(tmp_path: Path) -> None:
    layout = open_layout(make_home(tmp_path / "home", split=3).queue)
    pending = Pending(layout)
    pending.add([5], 1.0)
    assert pending.take(9) == [5]
    # The thread has seen that the earlier message is gone; the next one comes, and inotify has lost its name.
    Path(layout.todo(5)).touch()
    pending.run(2.0)
    assert pending.wait(2.0) > 0.0
    assert not pending.may_take()
    pending.done([5], 3.0)
    assert pending.take(9) == [5]
    pending.done([5], 4.0)
    assert not pending.may_take()


def test_a_message_that_a_scan_finds_while_it_is_in_hand_is_deferred_and_parked_as_any_other(tmp_path: Path) -> None:
    layout = open_layout(make_home(tmp_path / "home", split=3).queue)
    pending = Pending(layout)
    pending.add([5, 6], 1.0)
    assert pending.take(9) == [5, 6]
    Path(layout.todo(5)).touch()
    Path(layout.todo(6)).touch()
    pending.run(2.0)
    assert pending.defer(5, 2.0) == RETRY_AFTER
    pending.park(6)
    pending.done([6], 2.0)
    assert not pending.may_take()


def test_a_message_whose_sync_fails_again_and_again_does_not_hold_up_those_that_shared_it(tmp_path: Path) -> None:
    home = todo_home(tmp_path / "home")
    messages = [queue_message(home, REMOTE) for _ in range(12)]
    bad = messages[5]
    # All of one directory fail with it.
    good = {message for message in messages if message % 3 != bad % 3}
    assert good
    programs = patched_programs(tmp_path, queue_todo="import queue_todo.pending as pending\npending.RETRY_AFTER = 0.5")
    directory = os.path.dirname(open_layout(home.queue).hashed("remote", bad))
    words = (need("strace"), "-D", "-f", "-o", os.devnull, "-P", directory, "-e", "trace=fsync")
    with TodoDaemon(home, wrapper=(*words, "-e", "inject=fsync:error=EIO", "--"), programs=programs) as todo:
        assert todo.notices(len(good)).keys() == good
        assert any("unable to classify" in line for line in todo.lines)
    for message in messages:
        assert Presence(open_layout(home.queue), message).state() == (5 if message in good else 4)


def test_announcing_a_message_does_not_change_when_its_envelope_was_read(tmp_path: Path) -> None:
    home = todo_home(tmp_path / "home")
    message = queue_message(home, REMOTE)
    envelope = open_layout(home.queue).todo(message)
    os.utime(envelope, (1_000_000_000, os.stat(envelope).st_mtime))

    group = TodoGroup(open_layout(home.queue), RULES, [message], announce={message})

    assert group.prepare()
    assert [each.arrived.message for each in group.announced] == [message]
    assert os.stat(envelope).st_atime == 1_000_000_000


@pytest.mark.parametrize("count", [2, 12])
def test_a_message_with_a_mark_in_corrupt_is_not_announced_however_large_its_group_is(
    tmp_path: Path, count: int
) -> None:
    home = todo_home(tmp_path / "home")
    layout = open_layout(home.queue)
    messages = [queue_message(home, REMOTE) for _ in range(count)]
    Path(layout.hashed("corrupt", messages[0])).write_bytes(b"why\n")
    group = TodoGroup(layout, RULES, messages, announce=set(messages))
    assert group.prepare()
    assert [each.arrived.message for each in group.announced] == messages[1:]
    assert [each.message for each in group.entries] == messages[:1]
    assert not Path(layout.hashed("corrupt", messages[0])).exists()
