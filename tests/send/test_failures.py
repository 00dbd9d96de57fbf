"""Failures reach bounce/ whole and safe before their recipients are marked done, also where the disk is full."""

import errno
import os
import signal
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


def test_a_bounce_file_that_cannot_be_used_does_not_keep_the_failures_of_others_from_theirs(home: Home) -> None:
    layout = open_layout(home.queue)
    first, second, third = (classified_message(home, remote=[b"b@c"]) for _ in range(3))
    Path(layout.bounce(second)).mkdir()
    troubles = append_failures(layout, [FailedRecipient(each, b"b@c", b"no") for each in (first, second, third)])
    assert {message: type(trouble) for message, trouble in troubles.items()} == {second: IsADirectoryError}
    assert [Path(layout.bounce(each)).read_bytes() for each in (first, third)] == [b"<b@c>:\nno\n\n"] * 2


def test_a_group_of_failures_is_undone_if_its_sync_fails(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(handle: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    layout = open_layout(home.queue)
    first, second = (classified_message(home, remote=[b"b@c"]) for _ in range(2))
    Path(layout.bounce(second)).write_bytes(b"<x@c>:\nnever\n\n")
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="Input/output error"):
        append_failures(layout, [FailedRecipient(each, b"b@c", b"no") for each in (first, second)])
    assert [Path(layout.bounce(each)).read_bytes() for each in (first, second)] == [b"", b"<x@c>:\nnever\n\n"]


def test_recipients_are_done_though_the_bounce_file_of_another_message_cannot_be_used(home: Home) -> None:
    layout = open_layout(home.queue)
    bad, good = (classified_message(home, remote=[b"b@c"]) for _ in range(2))
    Path(layout.bounce(bad)).mkdir()
    with ScriptedSend(home) as send:
        jobs = [send.remote.job() for _ in range(2)]
        os.kill(send.pid, signal.SIGSTOP)  # Both reports come in one turn.
        for job in jobs:
            send.remote.report(job, b"Dno\n")
        os.kill(send.pid, signal.SIGCONT)
        send.wait_for(f"warning: unable to append to {layout.bounce(bad)}: is a directory; will try again later")
        marked = Path(layout.hashed("remote", good))
        wait_until(lambda: not marked.exists() or marked.read_bytes() == b"Db@c\0", why="the mark")


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
