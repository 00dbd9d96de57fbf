"""bin/demo: what it says about itself is true, whether it goes well, goes wrong or is stopped."""

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from support.processes.suite import wait_until

DEMO = Path(__file__).parents[1] / "demo.py"
DEADLINE = 90


class RunningDemo:
    """A demo whose temporary directory is `top` and whose output is read by us, a few kilobytes behind at most."""

    def __init__(self, top: Path) -> None:
        self.top = top
        reader, writer = os.pipe()
        # It cannot come to its end before we have read to where a test steps in: its output is longer than this.
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
        self.process = subprocess.Popen(
            [sys.executable, str(DEMO)], stdout=writer, stderr=writer, env={**os.environ, "TMPDIR": str(top)}
        )
        os.close(writer)
        self.output = os.fdopen(reader, "rb", buffering=0)
        self.read = b""

    def read_until(self, text: bytes) -> None:
        """Read up to a line that holds `text`."""
        while line := self.output.readline():
            self.read += line
            if text in line:
                return
        raise AssertionError(f"the demo ended before {text!r}: {self.read.decode()}")

    def finish(self) -> int:
        """Read the rest; return the exit code."""
        self.read += self.output.readall() or b""
        return self.process.wait(DEADLINE)

    def processes(self, program: str = "") -> list[psutil.Process]:
        """Return the processes that were started on its home, or those of one program."""
        found = []
        for process in psutil.process_iter():
            try:
                words = process.cmdline()
                ours = any(word.startswith(str(self.top)) for word in words)
                if ours and any(word.endswith(program) for word in words):
                    found.append(process)
            except psutil.Error:
                continue
        return found


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[RunningDemo]:
    top = tmp_path / "a place"
    top.mkdir()
    running = RunningDemo(top)
    yield running
    running.process.kill()
    running.process.wait(DEADLINE)
    running.output.close()
    for process in running.processes():
        process.kill()


def test_the_demo_comes_out_right_and_leaves_nothing(demo: RunningDemo) -> None:
    assert demo.finish() == 0, demo.read.decode("utf-8", "replace")
    assert b"NOT OK" not in demo.read
    assert b"\nAll 48 checks are ok, in " in demo.read
    assert list(demo.top.iterdir()) == []
    assert demo.processes() == []


def test_a_demo_that_loses_a_daemon_fails_and_names_the_home_that_it_keeps(demo: RunningDemo) -> None:
    demo.read_until(b"status: local 0/10")
    wait_until(lambda: demo.processes("/queue-remote"), why="queue-remote")
    demo.processes("/queue-remote")[0].kill()
    assert demo.finish() == 1
    assert b"alert: oh no! lost queue-remote connection! dying..." in demo.read
    assert b"NOT OK" in demo.read
    kept = next(demo.top.iterdir())
    assert f"The home is {kept}/home, the log {kept}/log.".encode() in demo.read
    assert "dying" in (kept / "log").read_text()
    assert (kept / "home" / "queue").is_dir()
    assert demo.processes() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_demo_that_is_stopped_leaves_nothing(demo: RunningDemo, number: signal.Signals) -> None:
    demo.read_until(b"status: local 0/10")
    demo.process.send_signal(number)
    assert demo.finish() == 128 + number
    assert list(demo.top.iterdir()) == []
    assert demo.processes() == []
