"""Failures reach bounce/ whole and safe before their recipients are marked done, also where the disk is full."""

import os
from pathlib import Path

import pytest

from queue_base.home import Home
from queue_base.queue.layout import open_layout
from queue_send.messages.bounce_file import FailedRecipient, append_failures
from support.faults.strace import read_trace, strace_command
from support.processes.suite import wait_until
from support.queues.queued import classified_message
from support.send.piped import limit_files
from support.send.scripted_send import ScriptedSend

LONG = b"Remote host said: 550 " + b"no " * 1000 + b"\n"


def test_a_failure_that_fits_only_in_part_is_no_failure_and_leaves_no_piece(home: Home) -> None:
    message = classified_message(home, remote=[b"b@c", b"d@e", b"f@g"], bounce=b"<x@c>:\nnever\n\n")
    layout = open_layout(home.queue)
    with ScriptedSend(home) as send:
        jobs = [send.remote.job() for _ in range(3)]
        limit_files(send.pid, 200)
        send.remote.report(jobs[0], b"D" + LONG)
        send.wait_for(r"warning: unable to append to .*: file too large; will try again later")
        send.fence()
        assert Path(layout.bounce(message)).read_bytes() == b"<x@c>:\nnever\n\n"
        assert Path(layout.hashed("remote", message)).read_bytes() == b"Tb@c\0Td@e\0Tf@g\0"
        limit_files(send.pid, -1)
        send.remote.report(jobs[1], b"Dno\n")
        send.wait_for(r"delivery 2: failure: no/")
        marked = Path(layout.hashed("remote", message))
        wait_until(lambda: marked.read_bytes() == b"Tb@c\0Dd@e\0Tf@g\0", why="the mark")
        assert Path(layout.bounce(message)).read_bytes() == b"<x@c>:\nnever\n\n<d@e>:\nno\n\n"


def test_a_group_of_failures_is_written_whole_or_not_at_all(home: Home) -> None:
    layout = open_layout(home.queue)
    first, second = (classified_message(home, remote=[b"b@c"]) for _ in range(2))
    Path(layout.bounce(second)).mkdir()
    with pytest.raises(IsADirectoryError):
        append_failures(layout, [FailedRecipient(first, b"b@c", b"no"), FailedRecipient(second, b"b@c", b"no")])
    assert Path(layout.bounce(first)).read_bytes() == b""


def test_failures_are_synced_before_any_of_their_recipients_is_marked_done(home: Home, tmp_path: Path) -> None:
    message = classified_message(home, remote=[b"b@c", b"d@c"])
    trace = tmp_path / "trace"
    with ScriptedSend(home, wrapper=tuple(strace_command(trace, []))) as send:
        send.remote.deliver(b"Dno\n")
        assert send.clean.removed() == message
        send.wait_for(f"end msg {message}")
        send.kill()
    bounce, remote = open_layout(home.queue).bounce(message), open_layout(home.queue).hashed("remote", message)
    steps = []
    for call in read_trace(trace):
        if not call.began and call.name in ("pwrite64", "write", "fsync"):
            path = call.descriptor(0)[1]
            if path in (bounce, remote, os.path.dirname(bounce)):
                steps.append(f"{call.name} {os.path.relpath(path, home.queue).split('/')[0]} {os.path.isdir(path)}")
    mark = "pwrite64 remote False"
    assert steps.count(mark) == 2
    before = steps[: steps.index(mark)]
    last_write = max(number for number, step in enumerate(before) if step == "write bounce False")
    assert {"fsync bounce False", "fsync bounce True"} <= set(before[last_write:])


@pytest.mark.parametrize(
    ("tried", "dead"),
    [(b"other.example", False), (b"c.example", False), (b"relay.example", True), (b"", True)],
    ids=["another relay", "no relay", "the relay", "unknown"],
)
def test_a_host_of_a_route_that_queue_send_has_not_read_makes_no_relay_dead(
    home: Home, tried: bytes, dead: bool
) -> None:
    """queue-remote reads a change of smtproutes within a second, queue-send at HUP."""
    Path(home.control, "smtproutes").write_text(":relay.example\n")
    Path(home.control, "destinationcohorts").write_text("1\n")
    Path(home.control, "destinationinitial").write_text("1\n")
    with ScriptedSend(home) as send:
        message = classified_message(home, remote=[b"b@c.example"])
        send.todo.classified(message, "R")
        send.remote.report(send.remote.job(), b"Zno route", scope=b"h", route=tried)
        send.wait_for("delivery 1: deferral: no_route.*")
        send.fence()
        assert bool(send.found("dest relay.example dead: .*")) is dead


def test_a_domain_whose_mail_goes_by_a_new_route_is_dead_if_that_is(home: Home) -> None:
    Path(home.control, "destinationcohorts").write_text("1\n")
    Path(home.control, "destinationinitial").write_text("1\n")
    with ScriptedSend(home) as send:
        message = classified_message(home, remote=[b"b@C.example"])
        send.todo.classified(message, "R")
        send.remote.report(send.remote.job(), b"Zno route", scope=b"h", route=b"relay.example")
        send.wait_for("dest c.example dead: .*")
