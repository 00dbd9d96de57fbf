"""queue-send's signals, its control files, and its lock."""

import fcntl
import os
import signal
import time
from pathlib import Path

import psutil
import pytest

from queue_base.daemon.lock import take_sendmutex
from queue_base.home import Home
from queue_base.queue.layout import open_layout
from queue_wire.pipes.notice import REREAD
from support.queues.inflow import patched_programs
from support.queues.queued import classified_message
from support.send.scripted_send import ScriptedSend

FAR = time.time() + 100_000


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_term_starts_nothing_new_and_waits_for_what_is_in_flight(home: Home, number: signal.Signals) -> None:
    message = classified_message(home, remote=[b"b@c"])
    with ScriptedSend(home) as send:
        job = send.remote.job()
        send.signal(number)
        send.wait_for(r"status: local 0/10 remote 1/250 exitasap")
        late = classified_message(home, remote=[b"late@c"])
        send.todo.classified(late)
        send.fence()
        assert send.remote.silent
        send.remote.report(job, b"Kok")
        assert send.clean.asked() == message
        assert send.wait() == 0
        assert send.lines[-2:] == ["status: local 0/10 remote 0/250 exitasap", "status: exiting"]
        assert Path(open_layout(home.queue).hashed("remote", late)).read_bytes() == b"Tlate@c\0"


def test_term_without_work_ends_at_once(home: Home) -> None:
    classified_message(home, remote=[b"b@c"], due=FAR)
    with ScriptedSend(home) as send:
        send.fence()
        send.signal(signal.SIGTERM)
        assert send.wait() == 0


def test_after_term_a_queue_todo_that_hangs_is_waited_for_only_for_some_time(home: Home, tmp_path: Path) -> None:
    programs = patched_programs(tmp_path, queue_send="import queue_send.main\nqueue_send.main.TODO_WAIT = 0.2")
    with ScriptedSend(home, programs=programs) as send:
        send.fence()
        send.signal(signal.SIGTERM)
        # It is told to exit, and does not.
        send.wait_for("status: exiting")
        assert send.wait() == 0


def test_after_term_and_the_time_of_queue_todo_a_delivery_is_waited_for_without_work(
    home: Home, tmp_path: Path
) -> None:
    classified_message(home, remote=[b"b@c"])
    programs = patched_programs(tmp_path, queue_send="import queue_send.main\nqueue_send.main.TODO_WAIT = 0.2")
    with ScriptedSend(home, programs=programs) as send:
        job = send.remote.job()
        send.signal(signal.SIGTERM)
        send.wait_for(r"status: local 0/10 remote 1/250 exitasap")
        time.sleep(0.5)
        process = psutil.Process(send.pid)
        before = sum(process.cpu_times()[:2])
        time.sleep(1.0)
        assert sum(process.cpu_times()[:2]) - before < 0.3
        send.remote.report(job, b"Kok")
        assert send.wait() == 0


def test_term_waits_for_a_bounce_that_is_being_injected(home: Home) -> None:
    message = classified_message(home, remote=[b"b@c"])
    with ScriptedSend(home) as send:
        send.remote.deliver(b"Dno\n")
        send.wait_for(r"delivery 1: failure: no/")
        send.signal(signal.SIGTERM)
        assert send.wait() == 0
    # Whether it had begun or not: the bounce goes out once, in this run or the next.
    with ScriptedSend(home) as send:
        send.fence()
        if os.path.exists(open_layout(home.queue).bounce(message)):
            send.wait_for(rf"bounce msg {message} qp \d+")
        assert send.clean.removed() == message
    names = [name for directory in open_layout(home.queue).directories("todo") for name in os.listdir(directory)]
    assert len(names) == 1


def test_alrm_makes_deferred_mail_due_now_in_the_order_in_which_it_was_due(home: Home) -> None:
    for number, due in ((1, FAR + 50), (2, FAR), (3, FAR + 20)):
        classified_message(home, remote=[b"%d@c" % number], due=due)
    with ScriptedSend(home) as send:
        send.fence()
        assert send.remote.silent
        send.signal(signal.SIGALRM)
        assert [send.remote.deliver(b"Zlater").recipients for _ in range(3)] == [[b"2@c"], [b"3@c"], [b"1@c"]]
        send.fence()
        assert send.remote.silent


def test_alrm_also_counts_for_what_the_backlog_has_yet_to_find(home: Home) -> None:
    messages = [classified_message(home, local=[b"%d@me.example.org" % number], due=FAR) for number in range(700)]
    with ScriptedSend(home) as send:
        send.wait_for(r"status: local 0/10 remote 0/250")
        send.signal(signal.SIGALRM)
        done = {send.local.deliver(b"Kok").recipients[0] for _ in messages}
        assert len(done) == 700


def test_hup_takes_new_limits_and_is_passed_on(home: Home) -> None:
    for number in range(5):
        classified_message(home, remote=[b"%d@c" % number], sender=b"s%d@example.org" % number)
    send_controls = Path(home.control, "concurrencyremote")
    send_controls.write_text("1\n")
    Path(home.control, "destinationinitial").write_text("5\n")
    with ScriptedSend(home) as send:
        job = send.remote.job()
        send.wait_for(r"status: local 0/10 remote 1/1")
        send_controls.write_text("3\n")
        send.control("concurrencylocal", "7\n")
        send.signal(signal.SIGHUP)
        assert send.todo.receive() == REREAD
        send.wait_for(r"status: local 0/7 remote 3/3")
        send_controls.write_text("1\n")
        send.signal(signal.SIGHUP)
        send.wait_for(r"status: local 0/7 remote 3/1")
        send.remote.job(), send.remote.job()
        send.remote.report(job, b"Kok")
        send.wait_for(r"status: local 0/7 remote 2/1")
        send.fence()
        assert send.remote.silent


def test_hup_with_a_control_that_cannot_be_parsed_is_an_alert_and_the_old_values_stay(home: Home) -> None:
    with ScriptedSend(home) as send:
        send.fence()
        send.control("concurrencyremote", "many\n")
        send.control("concurrencylocal", "3\n")
        send.signal(signal.SIGHUP)
        line = send.wait_for(r"alert: unable to reread controls: .*; the old ones stay")
        assert f"{home.control}/concurrencyremote" in line
        send.fence()
        assert not send.found(r"status: local 0/3 .*")
        message = classified_message(home, remote=[b"b@c"])
        send.todo.classified(message)
        send.remote.deliver(b"Kok")
        assert send.clean.removed() == message


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("concurrencylocal", "many\n"),
        ("concurrencyremote", "-1\n"),
        ("queuelifetime", ""),
        ("bouncelifetime", "1d\n"),
        ("destinationrate", "example.org:fast\n"),
        ("retryschedule", "now and then\n"),
        ("smtproutes", ":not a host\n"),
    ],
)
def test_a_control_that_cannot_be_parsed_at_the_start_is_named_and_the_default_used(
    home: Home, name: str, content: str
) -> None:
    Path(home.control, name).write_text(content)
    classified_message(home, remote=[b"b@c"])
    with ScriptedSend(home) as send:
        send.wait_for(rf"alert: unable to parse {home.control}/{name} line 1: .*; the default is used until .*")
        send.wait_for(r"status: local 0/10 remote 1/250")


def test_without_a_name_for_this_host_it_does_not_start(home: Home) -> None:
    Path(home.control, "me").write_text("")
    with ScriptedSend(home, ready=False) as send:
        assert send.wait() == 111
        assert send.stderr().startswith(b"queue-send: alert: cannot start: unable to read ")
        assert f"{home.control}/me".encode() in send.stderr()
        assert send.stderr().count(b"\n") == 1


def test_a_second_queue_send_is_refused_by_the_lock(home: Home) -> None:
    with ScriptedSend(home) as first:
        first.fence()
        with ScriptedSend(home, ready=False) as second:
            assert second.wait() == 111
            assert b"queue-send is already running on this queue" in second.stderr()
        first.signal(signal.SIGTERM)
        assert first.wait() == 0
    with ScriptedSend(home) as third:
        third.fence()


def test_a_lock_that_was_handed_over_is_held_until_the_end(home: Home) -> None:
    lock = fcntl.fcntl(take_sendmutex(home), fcntl.F_DUPFD_CLOEXEC, 100)
    with ScriptedSend(home, lock=lock) as first:
        os.close(lock)
        first.fence()
        with ScriptedSend(home, ready=False) as second:
            assert second.wait() == 111


def test_without_its_pipes_it_says_who_starts_it(home: Home) -> None:
    with ScriptedSend(home, pipes=False, ready=False) as send:
        assert send.wait() == 100
        assert b"queue-start starts queue-send" in send.stderr()
