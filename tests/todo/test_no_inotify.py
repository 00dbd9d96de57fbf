"""A machine with no inotify instance left, and a queue without its trigger: mail is found by what remains."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from queue_base.home import Home
from queue_wire.files.maildrop import pack_envelope, pack_header
from support.inject.injectors import ROOT, USER, queued, shared_home
from support.processes.suite import wait_until
from support.processes.todo_daemon import TodoDaemon, todo_home
from support.queues.inflow import patched_programs
from support.queues.queued import queue_message
from support.send.piped import Piped

REMOTE = [b"b@example.net"]
CALLS = "inotify_init,inotify_init1"
# What the kernel says once fs.inotify.max_user_instances is used up, without using it up for everybody else.
NO_INOTIFY = ("strace", "-o", "/dev/null", "-e", f"trace={CALLS}", "-e", f"inject={CALLS}:error=EMFILE")


@pytest.fixture
def shared() -> Iterator[Home]:
    with shared_home() as home:
        yield home


def drop(home: Home, name: str) -> None:
    """Leave a message in maildrop/, as queue-inject does for a user who may not write to the queue."""
    path = Path(home.queue, "maildrop", f"tmp.{name}")
    path.write_bytes(pack_header(4) + b"mail" + pack_envelope(b"a@example.org", REMOTE))
    path.chmod(0o1644)
    if ROOT:
        os.chown(path, USER, -1)
    path.rename(path.with_name(f"mail.{name}"))


def test_without_inotify_queue_todo_says_so_and_the_trigger_does_its_work(tmp_path: Path) -> None:
    home = todo_home(tmp_path / "home")
    with TodoDaemon(home, wrapper=NO_INOTIFY) as todo:
        line = todo.line()
        assert line.startswith("alert: queue-todo: unable to watch todo: ") and "EMFILE" in line
        message = queue_message(home, REMOTE)
        todo.pull()
        assert todo.notice().message == message
        assert todo.exit() == 0


def test_without_inotify_queue_pickup_says_so_and_scans_every_few_seconds(shared: Home, tmp_path: Path) -> None:
    programs = patched_programs(tmp_path, queue_pickup="import queue_inject.pickup.main as p; p.BLIND_SECONDS = 1")
    with Piped("queue-pickup", shared, wrapper=NO_INOTIFY, programs=programs) as pickup:
        line = pickup.record()
        assert line.startswith(b"Lalert: queue-pickup: unable to watch ") and line.endswith(b"scanned every 1 s")
        drop(shared, "0" * 32)
        wait_until(lambda: len(queued(shared)) == 1, why="a scan")
        drop(shared, "1" * 32)
        wait_until(lambda: len(queued(shared)) == 2, why="the next scan")
        assert pickup.silent
        assert pickup.end() == 0


def test_a_missing_trigger_is_made_again_with_its_mode(tmp_path: Path) -> None:
    home = todo_home(tmp_path / "home")
    trigger = Path(home.queue, "lock", "trigger")
    trigger.unlink()
    with TodoDaemon(home, wrapper=NO_INOTIFY) as todo:
        todo.line()
        message = queue_message(home, REMOTE)
        todo.pull()
        assert todo.notice().message == message
        assert todo.silent
    assert stat.S_ISFIFO(trigger.stat().st_mode) and stat.S_IMODE(trigger.stat().st_mode) == 0o622


@pytest.mark.parametrize("kind", ["a file", "a directory"])
def test_what_is_in_the_trigger_s_place_is_an_alert_and_inotify_does_its_work(tmp_path: Path, kind: str) -> None:
    home = todo_home(tmp_path / "home")
    trigger = Path(home.queue, "lock", "trigger")
    trigger.unlink()
    trigger.mkdir() if kind == "a directory" else trigger.touch()
    with TodoDaemon(home) as todo:
        line = todo.line()
        assert line.startswith(f"alert: queue-todo: unable to use {trigger}: "), line
        assert line.endswith("; inotify and scans do its work")
        message = queue_message(home, REMOTE)
        assert todo.notice().message == message
        assert todo.exit() == 0


def test_with_neither_trigger_nor_inotify_queue_todo_scans_every_few_seconds(tmp_path: Path) -> None:
    home = todo_home(tmp_path / "home")
    trigger = Path(home.queue, "lock", "trigger")
    trigger.unlink()
    trigger.mkdir()
    programs = patched_programs(tmp_path, queue_todo="import queue_todo.main as t; t.BLIND_SCAN = 0.5")
    with TodoDaemon(home, wrapper=NO_INOTIFY, programs=programs) as todo:
        assert todo.line().startswith("alert: queue-todo: unable to watch todo: ")
        assert todo.line().startswith(f"alert: queue-todo: unable to use {trigger}: ")
        assert queue_message(home, REMOTE) == todo.notice().message
        # The scan at the start may have found that one; this one is found by a later scan.
        assert queue_message(home, REMOTE) == todo.notice().message
        assert todo.exit() == 0
