"""queue-todo with several workers, as processes: it is one queue-todo for queue-send, and no promise is another one."""

import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from queue_base.home import Home
from queue_base.queue.class_trees import make_class_tree
from queue_base.queue.layout import Presence, open_layout
from queue_todo.pipeline import GROUP
from queue_todo.worker_records import share_of
from queue_wire.files.standing_hold import StandingHold, pack_holds
from queue_wire.pipes.notice import (
    ANNOUNCE,
    CLASSIFY,
    EXIT,
    LEAVE,
    REREAD,
    WRITTEN,
    Arrived,
    Ask,
    Classified,
    ClassifyAnswer,
    ClassifyRequest,
    Reread,
    pack_gone,
    pack_request,
    unpack_notice,
)
from support.processes.suite import program, wait_until
from support.processes.todo_daemon import TodoDaemon, todo_home
from support.queues.queued import MESSAGE, put_mess, put_todo, queue_message
from support.send.piped import is_readable

REMOTE = [b"b@example.net"]
ENVELOPE = b"u7\0p8\0Fa@example.org\0Tb@example.net\0"
SPLIT = 5


@pytest.fixture(name="home")
def fixture_home(tmp_path: Path) -> Home:
    return todo_home(tmp_path / "home", split=SPLIT)


def queue_many(home: Home, count: int) -> list[int]:
    """Put messages in; return their numbers."""
    layout = open_layout(home.queue)
    found = []
    for _ in range(count):
        message = put_mess(layout)
        put_todo(layout, message, ENVELOPE)
        found.append(message)
    return found


def workers_of(todo: TodoDaemon, count: int) -> list[psutil.Process]:
    """Return the workers, in their order."""
    parent = psutil.Process(todo.process.pid)
    wait_until(lambda: len(parent.children()) == count, why="the workers")
    return sorted(parent.children(), key=lambda child: child.pid)


def has_ended(process: psutil.Process) -> bool:
    """Return whether a process has ended, also if nobody has waited for it yet."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@contextmanager
def stopped(process: psutil.Process) -> Iterator[None]:
    """Have a process make no step."""
    process.suspend()
    try:
        yield
    finally:
        if process.is_running():
            process.resume()


def test_each_of_2000_messages_is_classified_once_by_three_workers(home: Home) -> None:
    messages = queue_many(home, 2000)
    facts = f"bytes {len(MESSAGE)} from <a@example.org> qp 8 uid 7"
    with TodoDaemon(home, workers=3) as todo:
        workers = workers_of(todo, 3)
        found = todo.notices(len(messages))
        assert set(found) == set(messages) and all(notice.remote for notice in found.values())
        assert all(Presence(todo.layout, message).state() == 5 for message in messages)
        assert sorted(todo.lines) == sorted(
            line
            for message in messages
            for line in (f"new msg {message}", f"info msg {message}: {facts}")
        )
        assert all(sum(worker.cpu_times()[:2]) > 0 for worker in workers), "all have worked"
        assert todo.exit() == 0
        assert not any(worker.is_running() for worker in workers)


def test_new_mail_is_found_and_goes_to_the_worker_of_its_bucket_while_another_one_hangs(home: Home) -> None:
    with TodoDaemon(home, workers=2) as todo:
        workers = workers_of(todo, 2)
        first = queue_message(home, REMOTE)
        assert todo.notice().message == first
        with stopped(workers[0]):
            shares: list[list[int]] = [[], []]
            while not all(shares):
                message = queue_message(home, REMOTE)
                shares[share_of(message, SPLIT, 2)].append(message)
            for _ in shares[1]:
                assert todo.notice().message in shares[1]
            assert todo.silent
        assert set(todo.notices(len(shares[0]))) == set(shares[0])


def test_mail_that_the_trigger_tells_of_is_found(home: Home) -> None:
    layout = open_layout(home.queue)
    with TodoDaemon(home, workers=2) as todo:
        todo.tell()
        # A tree that nobody watches yet.
        make_class_tree(layout, "bulk")
        layout.learn_classes()
        message = put_mess(layout)
        Path(layout.todo_in("bulk", message)).write_bytes(ENVELOPE)
        todo.pull()
        sent = [unpack_notice(todo.record())]
        while not isinstance(sent[-1], Arrived):
            if sent[-1] is Ask.WRITTEN:
                todo.write(WRITTEN)
            sent.append(unpack_notice(todo.record()))
        assert (sent[-1].message, sent[-1].priority) == (message, "bulk")


def test_announced_messages_are_classified_on_request_and_gone_ones_are_forgotten(home: Home) -> None:
    with TodoDaemon(home, workers=3) as todo:
        todo.tell(ANNOUNCE)
        messages = queue_many(home, 30)
        assert set(todo.notices(30)) == set(messages)
        assert not todo.lines and all(Presence(todo.layout, message).state() == 4 for message in messages)
        todo.write(b"".join(pack_request(ClassifyRequest(message, 1)) for message in messages[:15]))
        found = [todo._sent() for _ in range(15)]
        assert sorted(found) == sorted(ClassifyAnswer(message, True) for message in messages[:15])
        for message in messages[:15]:
            assert Path(todo.layout.hashed("remote", message)).read_bytes() == b"Db@example.net\0"
        # The numbers of the others come again, and are looked at when queue-send has removed the messages.
        for message in messages[15:]:
            os.unlink(todo.layout.todo(message))
            os.link(todo.layout.intd(message), todo.layout.todo(message))
        last = queue_message(home, REMOTE)
        assert todo.notice().message == last
        todo.write(b"".join(pack_gone(message) for message in messages[15:]))
        assert set(todo.notices(15)) == set(messages[15:])


def test_after_the_exit_announced_messages_are_classified_and_others_stay(home: Home) -> None:
    with TodoDaemon(home, workers=3) as todo:
        workers = workers_of(todo, 3)
        todo.tell(ANNOUNCE)
        messages = queue_many(home, 12)
        assert set(todo.notices(12)) == set(messages)
        todo.tell(LEAVE)
        left = queue_many(home, 3)
        todo.write(EXIT + CLASSIFY)
        todo.write(b"".join(pack_request(ClassifyRequest(message, 0)) for message in messages))
        found = [todo._sent() for _ in messages]
        assert sorted(found) == sorted(ClassifyAnswer(message, True) for message in messages)
        assert not todo.more()
        assert todo.process.wait(30) == 0
        assert [Presence(todo.layout, message).state() for message in left] == [4, 4, 4]
        assert not any(worker.is_running() for worker in workers)


def test_bulk_mail_for_all_workers_comes_behind_the_first_class_of_one(home: Home) -> None:
    layout = open_layout(home.queue)
    make_class_tree(layout, "bulk")
    layout.learn_classes()
    with TodoDaemon(home, workers=2) as todo:
        todo.tell(LEAVE)
        made = [put_mess(layout) for _ in range(1600)]
        # All of the first class is for one worker.
        normal = [message for message in made if share_of(message, SPLIT, 2) == 0]
        bulk = [message for message in made if share_of(message, SPLIT, 2) == 1]
        assert len(normal) > 3 * GROUP and len(bulk) > 2 * GROUP
        for message in bulk:
            Path(layout.todo_in("bulk", message)).write_bytes(ENVELOPE)
        for message in normal:
            put_todo(layout, message, ENVELOPE)
        todo.tell()
        todo.write(ANNOUNCE)
        order = [todo.notice().message for _ in made]
        assert sorted(order) == sorted(made)
        # While a worker has a last group, the other one may begin what is of the lower class.
        lower = set(bulk)
        first = [message for message in order if message not in lower]
        until = order.index(first[-GROUP - 1])
        assert sum(message in lower for message in order[:until]) <= until // 9 + GROUP // 9, "one of ten"


def test_a_worker_that_is_killed_ends_all_of_them_and_nothing_is_lost(home: Home) -> None:
    messages = queue_many(home, 500)
    told: list[int] = []
    with TodoDaemon(home, workers=3, answers=False) as todo:
        workers = workers_of(todo, 3)
        while not isinstance(unpack_notice(todo.record()), bytes):
            pass  # Until the first line: groups are being classified.
        workers[1].kill()
        told += take_rest(todo)
        assert todo.process.wait(30) == 111
        assert b"fatal: worker 2 of 3 has ended (signal 9)" in todo.complaint()
        wait_until(lambda: all(map(has_ended, workers)), why="the end of the others")
    assert len(told) == len(set(told)) and set(told) <= set(messages)
    with TodoDaemon(home) as todo:
        rest = [message for message in messages if Presence(todo.layout, message).state() == 4]
        assert set(rest).isdisjoint(told)
        assert set(todo.notices(len(rest))) == set(rest)
        assert all(Presence(todo.layout, message).state() == 5 for message in messages)


def take_rest(todo: TodoDaemon) -> list[int]:
    """Answer everything until the end of the output; return the classified messages. The last line must be an alert."""
    found: list[int] = []
    last: object = None
    while todo.more():
        last = unpack_notice(todo.record())
        if isinstance(last, Arrived | Classified):
            found.append(last.message)
        elif last is Ask.WRITTEN:
            try:
                todo.write(WRITTEN)
            except BrokenPipeError:
                pass  # It has ended.
    assert isinstance(last, bytes) and b"worker 2 of 3 has ended (signal 9); all daemons are started again" in last
    return found


def test_its_end_is_seen_when_the_last_worker_has_ended(home: Home) -> None:
    with TodoDaemon(home, workers=2) as todo:
        workers = workers_of(todo, 2)
        todo.tell()
        with stopped(workers[1]):
            todo.process.kill()
            todo.process.wait(30)
            wait_until(lambda: has_ended(workers[0]), why="the end of the first one")
            assert not is_readable(todo.stdout.fileno()), "one may still change the queue"
        poll = select.poll()
        poll.register(todo.stdout.fileno(), select.POLLIN)
        assert poll.poll(30_000) and not todo.more()


@pytest.mark.parametrize("ends", ["stdin", "stdout"])
def test_the_end_of_its_input_or_of_its_reader_ends_the_workers_too(home: Home, ends: str) -> None:
    with TodoDaemon(home, workers=2) as todo:
        workers = workers_of(todo, 2)
        todo.tell()
        getattr(todo, ends).close()
        assert todo.process.wait(30) == 0
        wait_until(lambda: all(map(has_ended, workers)), why="the end of both")


def test_other_rules_count_for_all_workers_from_the_answer_on(home: Home) -> None:
    with TodoDaemon(home, workers=3) as todo:
        todo.tell()
        Path(home.control, "locals").write_bytes(b"example.net\n")
        todo.write(REREAD)
        found = unpack_notice(todo.record())
        while not isinstance(found, Reread):
            found = unpack_notice(todo.record())
        assert found.asked
        messages = queue_many(home, 20)
        notices = todo.notices(20)
        assert set(notices) == set(messages) and all(notice.local and not notice.remote for notice in notices.values())


def test_a_corrupt_message_is_parked_once_and_a_refused_one_is_tried_again_at_once_when_asked(home: Home) -> None:
    layout = open_layout(home.queue)
    with TodoDaemon(home, workers=2) as todo:
        todo.tell()
        corrupt = put_mess(layout)
        put_todo(layout, corrupt, b"u1\0p2\0garbage")
        assert todo.line().startswith(f"corrupt msg {corrupt}")
        assert "is parked in corrupt" in todo.line()
        todo.reread()
        refused = put_mess(layout)
        obstacle = Path(layout.hashed("remote", refused))
        obstacle.mkdir()
        put_todo(layout, refused, ENVELOPE)
        while not todo.deferrals:  # If the scan has found it first, it is tried twice.
            assert todo.line().startswith(f"warning: queue-todo: unable to classify msg {refused}")
        assert todo.deferrals[0].message == refused
        obstacle.rmdir()
        todo.write(b"R0\0")
        assert todo.notice().message == refused
        assert todo.exit() == 0
        assert sum("parked" in line for line in todo.lines) == 1


def test_holds_that_cannot_be_read_are_one_alert_of_all_workers(home: Home) -> None:
    holds = Path(home.queue, "holds")
    with TodoDaemon(home, workers=3) as todo:
        workers_of(todo, 3)
        assert todo.notices(len(queue_many(home, 30)))
        for _ in range(2):
            holds.mkdir()
            assert todo.notices(len(queue_many(home, 60)))
            holds.rmdir()
            holds.write_bytes(pack_holds([StandingHold(uid=12345, reason=b"spam")]))
            assert todo.notices(len(queue_many(home, 60)))
            holds.unlink()
        assert todo.exit() == 0
        assert sum("alert: queue-todo: unable to read" in line for line in todo.lines) == 2


@pytest.mark.parametrize("words", [["--workers"], ["--workers", "0"], ["--workers", "17"], ["--workers", "2", "3"]])
def test_a_wrong_number_of_workers_is_a_usage_error(home: Home, words: list[str]) -> None:
    done = subprocess.run(
        [*program("queue-todo"), "--home", home.path, *words], capture_output=True, check=False, timeout=60
    )
    assert done.returncode == 100
    assert b"usage: queue-todo [--home HOME] [--queue NAME] [--workers N]" in done.stderr


def test_one_worker_is_no_worker(home: Home) -> None:
    words = [*program("queue-todo"), "--home", home.path, "--workers", "1"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        message = queue_message(home, REMOTE)
        said, deadline = b"", time.monotonic() + 60
        while b"new msg %d" % message not in said:
            assert time.monotonic() < deadline
            said += os.read(process.stdout.fileno(), 65536)
        assert not psutil.Process(process.pid).children()
        process.send_signal(signal.SIGKILL)
