"""Delay notices where something is in the way: wrong controls, disks that refuse, crashes, a message that ends."""

import os
import signal
from pathlib import Path

import pytest

from queue_base.home import Home
from queue_base.queue.layout import open_layout
from support.faults.delayed import HOUR, LATER, defer, make_due, old_message, told
from support.queues.queued import injected
from support.send.scripted_send import ScriptedSend
from support.tools import need

pytestmark = pytest.mark.home(delaywarning="4h 24h")


def test_without_the_control_file_nobody_is_told_until_hup_after_it_was_written(home: Home) -> None:
    path = Path(home.control, "delaywarning")
    path.unlink()
    old_message(home, 5 * HOUR)
    with ScriptedSend(home) as send:
        defer(send)
        send.fence()
        assert not send.found("delay .*")
        path.write_text("1h\n")
        send.signal(signal.SIGHUP)
        send.fence()
        send.signal(signal.SIGALRM)
        defer(send)
        send.wait_for("delay .*")


def test_a_control_file_that_is_no_list_of_times_is_an_alert_and_the_mail_goes_on(home: Home) -> None:
    Path(home.control, "delaywarning").write_text("4h soon\n")
    old_message(home, 5 * HOUR)
    with ScriptedSend(home) as send:
        assert "soon" in send.wait_for("alert: unable to parse .*/delaywarning line 1: .*")
        defer(send)
        assert told(send) == []


def test_a_message_that_ends_before_its_notice_is_out_ends_after_it(home: Home) -> None:
    message = old_message(home, 5 * HOUR, local=[b"l@me.example.org"])
    with ScriptedSend(home) as send:
        job = send.local.job()
        send.remote.deliver(LATER)
        send.wait_for(r"delivery \d+: deferral: .*")
        send.local.report(job, b"Kok")
        send.signal(signal.SIGALRM)
        send.remote.deliver(b"Kok")
        send.wait_for(f"end msg {message}")
        assert send.clean.removed() == message
        send.fence()
        assert len(send.found("end msg .*")) == 1
        if lines := send.found("delay .*"):
            assert send.lines.index(lines[0]) < send.lines.index(f"end msg {message}")


def test_a_notice_that_the_queue_does_not_take_is_tried_at_a_later_deferral_and_the_mail_goes_on(home: Home) -> None:
    message = old_message(home, 5 * HOUR)
    # queue-enqueue cannot make its files.
    pid, away = Path(home.queue, "pid"), Path(home.queue, "away")
    pid.rename(away)
    with ScriptedSend(home) as send:
        defer(send)
        send.wait_for(
            rf"warning: trouble injecting delay notice of msg {message}: queue-enqueue exited \d+; "
            "will try after a later deferral"
        )
        send.signal(signal.SIGALRM)
        defer(send)
        send.fence()
        assert len(send.found("warning: .*")) == 1, "it is tried again at once"
    away.rename(pid)
    make_due(home, message)
    with ScriptedSend(home) as send:
        defer(send)
        send.wait_for(rf"delay msg {message} .*")
    assert len(injected(home)) == 1


def test_where_the_disk_does_not_keep_that_a_sender_was_told_this_run_remembers(home: Home) -> None:
    message = old_message(home, 5 * HOUR)
    mess = open_layout(home.queue).mess(message)
    # -D: the process that gets our signals is queue-send; -P: only calls about this path.
    fault = (need("strace"), "-D", "-o", os.devnull, "-P", mess, "-e", "inject=utimensat:error=EROFS", "--")
    with ScriptedSend(home, wrapper=fault) as send:
        defer(send)
        assert mess in send.wait_for("warning: unable to change .*; after a restart the notice is repeated")
        send.signal(signal.SIGALRM)
        defer(send)
        assert len(told(send)) == 1


def test_a_crash_before_it_is_on_the_disk_that_a_sender_was_told_repeats_the_notice_and_loses_nothing(
    home: Home,
) -> None:
    message = old_message(home, 5 * HOUR)
    layout = open_layout(home.queue)
    kill = ("-P", layout.mess(message), "-e", "inject=utimensat:signal=KILL")
    with ScriptedSend(home, wrapper=(need("strace"), "-D", "-o", os.devnull, *kill)) as send:
        send.remote.deliver(LATER)
        assert send.wait() == -signal.SIGKILL
    assert len(injected(home)) == 1 and Path(layout.hashed("remote", message)).read_bytes() == b"Tb@c\0"
    # strace kills at the end of the call as well as at its start: as if it had not been made.
    os.utime(layout.mess(message), (1, 1))
    for count in (2, 2):
        make_due(home, message)
        with ScriptedSend(home) as send:
            defer(send)
            told(send)
        assert len(injected(home)) == count
