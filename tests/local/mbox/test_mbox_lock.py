"""The locks of an mbox: among ourselves, with procmail and Python's mailbox, held ones, stale ones."""

import errno
import fcntl
import mailbox
import os
import subprocess
import time
from pathlib import Path

import pytest

from queue_base.errors import Temporary
from queue_local.mbox import dotlock
from queue_local.mbox import mbox_lock as mbox_file
from queue_local.mbox.dotlock import STALE, Journal, take_dotlock
from support.local.mbox import deliver, delivering, finish, payloads, start
from support.plugins.amount import amount
from support.tools import need, need_root

LOCKED = r"File has been locked for 30 seconds straight\. \(#4\.3\.0\)"
PROCMAIL = 'for i in 1 2 3; do "$0" -f p@q -m LOCKSLEEP=1 DEFAULT="$1" /dev/null < "$2" || exit; done'
EACH = amount(6, 12)
PYTHON = """
import mailbox, sys, time
box = mailbox.mbox(sys.argv[1])
for _ in range(10):
    while True:
        try:
            box.lock()
            break
        except mailbox.ExternalClashError:
            time.sleep(0.001)
    box.add(b"Subject: python\\n\\nFrom here\\n")
    box.flush()
    box.unlock()
"""


@pytest.fixture
def box(tmp_path: Path) -> Path:
    """Return the path of an mbox with one message."""
    deliver(tmp_path / "box", b"first", tmp_path)
    return tmp_path / "box"


def age(path: Path, seconds: float) -> None:
    os.utime(path, (time.time() - seconds, time.time() - seconds))


def test_many_who_append_at_once_mix_nothing(box: Path, tmp_path: Path) -> None:
    bodies = []
    processes = []
    for number in range(3):
        message = tmp_path / f"message{number}"
        bodies.append(b"%d\n" % number * 40_000)
        message.write_bytes(bodies[-1])
        processes.append(start(delivering(box, message, EACH)))
    (tmp_path / "other").write_bytes(b"Subject: procmail\n\nFrom here\n")
    processes.append(start(["sh", "-c", PROCMAIL, need("procmail"), str(box), str(tmp_path / "other")]))
    processes.append(start([*delivering(box, box)[:2], PYTHON, str(box)]))
    for process in processes:
        finish(process)
    read = mailbox.mbox(box, create=False)
    subjects = [message["Subject"] for message in read]
    ours = [read.get_bytes(key) for key, message in read.items() if message["Subject"] is None]
    read.close()
    assert (subjects.count("procmail"), subjects.count("python"), len(ours)) == (3, 10, 3 * EACH + 1)
    for body in bodies:
        assert sum(message.endswith(b"\n" + body) for message in ours) == EACH
    assert not Path(f"{box}.lock").exists()


def test_a_lock_that_is_held_defers_after_a_time(box: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert mbox_file.LOCK_SECONDS == 30
    monkeypatch.setattr(mbox_file, "LOCK_SECONDS", 0.1)
    before = box.read_bytes()
    with box.open("rb") as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        with pytest.raises(Temporary, match=LOCKED):
            deliver(box, b"x", tmp_path)
    for content in (b"", b"0", b"%d\n" % os.getpid()):
        Path(f"{box}.lock").write_bytes(content)
        age(Path(f"{box}.lock"), STALE - 100)
        with pytest.raises(Temporary, match=LOCKED):
            deliver(box, b"x", tmp_path)
        assert Path(f"{box}.lock").read_bytes() == content
    assert box.read_bytes() == before


def test_another_user_s_lock_file_in_a_spool_of_all_keeps_no_mail_from_its_owner(tmp_path: Path) -> None:
    """Touched now and then it would keep it out for ever; and nobody but its maker could remove it."""
    need_root()
    spool = tmp_path / "spool"
    spool.mkdir()
    spool.chmod(0o1777)
    (spool / "box.lock").touch()
    os.chown(spool / "box.lock", 12345, 12345)
    deliver(spool / "box", b"x", tmp_path)
    assert payloads(spool / "box") == [b"x\n"] and (spool / "box.lock").stat().st_uid == 12345


@pytest.mark.parametrize("content", [b"", b"0", b"4711\n", b"x" * 100])
def test_a_lock_file_that_nobody_has_touched_for_long_is_broken(box: Path, tmp_path: Path, content: bytes) -> None:
    Path(f"{box}.lock").write_bytes(content)
    age(Path(f"{box}.lock"), STALE + 10)
    deliver(box, b"x", tmp_path)
    assert payloads(box) == [b"first\n", b"x\n"] and not Path(f"{box}.lock").exists()


def test_a_directory_in_the_lock_s_place_is_never_broken(
    box: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(mbox_file, "LOCK_SECONDS", 0.1)
    Path(f"{box}.lock").mkdir()
    age(Path(f"{box}.lock"), STALE + 10)
    with pytest.raises(Temporary, match=LOCKED):
        deliver(box, b"x", tmp_path)


def test_a_fifo_or_a_link_in_the_lock_s_place_holds_nobody_up_for_ever(box: Path, tmp_path: Path) -> None:
    lock = Path(f"{box}.lock")
    os.mkfifo(lock)
    age(lock, STALE + 10)
    deliver(box, b"x", tmp_path)
    (tmp_path / "target").write_bytes(b"kept")
    lock.symlink_to("target")
    os.utime(lock, (1, 1), follow_symlinks=False)
    deliver(box, b"y", tmp_path)
    assert payloads(box) == [b"first\n", b"x\n", b"y\n"]
    assert (tmp_path / "target").read_bytes() == b"kept" and not lock.is_symlink()


def test_a_delivery_waits_for_the_lock_and_goes_on(box: Path, tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"second")
    lock = take_dotlock(f"{box}.lock", alone=True)
    assert lock is not None
    with box.open("rb") as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        process = start(delivering(box, tmp_path / "other"))
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
    lock.close()
    finish(process)
    assert payloads(box) == [b"first\n", b"second\n"]


def test_a_file_that_takes_the_name_while_we_wait_gets_the_message(box: Path, tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"second")
    with box.open("rb") as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        process = start(delivering(box, tmp_path / "other"))
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
        (tmp_path / "fresh").touch()
        box.rename(tmp_path / "old")
        (tmp_path / "fresh").rename(box)
    finish(process)
    assert (payloads(tmp_path / "old"), payloads(box)) == ([b"first\n"], [b"second\n"])


def test_procmail_s_lockfile_takes_a_lock_of_ours_for_stale_as_any_other(tmp_path: Path) -> None:
    lock = take_dotlock(f"{tmp_path}/box.lock", alone=True)
    assert lock is not None
    lock.write(Journal(2**40 - 1, 2**32 - 1, 2**24 - 1, 2**24 - 1))
    age(tmp_path / "box.lock", 1000)
    words = [need("lockfile"), "-1", "-r", "0", "-s", "0", "-l", "900", str(tmp_path / "box.lock")]
    subprocess.run(words, check=True, capture_output=True, timeout=60)
    assert (tmp_path / "box.lock").read_bytes() == b"0"
    lock.close()
    assert (tmp_path / "box.lock").exists(), "it removed a lock that is somebody else's by now"


def test_a_lock_that_is_held_for_long_is_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = take_dotlock(f"{tmp_path}/box.lock", alone=True)
    assert lock is not None
    age(tmp_path / "box.lock", 1000)
    lock.touch()
    assert time.time() - (tmp_path / "box.lock").stat().st_mtime > 900
    monkeypatch.setattr(dotlock, "TOUCH", 0.0)
    lock.touch()
    assert time.time() - (tmp_path / "box.lock").stat().st_mtime < 100
    lock.close()


@pytest.mark.parametrize("missing", [["flock"], ["fcntl"], ["fcntl", "flock"]], ids=" and ".join)
def test_a_file_system_without_the_kernel_s_locks_needs_the_lock_file_and_without_one_the_other_does(
    box: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: list[str]
) -> None:
    def no_lock(handle: int, *how: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    def refused(path: str, alone: bool) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    for name in missing:
        monkeypatch.setattr(fcntl, name, no_lock)
    deliver(box, b"x", tmp_path)
    assert payloads(box) == [b"first\n", b"x\n"]
    monkeypatch.setattr(mbox_file, "take_dotlock", refused)
    if len(missing) == 1:
        deliver(box, b"y", tmp_path)
        assert payloads(box) == [b"first\n", b"x\n", b"y\n"]
        return
    with pytest.raises(Temporary, match=r"Unable to open .*/box: permission denied"):
        deliver(box, b"y", tmp_path)


def test_a_file_system_without_nameless_files_has_the_same_locks(
    box: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dotlock, "_NAMELESS", os.O_RDWR | os.O_DIRECTORY)
    deliver(box, b"x", tmp_path)
    lock = take_dotlock(f"{box}.lock", alone=True)
    assert lock is not None and take_dotlock(f"{box}.lock", alone=False) is None
    lock.close()
    assert payloads(box) == [b"first\n", b"x\n"] and not Path(f"{box}.lock").exists()
