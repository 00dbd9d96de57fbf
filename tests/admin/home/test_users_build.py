"""queuectl users build: users/cdb is made whole, or it stays; transcripts/users.txt has what it prints."""

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
