"""What a bench starts, mounts and writes is gone when it ends, however it ends."""

import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from support.processes.suite import wait_until
from support.tools import need_private_mounts

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """
import subprocess, sys, time
from side_by_side.isolation import enter, run_isolated
place = enter()
if place is None:
    sys.exit(run_isolated(sys.argv[1]))
subprocess.Popen(["sleep", sys.argv[3]], start_new_session=True)
for name in ("disk", "tmpfs"):
    (place / name / "file").write_text("x")
print("ready", flush=True)
if sys.argv[2] == "wait":
    time.sleep(1000)
sys.exit(int(sys.argv[2]))
"""


class Bench:
    """A running bench, and what it leaves behind."""

    def __init__(self, directory: Path, end: str) -> None:
        script = directory.parent / f"{directory.name}.py"
        script.write_text(SCRIPT)
        self._mark = str(100000 + secrets.randbelow(10**9))
        path = os.pathsep.join(str(ROOT / name) for name in (".", "tests", "bench"))
        self.process = subprocess.Popen(
            [sys.executable, str(script), str(directory), end, self._mark],
            env={**os.environ, "PYTHONPATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"ready\n"

    def sleepers(self) -> list[int]:
        """Return the processes that it started."""
        return [each.pid for each in psutil.process_iter(["cmdline"]) if self._mark in (each.info["cmdline"] or [])]

    def end(self) -> int:
        """Return the exit code, once nothing runs any more."""
        code = self.process.wait(60)
        wait_until(lambda: not self.sleepers(), why="the end of its processes")
        return code


@contextmanager
def running(directory: Path, end: str) -> Iterator[Bench]:
    need_private_mounts()
    bench = Bench(directory, end)
    with bench.process:
        try:
            yield bench
        finally:
            bench.process.kill()


@pytest.mark.parametrize("code", [0, 7])
def test_nothing_is_left_at_its_end_and_its_exit_code_is_that_of_the_inner_process(tmp_path: Path, code: int) -> None:
    with running(tmp_path, str(code)) as bench:
        assert bench.end() == code
        assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("whole_group", [True, False], ids=["terminal", "process"])
def test_nothing_is_left_after_a_signal(tmp_path: Path, number: signal.Signals, whole_group: bool) -> None:
    with running(tmp_path, "wait") as bench:
        assert bench.sleepers()
        if whole_group:
            os.killpg(bench.process.pid, number)
        else:
            bench.process.send_signal(number)
        assert bench.end() == 128 + number
        assert os.listdir(tmp_path) == []


def test_after_a_kill_no_process_and_no_mount_is_left(tmp_path: Path) -> None:
    with running(tmp_path, "wait") as bench:
        bench.process.kill()
        assert bench.end() == -signal.SIGKILL
        # Only what was on the disk stays.
        [place] = tmp_path.iterdir()
        assert sorted(str(path.relative_to(place)) for path in place.rglob("*")) == ["disk", "disk/file", "tmpfs"]
        assert str(place) not in Path("/proc/self/mounts").read_text()
