"""queuectl maildrop: files of one user are listed, removed and held; others' files and odd names are left alone."""

import json
import os
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from queue_admin.messages import maildrop_files
from queue_admin.messages.maildrop_files import DroppedFile
from support.queues.home import make_home
from support.queues.listed_queue import Queue, lines

ME = os.getuid()


@pytest.fixture
def queue(tmp_path: Path) -> Queue:
    return Queue(tmp_path / "home")


def drop(queue: Queue, letter: str, data: bytes = b"x") -> Path:
    path = Path(queue.home.queue, "maildrop", "mail." + letter * 32)
    path.write_bytes(data)
    return path


def test_the_files_of_a_user_are_listed(queue: Queue, capsys: pytest.CaptureFixture[str]) -> None:
    one = drop(queue, "a", b"xyz")
    Path(queue.home.queue, "maildrop", "tmp." + "b" * 32).touch()
    Path(queue.home.queue, "maildrop", "mail." + "c" * 32).symlink_to("/etc/passwd")
    os.mkfifo(Path(queue.home.queue, "maildrop", "mail." + "d" * 32))
    assert queue.run("maildrop", "list", "--uid", str(ME), "--format", "json") == 0
    (line,) = lines(capsys)
    assert {"file": one.name, "uid": ME, "bytes": 3, "held": False}.items() <= json.loads(line).items()
    assert queue.run("maildrop", "list") == 0
    assert lines(capsys) == [f"uid {ME}: 1"]
    assert queue.run("maildrop", "list", "--uid", str(ME + 1)) == 1


def test_what_is_held_is_out_of_reach_and_comes_back(queue: Queue, capsys: pytest.CaptureFixture[str]) -> None:
    one, two = drop(queue, "a"), drop(queue, "b")
    assert queue.run("maildrop", "hold", "--uid", str(ME)) == 0
    place = Path(queue.home.queue, "hold", "maildrop")
    assert not one.exists() and sorted(path.name for path in place.iterdir()) == [one.name, two.name]
    assert place.stat().st_mode & 0o777 == 0o700
    assert queue.run("list") == 0  # It is no message.
    assert queue.run("maildrop", "hold", "--uid", str(ME)) == 1
    capsys.readouterr()
    assert queue.run("maildrop", "list", "--uid", str(ME)) == 0
    assert all(line.endswith(" held") for line in lines(capsys))
    assert queue.run("maildrop", "release", "--uid", str(ME)) == 0
    assert one.exists() and two.exists()


def test_a_users_files_are_removed_also_those_on_hold(queue: Queue, capsys: pytest.CaptureFixture[str]) -> None:
    drop(queue, "a")
    assert queue.run("maildrop", "hold", "--uid", str(ME)) == 0
    drop(queue, "b")
    assert queue.run("maildrop", "remove", "--uid", str(ME + 1)) == 1
    capsys.readouterr()
    assert queue.run("maildrop", "remove", "--uid", str(ME)) == 0
    assert lines(capsys) == ["removed 2 files"]
    assert queue.run("maildrop", "remove", "--uid", str(ME)) == 1


def test_a_link_in_the_place_of_the_held_files_is_not_followed(tmp_path: Path) -> None:
    queue = Queue(tmp_path / "one")
    other = make_home(tmp_path / "other")
    Path(queue.home.queue, "hold", "maildrop").symlink_to(f"{other.queue}/maildrop")
    assert queue.run("maildrop", "list", "--uid", str(ME)) == 111


def test_a_dry_run_names_the_files_and_changes_nothing(queue: Queue, capsys: pytest.CaptureFixture[str]) -> None:
    one = drop(queue, "a")
    assert queue.run("maildrop", "hold", "--uid", str(ME)) == 0
    two = drop(queue, "b")
    capsys.readouterr()
    for verb, names in (("remove", [two, one]), ("hold", [two]), ("release", [one])):
        assert queue.run("maildrop", verb, "--uid", str(ME), "--dry-run") == 0
        shown = capsys.readouterr()
        assert shown.out.splitlines() == [path.name for path in names]
        done = {"remove": "removed", "hold": "held", "release": "released"}[verb]
        assert shown.err == f"would have {done} {len(names)} file{'s' * (len(names) > 1)}\n"
        assert queue.run("maildrop", verb, "--uid", str(ME + 1), "--dry-run") == 1
        capsys.readouterr()
    assert two.exists() and Path(queue.home.queue, "hold", "maildrop", one.name).exists()


def test_the_names_of_very_many_files_take_little_memory(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred thousand, of which none is there any more when it is to be moved."""

    def many(path: str, uid: int, held: bool) -> Iterator[DroppedFile]:
        for number in range(100_000):
            yield DroppedFile(f"mail.{number:032x}", uid, 1, 0.0, held)

    monkeypatch.setattr(maildrop_files, "_files", many)
    seen: list[str] = []

    def see(commit: object, old: str, new: str) -> bool:
        if len(seen) < 2:
            seen.append(os.path.basename(old))
        return False

    tracemalloc.start()
    try:
        assert maildrop_files._each(queue.home.queue, ME, (False,), see, lambda: None) == 0
        assert tracemalloc.get_traced_memory()[1] < 100_000 * 40
    finally:
        tracemalloc.stop()
    assert seen == [f"mail.{number:032x}" for number in range(2)]
