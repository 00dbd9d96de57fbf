"""Messages that cannot be classified for now: tried again at growing intervals, or at once with queuectl resubmit."""

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_base.queue.layout import Layout, Presence, open_layout
from queue_todo.pending import RETRY_AFTER, RETRY_MAX, Pending
from queue_wire.admin.cause import CLASSIFY_FAILED, Cause, describe, pack_cause, unpack_cause
from queue_wire.format_error import FormatError
from queue_wire.pipes.notice import (
    CLASSIFY,
    REREAD,
    WHY_MAX,
    ClassifyDeferral,
    CommandReader,
    Resubmission,
    pack_deferral,
    pack_resubmission,
    unpack_notice,
)
from support.inject.injectors import run
from support.plugins import strategies
from support.processes.suite import Suite, program, wait_until
from support.processes.todo_daemon import TodoDaemon, todo_home
from support.queues.inflow import patched_programs
from support.queues.queued import put_mess, put_todo
from support.site import mail_site

ENVELOPE = b"u1\0p2\0Fa@example.org\0Tb@example.net\0"


def queue_what_cannot_be_classified(layout: Layout) -> tuple[int, Path]:
    """Queue a message; return its number, and a directory in the place of its file in remote/."""
    message = put_mess(layout)
    obstacle = Path(layout.hashed("remote", message))
    obstacle.mkdir()
    put_todo(layout, message, ENVELOPE)
    return message, obstacle


@given(strategies.ids, st.integers(0, 10**17), st.binary(max_size=500))
def test_a_deferral_comes_back_as_printable_text_of_limited_length(message: int, when: int, why: bytes) -> None:
    record = pack_deferral(ClassifyDeferral(message, when, why))
    assert record.count(b"\0") == 1 and record.endswith(b"\0")
    found = unpack_notice(record[:-1])
    assert isinstance(found, ClassifyDeferral)
    assert (found.message, found.time) == (message, when)
    assert len(found.why) <= WHY_MAX and not any(byte < 32 for byte in found.why)
    cause = Cause(CLASSIFY_FAILED, time=7, nexthop=found.why)
    assert unpack_cause(pack_cause(cause)) == cause and describe(cause).isprintable()


@pytest.mark.parametrize("record", [b"Z", b"Z1", b"Z1 2", b"Zx 2 a", b"Z1 x a", b"Z0 2 a", b"Z1 1234567890123456789 a"])
def test_a_deferral_that_is_garbage_is_refused(record: bytes) -> None:
    with pytest.raises(FormatError):
        unpack_notice(record)


def test_resubmissions_are_read_among_other_commands_however_they_arrive() -> None:
    stream = REREAD + pack_resubmission(457) + CLASSIFY + pack_resubmission(0)
    for pieces in strategies.arrivals(stream):
        reader = CommandReader()
        found = [command for piece in pieces for command in reader.feed(piece)]
        assert found == [REREAD, Resubmission(457), CLASSIFY, Resubmission(0)]
    with pytest.raises(FormatError):
        CommandReader().feed(b"R\0")


def test_the_intervals_grow_until_the_message_is_done() -> None:
    pending = Pending(Layout("/nowhere", 23))
    now, delays = 0.0, []
    pending.add([7], now)
    for _ in range(9):
        assert pending.take(1) == [7]
        delays.append(pending.defer(7, now))
        pending.run(now + delays[-1] - 1)
        assert pending.take(1) == []
        now += delays[-1]
        pending.run(now)
    assert delays[:3] == [RETRY_AFTER, 2 * RETRY_AFTER, 4 * RETRY_AFTER]
    assert delays == sorted(delays) and delays[-1] == RETRY_MAX
    assert pending.take(1) == [7]
    pending.done([7], now)
    pending.add([7], now)
    pending.take(1)
    assert pending.defer(7, now) == RETRY_AFTER


def refused_often(messages: int, times: int) -> tuple[Pending, float]:
    """Return ids that a disk has refused so often, and the time: each try was as late as its interval says."""
    pending = Pending(Layout("/nowhere", 23))
    now = 0.0
    pending.add(range(1, messages + 1), now)
    for _ in range(times):
        taken = pending.take(messages)
        assert sorted(taken) == list(range(1, messages + 1))
        now += max([pending.defer(message, now, refused=True) for message in taken])
        while pending.wait(now) == 0.0 and len(pending) < messages:
            pending.run(now)
    for message in pending.take(messages):
        pending.defer(message, now, refused=True)
    return pending, now


def test_one_message_probes_a_disk_that_refuses_all() -> None:
    pending, now = refused_often(messages=5, times=5)
    for number in range(1, 8):
        assert pending.wait(now + (number - 1) * RETRY_AFTER) <= RETRY_AFTER
        pending.run(now + number * RETRY_AFTER - 1)
        assert pending.take(5) == []
        pending.run(now + number * RETRY_AFTER)
        (probe,) = pending.take(5)
        pending.defer(probe, now + number * RETRY_AFTER, refused=True)


def test_all_that_a_disk_refused_is_tried_when_it_takes_a_message_again() -> None:
    pending, now = refused_often(messages=3000, times=5)
    pending.retry_refused()
    taken: list[int] = []
    for _ in range(3):
        assert pending.wait(now) == 0.0
        pending.run(now)
        taken += pending.take(5000)
    assert sorted(taken) == list(range(1, 3001))
    assert pending.defer(1, now, refused=True) == RETRY_AFTER, "the intervals begin anew"


def test_what_is_refused_though_the_disk_takes_others_has_its_own_interval() -> None:
    pending, now = refused_often(messages=1, times=5)
    pending.retry_refused()
    pending.run(now)
    assert pending.take(1) == [1]
    pending.defer(1, now, refused=True)
    for _ in range(3):
        pending.retry_refused()
        pending.run(now + 1)
        assert pending.take(1) == []
    pending.run(now + RETRY_AFTER)
    assert pending.take(1) == [1]


def test_queue_todo_classifies_all_at_the_first_success_after_a_disk_that_failed(
    tmp_path: Path,
) -> None:
    home = todo_home(tmp_path / "home")
    layout = open_layout(home.queue)
    works = tmp_path / "works"
    # Long intervals: only a success can bring what was deferred back in time.
    change = f"""
import os
import queue_todo.pending as pending
pending.RETRY_AFTER = 3600.0
real = os.fsync
def fsync(handle):
    if not os.path.exists({str(works)!r}):
        raise OSError(5, "Input/output error")
    real(handle)
os.fsync = fsync
"""
    programs = patched_programs(tmp_path, queue_todo=change)
    with TodoDaemon(home, programs=programs) as todo:
        todo.write(CLASSIFY)
        first = put_mess(layout)
        put_todo(layout, first, ENVELOPE)
        assert "unable to classify" in todo.line()
        works.touch()
        second = put_mess(layout)
        put_todo(layout, second, ENVELOPE)
        assert {todo.notice().message, todo.notice().message} == {first, second}


def test_one_or_all_of_the_deferred_messages_are_taken_at_once() -> None:
    pending = Pending(Layout("/nowhere", 23))
    pending.add(range(1, 3001), 0.0)
    while group := pending.take(500):
        for message in group:
            pending.defer(message, 0.0)
    pending.resubmit(40, 1.0)
    assert pending.take(10) == [40]
    pending.defer(40, 1.0)
    pending.resubmit(0, 2.0)
    taken = []
    for _ in range(4):
        pending.run(2.0)
        group = pending.take(5000)
        taken += group
        for message in group:
            pending.defer(message, 2.0)
    assert sorted(taken) == list(range(1, 3001)), "each once, though they fail again"


def test_queue_todo_says_why_and_tries_again_when_it_is_told(tmp_path: Path) -> None:
    home = todo_home(tmp_path / "home")
    layout = open_layout(home.queue)
    with TodoDaemon(home) as todo:
        todo.write(CLASSIFY)
        message, obstacle = queue_what_cannot_be_classified(layout)
        assert "unable to classify" in todo.line()
        wait_until(lambda: Presence(layout, message).todo, why="the message in todo/")
        obstacle.rmdir()
        todo.write(pack_resubmission(message))
        assert todo.notice().message == message
        (deferral,) = todo.deferrals
        assert deferral.message == message and b"remote" in deferral.why
        assert time.time() < deferral.time <= time.time() + RETRY_AFTER + 1
        assert Presence(layout, message).state() == 5


def test_show_has_the_reason_and_resubmit_has_the_message_classified() -> None:
    with mail_site() as site:
        site.control("classifyafter", "0\n")
        site.route(1)
        layout = open_layout(site.home.queue)
        command = [*program("queuectl"), "--home", site.home.path]
        with Suite(site.home) as suite:
            message, obstacle = queue_what_cannot_be_classified(layout)
            suite.wait_for("queue-todo: unable to classify")
            shown = run([*command, "show", str(message)]).output.decode()
            assert "now: could not be classified (" in shown and "remote" in shown
            obstacle.rmdir()
            long_id = next(line.split()[1] for line in shown.splitlines() if line.startswith("message: "))
            done = run([*command, "resubmit", long_id])
            assert (done.code, done.output) == (0, b"resubmitted 1 message\n")
            wait_until(lambda: Presence(layout, message).state() == 5, why="the classification")
            done = run([*command, "resubmit", long_id])
            assert (done.code, done.output.splitlines()[-1]) == (0, b"resubmitted 0 messages")
            assert b"does not wait for queue-todo" in done.output
            assert run([*command, "resubmit", "1-1"]).code == 1
        assert run([*command, "resubmit", "--all"]).code == 111
        with Suite(site.home):
            assert run([*command, "resubmit", "--all"]).output == b"resubmitted 0 messages\n"
