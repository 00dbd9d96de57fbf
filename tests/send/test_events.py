"""What happens to a message in one turn of the loop, in whatever order its parts hear of it: nothing is done twice."""

import os
import signal
import time
from pathlib import Path

import pytest

from queue_base.home import Home
from queue_wire.pipes.job import Job
from support.queues.queued import classified_message
from support.send.control import file, long_id, order, wait_for_backlog
from support.send.scripted_send import ScriptedSend


def queued_behind(home: Home, send: ScriptedSend, messages: list[int]) -> tuple[Job, int]:
    """Return the job of one of two messages for the same host, and the other message, which waits for the window."""
    job = send.remote.job()
    send.fence()
    wait_for_backlog(home)
    return job, next(message for message in messages if not job.path.endswith(b"/%d" % message))


@pytest.mark.home(3, destinationconcurrency="1")
def test_a_message_that_is_deleted_while_it_is_loaded_is_not_tried_after_its_end(home: Home) -> None:
    messages = [classified_message(home, remote=[name + b"@x.example"]) for name in (b"a", b"b")]
    with ScriptedSend(home) as send:
        job, waiting = queued_behind(home, send, messages)
        order(home, "delete", long_id(home, waiting))
        send.wait_for(f"end msg {waiting}")
        send.fence()
        send.remote.report(job, b"Kok")
        send.fence()
        assert send.remote.silent
        assert len(send.found(f"end msg {waiting}")) == 1 and not send.found(f"starting .* msg {waiting} .*")


def test_a_message_that_is_deleted_while_both_channels_deliver_it_ends_once_and_is_not_tried_again(home: Home) -> None:
    message = classified_message(home, local=[b"c@me.example.org"], remote=[b"a@x.example"])
    with ScriptedSend(home) as send:
        remote, local = send.remote.job(), send.local.job()
        send.fence()
        wait_for_backlog(home)
        order(home, "delete", long_id(home, message))
        # Both reports are there in the same turn.
        os.kill(send.pid, signal.SIGSTOP)
        send.remote.report(remote, b"Zno")
        send.local.report(local, b"Zno")
        os.kill(send.pid, signal.SIGCONT)
        send.wait_for(f"end msg {message}")
        send.fence()
        assert send.remote.silent and send.local.silent
        assert len(send.found(f"end msg {message}")) == 1


def test_a_failure_that_is_safe_after_its_daemon_has_ended_still_counts(home: Home) -> None:
    message = classified_message(home, local=[b"c@me.example.org", b"d@me.example.org"])
    with ScriptedSend(home) as send:
        deferred, failed = send.local.job(), send.local.job()
        send.fence()
        wait_for_backlog(home)
        send.signal(signal.SIGTERM)
        send.wait_for("status: .*exitasap")
        while send.local.receive():
            pass
        os.kill(send.pid, signal.SIGSTOP)
        send.local.report(deferred, b"Zlater")
        send.local.report(failed, b"Dnever")
        send.local.die()
        os.kill(send.pid, signal.SIGCONT)
        assert send.wait() == 0
    assert send.lines[-2:] == ["status: local 0/10 remote 0/250 exitasap", "status: exiting"]
    assert file(home, "local", message).stat().st_mtime > time.time() + 30


def test_nothing_is_started_of_a_message_that_the_other_channel_cannot_read(home: Home) -> None:
    message = classified_message(home, local=[b"c@me.example.org"], remote=[b"a@x.example"])
    path = file(home, "local", message)
    path.write_bytes(b"garbage")
    os.utime(path, (time.time() - 5,) * 2)
    with ScriptedSend(home) as send:
        send.wait_for("alert: .*parked in corrupt.*")
        send.fence()
        assert send.remote.silent and len(send.found("corrupt msg .*")) == 1


@pytest.mark.home(3, destinationconcurrency="1")
def test_an_order_to_bounce_a_loaded_message_is_carried_out_once(home: Home) -> None:
    messages = [classified_message(home, remote=[name + b"@x.example"]) for name in (b"a", b"b")]
    with ScriptedSend(home) as send:
        _, waiting = queued_behind(home, send, messages)
        path = Path(file(home, "local", waiting))
        path.mkdir()  # Reading it fails, so it stays on hold.
        order(home, "bounce", long_id(home, waiting))
        send.wait_for("warning: unable to bounce .*")
        send.fence()
        assert len(send.found("warning: unable to bounce .*")) == 1
