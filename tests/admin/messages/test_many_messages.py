"""list, stat, hold and delete on very many messages: they stream, in little memory. Goals are for a million."""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from queue_base.home import Home
from support.processes.suite import program
from support.queues.home import make_home

COUNT = 100_000
SPAM = 2000


def fill(home: Home) -> None:
    """Make COUNT classified messages; their info and remote files are names of a few, to save memory."""
    queue, due = home.queue, time.time() + 86400
    shared = Path(queue, "pid", "shared")
    shared.mkdir()
    (shared / "info").write_bytes(b"Fuser@good.example\0")
    (shared / "spam").write_bytes(b"Fspam@bad.example\0")
    (shared / "remote").write_bytes(b"Tx@d.example\0")
    os.utime(shared / "remote", (due, due))
    for number in range(COUNT):
        new = f"{queue}/pid/new"
        handle = os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o640)
        message = os.fstat(handle).st_ino
        os.close(handle)
        os.rename(new, f"{queue}/mess/{message % 23}/{message}")
        info = "info" if number % (COUNT // SPAM) else "spam"
        os.link(shared / info, f"{queue}/info/{message % 23}/{message}")
        os.link(shared / "remote", f"{queue}/remote/{message % 23}/{message}")


def run(home: Home, *words: str, code: int = 0) -> tuple[list[str], float, int]:
    """Run queuectl; return its lines, the seconds of CPU until the first one, and its peak memory in MB."""
    with subprocess.Popen([*program("queuectl"), "--home", home.path, *words], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        first = os.read(process.stdout.fileno(), 1 << 16)
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        cpu = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        rest = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == code
    return (first + rest).decode().splitlines(), cpu, usage.ru_maxrss >> 10


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory in memory, where a file may have any number of names."""
    found = Path(tempfile.mkdtemp(prefix="queue-many-", dir="/dev/shm"))
    yield found
    shutil.rmtree(found)


@pytest.mark.exhaustive
def test_they_begin_at_once_and_take_little_memory_and_what_is_deleted_is_not_listed(place: Path) -> None:
    home = make_home(place / "home", split=23)
    fill(home)
    lines, first, memory = run(home, "list")
    assert len(lines) == COUNT and first < 1.0 and memory < 100
    lines, _, memory = run(home, "stat", code=111)  # queue-send does not run.
    assert f"messages in queue: {COUNT}" in lines and memory < 100
    lines, _, memory = run(home, "hold", "--sender", "spam@bad.example")
    assert lines[-1] == f"held {SPAM} messages" and memory < 100
    lines, _, _ = run(home, "list", "--state", "held")
    assert len(lines) == SPAM
    lines, _, memory = run(home, "delete", "--sender", "spam@bad.example")
    assert lines[-1] == f"deleted {SPAM} messages" and memory < 100
    lines, _, _ = run(home, "list")
    assert len(lines) == COUNT - SPAM
