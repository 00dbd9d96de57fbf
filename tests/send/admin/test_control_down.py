"""queuectl while queue-send does not run: it takes the lock and changes the disk, and the next queue-send goes on."""

import os
import time
from pathlib import Path

import pytest

from queue_base.daemon.lock import take_sendmutex
from queue_base.home import Home
from queue_base.queue.layout import open_layout
from support.inject.injectors import shared_home
from support.queues.inflow import patched_programs
from support.queues.queued import classified_message, queue_message
from support.send.control import file, files, long_id, order, queuectl
from support.send.scripted_send import ScriptedSend
from support.tools import need_root


def waiting(home: Home, *, bounce: bytes = b"") -> int:
    now = time.time()
    return classified_message(
        home, local=[b"c@me.example.org"], remote=[b"b@c.example"], birth=now - 100, due=now + 3600, bounce=bounce
    )


def test_hold_survives_restarts_and_release_makes_the_message_due(home: Home) -> None:
    message = waiting(home)
    name = long_id(home, message)
    assert order(home, "hold", "--reason", "ask Jo", name) == "held 1 message"
    assert order(home, "hold", name) == "held 0 messages"
    assert file(home, "hold", message).read_bytes() == b"ask Jo\n"
    for _ in range(2):
        with ScriptedSend(home) as send:
            send.fence()
            assert order(home, "flush", "--all") == "flushed 0 messages"
            send.fence()
            assert send.remote.silent and send.local.silent
            send.kill()
    assert order(home, "release", name) == "released 1 message"
    assert order(home, "release", name) == "released 0 messages"
    with ScriptedSend(home) as send:
        assert send.remote.job().recipients == [b"b@c.example"]
        assert send.local.job().recipients == [b"c@me.example.org"]


def test_delete_removes_every_file_and_makes_no_bounce(home: Home) -> None:
    message, queued, other = waiting(home, bounce=b"<x@y>:\nno\n\n"), queue_message(home, [b"b@c"]), waiting(home)
    kept = [name for name in files(home) if name.endswith(f"/{other}")]
    names = [long_id(home, message), long_id(home, queued)]
    order(home, "hold", names[0])
    assert order(home, "delete", *names) == "deleted 2 messages"
    assert files(home) == kept
    done = queuectl(home, "delete", *names)
    assert (done.returncode, done.stdout) == (1, "deleted 0 messages\n")
    assert done.stderr == "".join(f"{name}: no such message\n" for name in names)


def test_flush_makes_due_what_it_chooses_and_nothing_else(home: Home) -> None:
    one, two = waiting(home), waiting(home)
    before = int(time.time())
    assert order(home, "flush", long_id(home, one)) == "flushed 1 message"
    assert before <= file(home, "remote", one).stat().st_mtime <= time.time()
    assert file(home, "remote", two).stat().st_mtime > before + 3000


def test_requeue_gives_a_new_birth(home: Home) -> None:
    message = waiting(home)
    old, before = long_id(home, message), time.time()
    news, last = order(home, "requeue", old).split("\n")
    assert (news, last) == (f"{old}: is {long_id(home, message)} now", "requeued 1 message")
    assert file(home, "info", message).stat().st_mtime >= before - 0.001
    assert file(home, "local", message).stat().st_mtime <= time.time()


def test_bounce_is_finished_by_the_next_queue_send(home: Home) -> None:
    message = waiting(home)
    name = long_id(home, message)
    assert order(home, "bounce", name) == f"{name}: bounces when queue-send starts\nbounced 1 message"
    assert order(home, "bounce", name) == "bounced 0 messages"
    with ScriptedSend(home) as send:
        send.wait_for("delivery 2: failure: The_administrator_has_asked_.*")
        send.wait_for(f"bounce msg {message} qp .*")
        send.wait_for(f"end msg {message}")
        assert send.clean.asked() == message
        assert send.remote.silent and send.local.silent


@pytest.mark.parametrize("address", ["Joe-List@v.example", "list@V.example"])
def test_a_recipient_in_a_virtual_domain_is_chosen_by_either_of_its_names(home: Home, address: str) -> None:
    Path(home.control, "virtualdomains").write_text("v.example:Joe\n")
    message = classified_message(home, local=[b"Joe-list@v.example"])
    classified_message(home, local=[b"Joe-other@v.example"], remote=[b"Joe-list@w.example"])
    assert order(home, "hold", "--recipient", address, "--dry-run").split("\n")[0] == long_id(home, message)
    assert order(home, "hold", "--recipient", address) == "held 1 message"


@pytest.mark.parametrize("address", ["list@bücher.example", "list@XN--BCHER-KVA.example", "Joe-list@bücher.example"])
@pytest.mark.parametrize("key", ["BÜCHER.example", "xn--bcher-kva.example."])
def test_a_virtual_domain_is_the_same_with_u_labels_and_a_labels(home: Home, key: str, address: str) -> None:
    Path(home.control, "virtualdomains").write_text(f"{key}:Joe\n")
    classified_message(home, local=[b"Joe-list@xn--bcher-kva.example"])
    assert order(home, "hold", "--recipient", address) == "held 1 message"


def test_a_message_that_is_about_to_bounce_gets_no_new_birth(home: Home) -> None:
    name = long_id(home, message := classified_message(home, remote=[b"b@c.example"]))
    order(home, "bounce", name)
    done = queuectl(home, "requeue", name)
    assert (done.returncode, done.stdout) == (111, "requeued 0 messages\n")
    assert f"{name}: it is about to end" in done.stderr
    assert long_id(home, message) == name


@pytest.mark.parametrize("command", ["hold", "release", "requeue", "delete", "bounce", "flush"])
def test_a_later_message_of_the_same_number_is_never_touched(home: Home, command: str) -> None:
    message = waiting(home)
    old = long_id(home, message)
    os.utime(file(home, "info", message), (1_700_000_000, 1_700_000_000))
    before = {name: Path(home.queue, name).stat() for name in files(home)}
    done = queuectl(home, command, old)
    assert (done.returncode, done.stderr) == (1, f"{old}: no such message\n")
    assert {name: Path(home.queue, name).stat() for name in files(home)} == before


@pytest.mark.parametrize("words", [[], ["--all", "--domain", "x"], ["1-1", "--all"], ["--older-than", "2y"], ["x-y"]])
def test_what_names_no_messages_is_a_usage_error(home: Home, words: list[str]) -> None:
    done = queuectl(home, "delete", *words)
    assert (done.returncode, done.stdout) == (100, "")


def test_an_inode_number_alone_is_refused_with_the_long_id(home: Home) -> None:
    message = waiting(home)
    done = queuectl(home, "delete", str(message))
    assert done.returncode == 100
    assert f"it is {long_id(home, message)} now" in done.stderr
    assert file(home, "info", message).exists()


def test_a_lock_that_somebody_holds_without_listening_is_a_temporary_failure(home: Home, tmp_path: Path) -> None:
    programs = patched_programs(tmp_path, queuectl="import queue_admin.messages.admin_client as a; a.START_WAIT = 0.5")
    name = long_id(home, waiting(home))
    lock = take_sendmutex(home)
    done = queuectl(home, "hold", name, programs=programs)
    os.close(lock)
    assert done.returncode == 111
    assert "lock/control" in done.stderr
    assert order(home, "hold", name) == "held 1 message"


def test_what_root_makes_belongs_to_the_owner_of_the_queue() -> None:
    need_root()
    with shared_home() as home:
        message = waiting(home)
        for path in (Path(home.queue), *Path(home.queue).rglob("*")):
            os.chown(path, 12345, 12345)
        order(home, "hold", long_id(home, message))
        assert file(home, "hold", message).stat().st_uid == 12345


def test_a_corrupt_message_is_read_again_after_release(home: Home) -> None:
    message = waiting(home)
    remote = file(home, "remote", message)
    good = remote.read_bytes()
    remote.write_bytes(b"garbage")
    os.utime(remote, (1, 1))
    with ScriptedSend(home) as send:
        send.wait_for(f"alert: msg {message} cannot be read and is parked in corrupt: .*")  # Its mark is made.
        name = long_id(home, message)
        assert "cannot be bounced" in queuectl(home, "bounce", name).stderr
        remote.write_bytes(good)
        assert order(home, "release", name) == "released 1 message"
        assert send.remote.job().recipients == [b"b@c.example"]
        assert not file(home, "corrupt", message).exists()
        send.kill()
    remote.write_bytes(b"garbage")
    Path(open_layout(home.queue).hashed("corrupt", message)).write_bytes(b"why\n")
    assert order(home, "delete", name) == "deleted 1 message"
    assert files(home) == []
