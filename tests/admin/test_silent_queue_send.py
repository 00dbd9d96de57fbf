"""A queue-send that is stopped, as by SIGSTOP: orders give up and say so, and what reads works from the disk."""

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from queue_admin.commands.state import stat
from queue_admin.messages import admin_client
from queue_admin.settings import control_values
from queue_base.daemon.lock import take_sendmutex
from queue_wire.files.stamp import pack_stamp
from queue_wire.ids import pack_long_id
from support.queues.listed_queue import BIRTH, Queue

pytestmark = pytest.mark.usefixtures("usual_umask")
ORDERS = ("hold", "release", "requeue", "delete", "bounce", "flush")


@pytest.fixture
def queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Queue:
    for module, name in ((admin_client, "ORDER_WAIT"), (admin_client, "START_WAIT")):
        monkeypatch.setattr(module, name, 0.2)
    for each in (admin_client, stat, control_values):
        monkeypatch.setattr(each, "QUERY_WAIT", 0.1)
    return Queue(tmp_path / "home")


@pytest.fixture
def identity(queue: Queue) -> str:
    return pack_long_id(queue.classified(remote=b"Tc@d\0", due=time.time() - 9), BIRTH)


@pytest.fixture
def stopped(queue: Queue) -> Iterator[None]:
    """What is there of a stopped queue-send: its lock, and a socket on which the kernel accepts connections."""
    lock = take_sendmutex(queue.home)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"{queue.home.queue}/lock/control")
    listener.listen(8)
    with listener, open(lock, closefd=True):
        yield


@pytest.mark.usefixtures("stopped")
@pytest.mark.parametrize("words", [*(f"{verb} ID" for verb in ORDERS), "hold --standing --sender a@b"])
def test_an_order_gives_up_and_says_so(
    queue: Queue, identity: str, capfd: pytest.CaptureFixture[str], words: str
) -> None:
    assert queue.run(*words.replace("ID", identity).split()) == 111
    error = capfd.readouterr().err
    assert "unable to reach queue-send, pid " in error and "it is stopped, or waits for a disk" in error


@pytest.mark.usefixtures("stopped")
def test_a_control_file_is_changed_and_the_error_says_that_it_is_not_in_force(
    queue: Queue, capfd: pytest.CaptureFixture[str]
) -> None:
    assert queue.run("config", "set", "concurrencyremote", "40") == 111
    assert "control/concurrencyremote is changed, but not in force: unable to reach" in capfd.readouterr().err
    assert Path(queue.home.control, "concurrencyremote").read_text() == "40\n"


@pytest.mark.usefixtures("stopped")
@pytest.mark.parametrize(
    ("words", "code", "shown"),
    [
        ("list", 0, "ID"),
        ("mailq", 0, "c@d"),
        ("show ID", 0, "no answer in"),
        ("shape", 0, "TOTAL"),
        ("top", 0, "TOTAL"),
        ("config", 0, "concurrencyremote"),
        ("metrics", 0, "queue_up 0.0"),
        ("log ID --logs LOG", 0, "new msg"),
        ("stat", 111, "classified: 1"),
        ("destinations", 111, ""),
        ("repair", 111, ""),
        ("repair --dry-run", 0, ""),
        ("copy COPY", 0, "copied 1"),
    ],
)
def test_what_reads_works_from_the_disk(
    queue: Queue, identity: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], words: str, code: int, shown: str
) -> None:
    log = tmp_path / "log"
    log.write_bytes(pack_stamp(BIRTH * 1000) + b" new msg %s\n" % identity.partition("-")[0].encode())
    for name, value in {"ID": identity, "LOG": str(log), "COPY": str(tmp_path / "copy")}.items():
        words, shown = words.replace(name, value), shown.replace(name, value)
    begun = time.monotonic()
    assert queue.run(*words.split()) == code
    assert time.monotonic() - begun < 10
    captured = capfd.readouterr()
    assert shown in captured.out
    assert code == 0 or "queue-send" in captured.out + captured.err


@pytest.mark.parametrize("words", [*(f"{verb} ID" for verb in ORDERS), "list", "show ID", "metrics", "config"])
def test_a_socket_that_a_dead_queue_send_has_left_stands_in_nobodys_way(
    queue: Queue, identity: str, words: str
) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{queue.home.queue}/lock/control")
    assert queue.run(*words.replace("ID", identity).split()) == 0


def test_stat_and_destinations_say_that_it_does_not_run(queue: Queue, capfd: pytest.CaptureFixture[str]) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{queue.home.queue}/lock/control")
    assert queue.run("stat") == 111
    assert "queue-send: not running" in capfd.readouterr().out
    assert queue.run("destinations") == 111
    assert "queue-send does not run" in capfd.readouterr().err
