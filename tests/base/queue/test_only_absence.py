"""Only ENOENT is absence: what cannot be looked at stays as it is, a warning says so, and it is tried again.

A directory that is a symbolic link to itself can be looked into by nobody, not by root either (ELOOP).
"""

import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from queue_base.daemon.log_limit import LimitedLog
from queue_base.errors import Temporary
from queue_base.home import Home
from queue_base.queue.layout import Presence, open_layout
from queue_base.queue.writer import QueueWriter
from queue_clean.sweep import OLD, Swept, sweep
from queue_inject.pickup.collector import Collector, QueuedFiles
from queue_inject.pickup.corrupt import CorruptMail
from queue_inject.pickup.file_checks import OriginRules
from queue_inject.pickup.untrusted_directory import Directory
from queue_todo.pending import RETRY_AFTER, SAY_EVERY, Pending
from queue_wire.admin.socket import FLUSH, Request
from queue_wire.failures import pack_failure
from queue_wire.files.maildrop import pack_header
from support.inject.injectors import OWNER, ROOT, shared_home, states
from support.inject.maildrop import ENVELOPE, put, set_aside
from support.processes.todo_daemon import TodoDaemon, todo_home
from support.queues.home import make_home
from support.queues.inflow import patched_programs
from support.queues.queued import classified_message, put_mess, queue_message
from support.send.control import Client, long_id
from support.send.piped import Piped
from support.send.scripted_send import ScriptedSend
from support.tools import need

LATER = OLD + 60
REMOTE = [b"b@example.net"]
OLD_FAILURE = pack_failure(b"x@c", b"never")
LOOKS = "lstat,stat,newfstatat,statx"
SOON = "1"  # Second, in the place of a minute or two; compiled, it is an integer for ever.


@contextmanager
def unreadable(directory: Path) -> Iterator[None]:
    """Put a link to itself in the place of a directory, for a while."""
    away = directory.with_name(directory.name + ".away")
    directory.rename(away)
    directory.symlink_to(directory.name)
    try:
        yield
    finally:
        directory.unlink()
        away.rename(directory)


def bucket(home: Home, kind: str, message: int) -> Path:
    return Path(home.queue, kind, str(message % open_layout(home.queue).split))


def queued_in(home: Home, number: int) -> int:
    """Return a message in todo/ whose files are in the directories of this number."""
    while True:
        message = queue_message(home, REMOTE)
        if message % open_layout(home.queue).split == number:
            return message


def all_swept(home: Home) -> Swept:
    """Sweep as if everything were old; return what came of it in all."""
    found = list(sweep(open_layout(home.queue), time.time() + LATER))
    return Swept(sum(each.removed for each in found), "; ".join(each.trouble for each in found if each.trouble))


def without_intd(home: Home) -> int:
    """Return an accepted message that has nothing but mess/ and todo/."""
    message = queue_message(home, REMOTE)
    os.unlink(open_layout(home.queue).intd(message))
    return message


@pytest.mark.parametrize("kind", ["todo", "intd", "info", "local", "remote"])
def test_the_sweep_removes_nothing_where_a_directory_cannot_be_looked_into(tmp_path: Path, kind: str) -> None:
    home = make_home(tmp_path / "home", split=3)
    message = without_intd(home) if kind == "todo" else put_mess(open_layout(home.queue))
    layout = open_layout(home.queue)
    with unreadable(bucket(home, kind, message)):
        swept = [each for each in sweep(layout, time.time() + LATER) if each.trouble]
        assert os.path.exists(layout.mess(message))
        (only,) = swept
        assert only.removed == 0 and "too many levels of symbolic links" in only.trouble
    assert all_swept(home) == Swept(0 if kind == "todo" else 1, "")


def test_the_sweep_removes_nothing_where_a_directory_is_missing(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", split=3)
    message = without_intd(home)
    layout = open_layout(home.queue)
    directory = bucket(home, "todo", message)
    directory.rename(directory.with_name("away"))
    assert [each.removed for each in sweep(layout, time.time() + LATER) if each.trouble] == [0]
    directory.with_name("away").rename(directory)
    assert Presence(layout, message).state() == 4


@pytest.mark.skipif(not ROOT, reason="needs another user")
def test_the_sweep_removes_nothing_of_mail_in_a_directory_that_its_account_may_not_search() -> None:
    with shared_home() as home:
        message = without_intd(home)
        layout = open_layout(home.queue)
        directory = bucket(home, "todo", message)
        for top, names, files in os.walk(home.queue):
            for name in [*names, *files]:
                os.chown(os.path.join(top, name), OWNER, -1)
        os.chown(directory, 0, 0)
        os.chmod(directory, 0o700)
        script = (
            "import sys, time; from queue_base.queue.layout import open_layout; from queue_clean.sweep import sweep\n"
            "found = list(sweep(open_layout(sys.argv[1]), time.time() + int(sys.argv[2])))\n"
            "print(sum(each.removed for each in found), *[each.trouble for each in found if each.trouble])"
        )
        done = subprocess.run(
            [sys.executable, "-c", script, home.queue, str(LATER)], user=OWNER, group=OWNER, extra_groups=[],
            capture_output=True, text=True, check=False, cwd="/", timeout=60,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
        )  # fmt: skip
        assert done.stdout.startswith("0 unable to sweep ") and "permission denied" in done.stdout, done
        assert Presence(layout, message).state() == 4


def failing(path: str, calls: str, when: str = "") -> tuple[str, ...]:
    """Return what runs a program so that it meets EIO where its system calls come to a path."""
    words = (need("strace"), "-f", "-o", os.devnull, "-P", path, "-e", f"trace={calls}")
    return (*words, "-e", f"inject={calls}:error=EIO{when}", "--")


def test_queue_clean_warns_of_what_it_cannot_sweep_and_serves_on(home: Home, tmp_path: Path) -> None:
    layout = open_layout(home.queue)
    message, done = put_mess(layout), classified_message(home)
    programs = patched_programs(tmp_path, queue_clean="import queue_clean.sweep as sweep\nsweep.OLD = -60")
    fault = failing(layout.hashed("local", message), LOOKS)
    with Piped("queue-clean", home, wrapper=fault, programs=programs) as clean:
        assert b"warning: unable to sweep %s: " % os.fsencode(layout.hashed("local", message)) in clean.complaint()
        clean.write(b"%d\0" % done)
        assert clean.take(1) == b"+"
        assert os.path.exists(layout.mess(message))


def test_hashed_directories_that_cannot_be_looked_at_make_no_flat_queue(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", split=3)
    first, last = Path(home.queue, "todo", "0"), Path(home.queue, "todo", "2")
    with unreadable(first), unreadable(last), pytest.raises(Temporary, match="too many levels of symbolic links"):
        open_layout(home.queue)
    assert not open_layout(home.queue).flat_todo


def test_a_todo_directory_that_cannot_be_read_is_warned_of_and_read_soon_and_other_mail_goes_on(tmp_path: Path) -> None:
    home = todo_home(tmp_path / "home")
    hidden, other = queued_in(home, 1), queued_in(home, 2)
    programs = patched_programs(tmp_path, queue_todo=f"import queue_todo.pending as p\np.RETRY_AFTER = {SOON}")
    fault = failing(str(bucket(home, "todo", hidden)), "openat", ":when=1")
    with TodoDaemon(home, programs=programs, wrapper=fault) as todo:
        seen = [todo.notice().message]
        while seen[-1] != hidden:
            seen.append(todo.notice().message)
    assert other in seen
    (said,) = [line for line in todo.lines if " unable to read " in line]
    assert said.startswith(f"warning: queue-todo: unable to read {bucket(home, 'todo', hidden)}: input/output error; ")


def test_a_directory_that_stays_unreadable_is_tried_often_and_named_seldom(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", split=3)
    pending = Pending(open_layout(home.queue))
    directory = Path(home.queue, "todo", "1")
    with unreadable(directory):
        said = [now for now in range(0, int(2 * SAY_EVERY) + 1, 10) if pending.run(float(now)) is not None]
        assert pending.wait(2 * SAY_EVERY) <= RETRY_AFTER
    assert len(said) == 3, said


@pytest.fixture
def soon(tmp_path: Path) -> Path:
    """Programs whose queue-send tries again soon what the disk refused."""
    code = "import queue_send.disk_retry as again, queue_send.notify.bounce as bouncer\n"
    code += f"again.AGAIN_AFTER = bouncer.AGAIN_AFTER = {SOON}"
    return patched_programs(tmp_path, queue_send=code)


def in_bucket(home: Home, number: int, **files: object) -> int:
    """Return a classified message whose files are in the directories of this number."""
    while True:
        message = classified_message(home, **files)  # type: ignore[arg-type]
        if message % 3 == number:
            return message
        # Its number must not come back at once, so mess/ stays.
        for kind in ("info", "local", "remote"):
            Path(open_layout(home.queue).hashed(kind, message)).unlink(missing_ok=True)
        Path(open_layout(home.queue).bounce(message)).unlink(missing_ok=True)


@pytest.mark.parametrize("kind", ["todo", "info"])
def test_a_message_that_the_disk_cannot_tell_of_when_it_is_announced_is_delivered_later(
    home: Home, soon: Path, kind: str
) -> None:
    with ScriptedSend(home, programs=soon) as send:
        send.fence()
        message = in_bucket(home, 1, remote=REMOTE)
        with unreadable(bucket(home, kind, message)):
            send.todo.classified(message, "R")
            send.wait_for("warning: unable to look at .*: too many levels of symbolic links; will try again later")
        send.remote.deliver(b"Kok")
        assert send.clean.removed() == message


def test_a_message_of_an_earlier_run_that_the_disk_cannot_tell_of_is_delivered_in_this_one(
    home: Home, soon: Path
) -> None:
    message = in_bucket(home, 1, remote=REMOTE)
    fault = failing(open_layout(home.queue).todo(message), LOOKS, ":when=1")
    with ScriptedSend(home, programs=soon, wrapper=fault) as send:
        send.wait_for("warning: unable to look at .*: input/output error; will try again later")
        send.remote.deliver(b"Kok")
        assert send.clean.removed() == message


def test_a_directory_of_an_earlier_run_that_cannot_be_read_is_read_later(home: Home, soon: Path) -> None:
    message = in_bucket(home, 1, remote=REMOTE)
    # open_layout does not list it.
    fault = failing(str(bucket(home, "info", message)), "openat", ":when=1")
    with ScriptedSend(home, programs=soon, wrapper=fault) as send:
        send.wait_for("warning: unable to look at .*/info/1: input/output error; will try again later")
        send.remote.deliver(b"Kok")
        assert send.clean.removed() == message


def test_a_bounce_that_the_disk_cannot_tell_of_is_not_dropped(home: Home, soon: Path) -> None:
    message = classified_message(home, remote=REMOTE, bounce=OLD_FAILURE)
    with ScriptedSend(home, programs=soon) as send:
        job = send.remote.job()
        with unreadable(Path(home.queue, "bounce")):
            send.remote.report(job, b"Kok")
            send.wait_for("warning: unable to look at .*/bounce/.*; will try again later")
            assert not send.found("end msg .*")
        send.wait_for(rf"bounce msg {message} qp \d+")
        assert send.clean.removed() == message


def test_a_bounce_whose_record_the_disk_cannot_read_now_is_sent_later(home: Home, soon: Path) -> None:
    message = classified_message(home, bounce=OLD_FAILURE)
    path = open_layout(home.queue).bounce(message)
    with ScriptedSend(home, wrapper=failing(path, "read", ":when=1"), programs=soon) as send:
        send.wait_for(f"warning: trouble injecting bounce message of msg {message}: .*input/output error; will try .*")
        send.wait_for(rf"bounce msg {message} qp \d+")
        assert not send.found("corrupt msg .*")


def test_a_channel_whose_end_the_disk_refuses_is_ended_later(home: Home, tmp_path: Path) -> None:
    code = "import queue_send.messages.life_cycle as messages\nmessages.AGAIN_AFTER = 1"
    programs = patched_programs(tmp_path, queue_send=code)
    message = in_bucket(home, 1, remote=REMOTE)
    with ScriptedSend(home, programs=programs) as send:
        job = send.remote.job()
        with unreadable(bucket(home, "local", message)):
            send.remote.report(job, b"Kok")
            send.wait_for("warning: unable to change .*/local/.*; will try again later")
            assert not send.found("end msg .*")
        assert send.clean.removed() == message


def test_a_flush_of_a_message_that_the_disk_cannot_tell_of_ends_nobody(home: Home, soon: Path) -> None:
    message = in_bucket(home, 1, remote=REMOTE, due=time.time() + 3600)
    with ScriptedSend(home, programs=soon) as send:
        send.fence()
        name = long_id(home, message)
        with unreadable(bucket(home, "remote", message)), Client(home) as client:
            reply = client.ask(Request(FLUSH, b"", [name.encode()]))
            assert reply is not None and reply.touched == 0
            send.wait_for("warning: unable to look at .*/remote/.*; will try again later")
        send.remote.deliver(b"Kok")
        assert send.clean.removed() == message


@contextmanager
def no_descriptors() -> Iterator[None]:
    """Let this process open nothing for a while."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_file_in_maildrop_is_not_set_aside_for_a_shortage_of_descriptors(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("queue_inject.pickup.failed_files.RETRY_SECONDS", 0.0)
    directory = f"{home.queue}/maildrop"
    lines = LimitedLog(lambda line: None, "more")
    writer = QueueWriter(home, open_layout(home.queue), os.getuid())
    opened = Directory(directory)
    corrupt = CorruptMail(home.queue, directory, lines)
    drop = Collector(opened, writer, OriginRules(None, True), corrupt, lines)
    opened.reopen()
    path = put(home, pack_header(5) + b"hello" + ENVELOPE)
    with no_descriptors():
        drop.add(path.name)
        drop.retry()
        assert not drop.take()
    assert set_aside(home) == [] and path.exists() and drop.failed
    drop.retry()
    assert drop.take()
    assert states(home) == {4: 1} and not path.exists()


def test_what_is_queued_and_cannot_be_looked_at_is_remembered_and_not_queued_twice(home: Home) -> None:
    path = put(home, b"")
    directory = Directory(str(path.parent))
    queued = QueuedFiles(directory)
    queued.add(path.name, path.stat().st_ino)
    with no_descriptors():
        assert "too many open files" in queued.remove()[0]
    assert path.name in queued and path.exists()
    assert queued.remove() == []
    assert path.name not in queued and not path.exists()
    directory.close()
