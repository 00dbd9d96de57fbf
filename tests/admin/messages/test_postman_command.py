"""queuectl postman: copies for the postmaster are listed, printed and removed, and nothing else is touched."""

import json
from pathlib import Path

import pytest

from queue_base.queue.postman import copy_path
from support.queues.listed_queue import Queue, lines

TEXT = b"Subject: \xff\n\nbody\n"


@pytest.fixture
def queue(tmp_path: Path) -> Queue:
    return Queue(tmp_path / "home")


def keep(queue: Queue, message: int, cause: bytes, text: bytes = TEXT) -> Path:
    path = Path(copy_path(queue.home.queue, message, cause))
    path.write_bytes(text)
    return path


def test_copies_are_listed_with_their_message_and_cause(queue: Queue, capsys: pytest.CaptureFixture[str]) -> None:
    assert queue.run("postman", "list") == 1
    keep(queue, 457, b"no date/../x")
    keep(queue, 12, b"two-from")
    Path(queue.home.queue, "postman", "notes").touch()
    Path(queue.home.queue, "postman", "12_link").symlink_to("/etc/passwd")
    assert queue.run("postman", "list", "--format", "json") == 0
    found = [json.loads(line) for line in lines(capsys)]
    assert [(each["copy"], each["message"], each["cause"], each["bytes"]) for each in found] == [
        ("12_two-from", 12, "two-from", len(TEXT)), ("457_no-date-..-x", 457, "no-date-..-x", len(TEXT))
    ]  # fmt: skip
    assert queue.run("postman", "list") == 0
    assert [line.split()[::2] for line in lines(capsys)] == [[each["copy"], str(len(TEXT))] for each in found]


def test_a_copy_is_printed_byte_for_byte(queue: Queue, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    keep(queue, 457, b"no-date")
    assert queue.run("postman", "show", "457_no-date") == 0
    assert capfdbinary.readouterr().out == TEXT
    assert queue.run("postman", "show", "458_no-date") == 1
    assert queue.run("postman", "show", "../mess") == 100


def test_copies_are_removed_by_name_or_all(queue: Queue, capsys: pytest.CaptureFixture[str]) -> None:
    one, two, three = (keep(queue, number, b"no-date") for number in (1, 2, 3))
    note = Path(queue.home.queue, "postman", "notes")
    note.touch()
    assert queue.run("postman", "remove") == 100 and queue.run("postman", "remove", "--all", one.name) == 100
    assert queue.run("postman", "remove", "notes") == 100
    capsys.readouterr()
    assert queue.run("postman", "remove", one.name, "9_no-date", "--dry-run") == 1
    assert lines(capsys) == [one.name] and one.exists()
    assert queue.run("postman", "remove", one.name, "9_no-date") == 1
    assert lines(capsys) == ["removed 1 copy"] and not one.exists() and two.exists()
    assert queue.run("postman", "remove", "--all") == 0
    assert lines(capsys) == ["removed 2 copies"] and not three.exists() and note.exists()
    assert queue.run("postman", "remove", "--all") == 1
