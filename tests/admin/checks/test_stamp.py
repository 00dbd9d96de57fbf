"""queue/stamp: a copied queue is refused, and nothing else is."""

import os
import shutil
from pathlib import Path

import pytest

from queue_admin.checks import queue_stamp
from queue_admin.checks.queue_stamp import Stamp, check_stamp, pack_stamp, read_stamp, unpack_stamp, write_stamp
from queue_admin.system_accounts import myself
from queue_base.errors import Permanent
from queue_base.home import Home
from queue_base.queue.layout import open_layout
from queue_wire.format_error import FormatError
from support.queues.damage import KnownQueue


def start(queue: KnownQueue) -> None:
    check_stamp(queue.home, open_layout(queue.home.queue))


def copied(queue: KnownQueue, path: Path) -> KnownQueue:
    """Return a copy as `cp -a` makes it."""
    lock = f"{queue.home.queue}/lock"
    shutil.copytree(queue.home.path, path, symlinks=True, ignore=lambda top, names: names if top == lock else [])
    other = KnownQueue.__new__(KnownQueue)
    other.home = Home(str(path))
    other.layout = open_layout(other.home.queue)
    other.messages = queue.messages
    return other


def is_right(queue: KnownQueue) -> bool:
    found = read_stamp(queue.home.queue, (os.geteuid(),))
    return found is not None and found.right and found.stamp.split == 3


def test_a_stamp_is_what_was_packed_and_nothing_else() -> None:
    for each in (Stamp(5, 23), Stamp(2**64 - 1, 1, "2026-11-22T20:15:00Z /var/queue")):
        assert unpack_stamp(pack_stamp(each)) == each
        assert unpack_stamp(pack_stamp(each) + b"later 5\n") == each
    for wrong in (b"", b"queue-suite stamp 1", b"queue-suite stamp 2\ninode 5\nsplit 3\n", b"\0" * 100):
        with pytest.raises(FormatError):
            unpack_stamp(wrong)


def test_the_first_start_makes_the_stamp_of_a_new_queue_and_of_one_of_an_earlier_release(tmp_path: Path) -> None:
    for name, fill in (("new", False), ("old", True)):
        queue = KnownQueue(tmp_path / name, fill=fill)
        start(queue)
        assert is_right(queue)


def test_a_queue_that_was_renamed_starts(tmp_path: Path) -> None:
    queue = KnownQueue(tmp_path / "home")
    start(queue)
    os.rename(tmp_path / "home", tmp_path / "other")
    queue.home = Home(str(tmp_path / "other"))
    start(queue)
    assert is_right(queue)


def test_a_copied_queue_is_refused_and_repair_is_named(tmp_path: Path) -> None:
    queue = KnownQueue(tmp_path / "home")
    for name in ("without a stamp", "with one"):
        other = copied(queue, tmp_path / name)
        with pytest.raises(Permanent, match=r"it was copied or restored: .* has inode number \d+; run queuectl repair"):
            start(other)
        start(queue)


def test_an_empty_copy_starts(tmp_path: Path) -> None:
    queue = KnownQueue(tmp_path / "home", fill=False)
    start(queue)
    other = copied(queue, tmp_path / "copy")
    assert not is_right(other)
    start(other)
    assert is_right(other)


def test_a_copy_without_the_texts_is_refused(tmp_path: Path) -> None:
    queue = KnownQueue(tmp_path / "home")
    start(queue)
    other = copied(queue, tmp_path / "copy")
    for path in Path(other.home.queue, "mess").glob("*/*"):
        path.unlink()
    with pytest.raises(Permanent, match="has envelopes, but mess/ has no message; run queuectl repair"):
        start(other)


def test_an_envelope_that_has_lost_its_text_does_not_keep_a_queue_without_a_stamp_from_starting(
    tmp_path: Path,
) -> None:
    queue = KnownQueue(tmp_path / "home", fill=False)
    os.unlink(queue.layout.mess(queue.queued("lost")))
    start(queue)
    assert is_right(queue)
    start(queue)


def test_messages_that_were_restored_into_a_new_home_are_noticed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    queue = KnownQueue(tmp_path / "home", fill=False)
    start(queue)
    queue.messages = {name: queue.queued(name) for name in ("a", "b", "c")}
    start(queue)
    assert "warning" not in capfd.readouterr().err
    queue.rename(queue.messages["a"], 10**9)
    start(queue)
    warned = capfd.readouterr().err
    assert "queue-start: warning: of 3 messages looked at 1 have a wrong number, as after a restore: " in warned
    assert warned.endswith(f"/1000000000 has inode number {queue.messages['a']}; run queuectl check\n")
    queue.shift_but("a")
    with pytest.raises(Permanent, match="copied or restored"):
        start(queue)


def test_a_wrong_message_that_is_parked_does_not_keep_the_queue_from_starting(tmp_path: Path) -> None:
    queue = KnownQueue(tmp_path / "home", fill=False)
    start(queue)
    queue.rename(queue.queued("a"), 10**9)
    queue.put("corrupt", 10**9, b"it is known\n")
    start(queue)


def test_a_repair_that_is_not_finished_is_named(tmp_path: Path) -> None:
    queue = KnownQueue(tmp_path / "home")
    Path(queue.home.queue, "repair").mkdir()
    with pytest.raises(Permanent, match="a repair was not finished; run queuectl repair again"):
        start(queue)


def test_a_copy_that_queuectl_made_is_refused_until_it_takes_over(tmp_path: Path) -> None:
    queue = KnownQueue(tmp_path / "home")
    write_stamp(queue.home.queue, 3, myself(), "2026-11-22T20:15:00Z /var/queue")
    with pytest.raises(Permanent, match=r"it is a copy \('2026-11-22T20:15:00Z /var/queue'\).* repair --take-over"):
        start(queue)


def test_a_stamp_that_cannot_be_written_stops_no_mail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    queue = KnownQueue(tmp_path / "home")

    def full(*arguments: object) -> None:
        raise OSError(28, "no space")

    monkeypatch.setattr(queue_stamp, "write_stamp", full)
    start(queue)
    assert "unable to write" in capfd.readouterr().err


def test_a_stamp_that_is_a_link_is_named(tmp_path: Path) -> None:
    queue = KnownQueue(tmp_path / "home")
    Path(queue.home.queue, "stamp").symlink_to("/etc/passwd")
    with pytest.raises(Permanent, match="stamp: stamp is a symbolic link; remove it"):
        start(queue)
