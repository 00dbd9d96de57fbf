"""queuectl users build: users/cdb is made whole, from a users/assign that nobody else can write, or it stays."""

import fcntl
import os
import subprocess
from pathlib import Path

import pytest

from queue_base.home import Home
from support.faults.strace import read_trace, strace_command
from support.local.assigned import assign
from support.processes.suite import program, wait_until
from support.tools import need_root

LINE = "=joe:joe:507:100:/home/joe:::\n"


@pytest.fixture
def users(home: Home) -> Path:
    """Return users/ with a good cdb in it."""
    return assign(home, LINE).parent


def build(home: Home, *wrapper: str) -> subprocess.CompletedProcess[str]:
    words = [*program("queuectl"), "--home", home.path, "users", "build"]
    return subprocess.run([*wrapper, *words], capture_output=True, text=True, timeout=60, check=False)


def test_it_is_made_for_all_to_read_and_says_how_many(home: Home, users: Path) -> None:
    (users / "assign").write_text(LINE * 3 + ".\n")
    before = (users / "cdb").stat().st_ino
    done = build(home)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"made {users}/cdb: 3 assignments\n", "")
    made = (users / "cdb").stat()
    assert (made.st_mode & 0o777, made.st_uid) == (0o644, os.geteuid()) and made.st_ino != before
    assert sorted(path.name for path in users.iterdir()) == ["assign", "cdb"]


def test_a_wrong_line_is_named_and_the_old_file_stays(home: Home, users: Path) -> None:
    before = (users / "cdb").read_bytes()
    (users / "assign").write_text(LINE + "=ann:ann:x:100:/home/ann:::\n.\n")
    done = build(home)
    assert (done.returncode, done.stdout) == (100, "")
    assert f"{users}/assign line 2: the uid is not a number" in done.stderr and "nothing has changed" in done.stderr
    assert (users / "cdb").read_bytes() == before


def test_without_users_assign_there_is_nothing_to_build(home: Home, users: Path) -> None:
    (users / "assign").unlink()
    assert build(home).returncode == 111
    assert f"unable to read {users}/assign: no such file" in build(home).stderr
    assert (users / "cdb").exists()


def test_an_assignment_to_root_is_made_with_a_warning(home: Home, users: Path) -> None:
    (users / "assign").write_text(LINE + "+adm-:root:0:0:/root:-::\n.\n")
    done = build(home)
    assert done.returncode == 0
    assert done.stderr == "queuectl: warning: +adm- has uid 0; nothing is delivered as root, its mail is deferred\n"


@pytest.mark.parametrize("name", [".", "assign"])
def test_what_others_may_write_is_not_believed(home: Home, users: Path, name: str) -> None:
    (users / name).chmod(0o775)
    done = build(home)
    assert done.returncode == 100 and "its group or others may write there" in done.stderr


def test_what_belongs_to_somebody_else_is_not_believed(home: Home, users: Path) -> None:
    need_root()
    os.chown(users / "assign", 12345, 0)
    assert "it belongs to uid 12345; it must belong to root" in build(home).stderr


def test_the_new_file_is_safe_before_it_has_the_name_and_the_name_before_the_end(
    home: Home, users: Path, tmp_path: Path
) -> None:
    words = [*program("queuectl"), "--home", home.path, "users", "build"]
    subprocess.run(strace_command(tmp_path / "trace", words), check=True, timeout=120, capture_output=True)
    steps = []
    for call in read_trace(tmp_path / "trace"):
        if call.name == "fsync":
            steps.append(f"sync {os.path.relpath(call.descriptor(0)[1], users)}")
        elif call.name in ("rename", "renameat", "renameat2"):
            steps.append("rename")
    renamed = steps.index("rename")
    assert "sync cdb.new" in steps[:renamed] and "sync ." in steps[renamed:], steps


@pytest.mark.parametrize("fault", ["fsync:error=EIO:when=1", "write:error=ENOSPC:when=1", "renameat:error=EIO:when=1"])
def test_a_disk_in_trouble_leaves_the_old_file(home: Home, users: Path, tmp_path: Path, fault: str) -> None:
    before = (users / "cdb").read_bytes()
    (users / "assign").write_text(LINE * 2 + ".\n")
    words = [*program("queuectl"), "--home", home.path, "users", "build"]
    traced = strace_command(tmp_path / "trace", words, fault)
    done = subprocess.run(traced, capture_output=True, timeout=120, check=False)
    assert done.returncode == 111, done
    assert (users / "cdb").read_bytes() == before
    assert build(home).returncode == 0


def test_two_builds_go_one_after_the_other(home: Home, users: Path) -> None:
    handle = os.open(users, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    before = (users / "cdb").stat().st_ino
    words = [*program("queuectl"), "--home", home.path, "users", "build"]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL) as running:
        wait_until(lambda: is_blocked(running.pid), why="a build that waits for the lock")
        assert (users / "cdb").stat().st_ino == before
        os.close(handle)
        assert running.wait(30) == 0
    assert (users / "cdb").stat().st_ino != before


def is_blocked(pid: int) -> bool:
    """Return whether a process waits for a lock: its line in /proc/locks has `->`."""
    return any("->" in line and f" {pid} " in line for line in Path("/proc/locks").read_text().splitlines())
