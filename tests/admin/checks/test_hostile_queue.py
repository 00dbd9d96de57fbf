"""What an account that may write to the queue, or any user by maildrop/, can put there: copy, check, repair go on."""

import os
import socket
import time
from pathlib import Path

import pytest

from queue_admin.home.tree import Tree
from queue_admin.main import main
from queue_base.home import Home
from support.queues.damage import KnownQueue
from support.tools import need_root

pytestmark = pytest.mark.usefixtures("usual_umask")


DROPPED = "mail." + "0123456789abcdef" * 2


@pytest.fixture
def queue(tmp_path: Path) -> KnownQueue:
    return KnownQueue(tmp_path / "home")


def run(queue: KnownQueue, *words: str) -> int:
    return main(["queuectl", "--home", queue.home.path, *words])


def test_a_users_socket_in_maildrop_does_not_end_a_copy(
    queue: KnownQueue, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    drop = Path(queue.home.queue, "maildrop")
    with socket.socket(socket.AF_UNIX) as listener:
        here = os.open(drop, os.O_RDONLY)
        listener.bind(f"/proc/self/fd/{here}/{DROPPED}")
        os.close(here)
        assert run(queue, "copy", str(tmp_path / "copy")) == 1  # It says what is missing.
    assert "is a socket" in capfd.readouterr().err
    other = KnownQueue.__new__(KnownQueue)
    other.home = Home(str(tmp_path / "copy"))
    assert other.deliverable() == queue.deliverable()


def test_a_users_file_of_holes_takes_no_room_in_a_copy(queue: KnownQueue, tmp_path: Path) -> None:
    with open(f"{queue.home.queue}/maildrop/{DROPPED}", "wb") as file:
        file.write(b"begin")
        file.truncate(1 << 40)
    begun = time.process_time()
    assert run(queue, "copy", str(tmp_path / "copy")) == 0
    assert time.process_time() - begun < 10
    made = os.stat(tmp_path / "copy" / "queue" / "maildrop" / DROPPED)
    assert made.st_size == 1 << 40 and made.st_blocks < 1000


def test_an_envelope_of_any_size_is_left_out_and_not_read_into_memory(
    queue: KnownQueue, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    os.truncate(queue.path("remote", "both"), 1 << 40)
    assert run(queue, "copy", str(tmp_path / "copy")) == 1  # It says what is missing.
    assert "remote has 1099511627776 bytes" in capfd.readouterr().err
    assert run(queue, "check") == 1
    assert run(queue, "repair") == 0


def test_a_copy_into_the_home_by_a_link_is_refused(queue: KnownQueue, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(queue.home.alias)
    assert run(queue, "copy", str(tmp_path / "link" / "copy")) == 100


@pytest.mark.parametrize("name", ["\N{SUPERSCRIPT TWO}", "\N{ARABIC-INDIC DIGIT ONE}", "9" * 200, "007"])
def test_a_directory_with_an_odd_number_is_no_reason_to_fail(queue: KnownQueue, name: str) -> None:
    known = queue.deliverable()
    for kind in ("mess", "info", "todo"):
        os.mkdir(f"{queue.home.queue}/{kind}/{name}", 0o700)
    assert run(queue, "check") == 1
    assert run(queue, "repair") == 0
    assert queue.deliverable() == known
    assert run(queue, "list") == 0


@pytest.mark.parametrize("plan", [b"99999999999999999\n", b"-3\n", b"0\n", b"\xff\n", b""])
def test_a_plan_that_makes_no_sense_makes_no_directories(
    queue: KnownQueue, plan: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    Path(queue.home.queue, "repair").mkdir()
    Path(queue.home.queue, "repair", "plan").write_bytes(plan)
    assert run(queue, "repair") == 100
    assert "it has no split" in capfd.readouterr().err


@pytest.mark.parametrize("kind", ["fifo", "link"])
def test_a_plan_is_opened_without_following_or_waiting(queue: KnownQueue, kind: str, tmp_path: Path) -> None:
    Path(queue.home.queue, "repair").mkdir()
    plan = Path(queue.home.queue, "repair", "plan")
    if kind == "fifo":
        os.mkfifo(plan)
    else:
        (tmp_path / "secret").write_text("7\n")
        plan.symlink_to(tmp_path / "secret")
    with pytest.MonkeyPatch.context() as patch:
        # As if it had been put there after the look.
        patch.setattr(Tree, "has", lambda *_: True)
        assert run(queue, "repair") == 100


def test_a_stamp_of_any_split_is_not_believed(queue: KnownQueue) -> None:
    os.rmdir(f"{queue.home.queue}/local/2") if not os.listdir(f"{queue.home.queue}/local/2") else None
    Path(queue.home.queue, "stamp").write_bytes(b"queue-suite stamp 1\ninode 1\nsplit 99999999999999999\n")
    os.mkdir(f"{queue.home.queue}/mess/99999999999")
    assert run(queue, "check") == 1
    assert run(queue, "repair") == 0


def test_a_mark_of_any_size_does_not_stop_a_repair(queue: KnownQueue) -> None:
    known = queue.deliverable()
    queue.put("corrupt", queue.messages["both"], b"x" * 200_000)
    queue.cycle()
    assert run(queue, "repair") == 0
    assert len(queue.deliverable()) == len(known) - 1, "it stays parked"


def test_a_queue_that_is_a_link_is_repaired_where_it_is(queue: KnownQueue, tmp_path: Path) -> None:
    known = queue.deliverable()
    os.rename(queue.home.queue, tmp_path / "elsewhere")
    os.symlink(tmp_path / "elsewhere", queue.home.queue)
    queue.cycle()
    assert run(queue, "repair") == 0
    assert queue.deliverable() == known


def test_nothing_is_lost_of_a_directory_too_many_whatever_its_files_are_named(queue: KnownQueue) -> None:
    surplus = Path(queue.home.queue, "mess", "7")
    surplus.mkdir()
    for name in ("reason", "hold", "last", "note"):
        (surplus / name).write_text(f"of a person: {name}")
    assert run(queue, "repair") == 0
    found = {path.read_text() for path in Path(queue.home.queue, "corrupt", "unplaced").rglob("*") if path.is_file()}
    assert {f"of a person: {name}" for name in ("reason", "hold", "last", "note")} <= found


def test_a_file_of_another_account_does_not_become_one_of_the_queues_owner_by_a_copy(
    queue: KnownQueue, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    need_root()
    os.chown(queue.path("mess", "queued"), 60002, -1)
    assert run(queue, "copy", str(tmp_path / "copy")) == 1  # It says what is missing.
    assert "belongs to uid 60002" in capfd.readouterr().err
    assert len(list(Path(tmp_path, "copy", "queue", "mess").glob("*/*"))) == 3
