"""A build that dies: in this process, or as a program of its own that kills itself as a phase begins.

The program drops dates of a century ago, of which there are none, and puts small files together. Its words: the logs,
the lake, the phase, or `PHASE+` to be killed in the middle of it.
"""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

from queue_report.lake.build import Order, build
from queue_report.runtime.progress import Progress
from support.spark.runner import InProcess

ROOT = Path(__file__).resolve().parents[3]
# Into a phase, which takes some milliseconds.
MIDDLE = 0.004


class Crash(BaseException):
    """The driver dies here: nothing may clean up after it."""


class CrashAt(Progress):
    """Crashes as a phase begins; `seen` has the phases until then."""

    def __init__(self, phase: str | None = None) -> None:
        self.seen: list[str] = []
        self._phase = phase

    def phase(self, text: str) -> None:
        self.seen.append(text)
        if text == self._phase:
            raise Crash(text)


class KillAt(Progress):
    """Kills this process as a phase begins, or a little later; SIGKILL leaves it no time for anything."""

    def __init__(self, phase: str) -> None:
        self._phase = phase.removesuffix("+")
        self._delay = MIDDLE if phase.endswith("+") else 0.0

    def phase(self, text: str) -> None:
        if text == self._phase:
            if self._delay:
                threading.Timer(self._delay, _die).start()
            else:
                _die()


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def build_and_tidy(logs: Path, lake: Path, progress: Progress) -> None:
    """Build with all that a build can be asked for."""
    build(Order(str(logs), str(lake), compact=True, expire=36_525), InProcess(), progress)


def run_and_kill(logs: Path, lake: Path, phase: str) -> int:
    """Run such a driver and wait for its end. Returns its exit code, -9 where it was killed."""
    words = [sys.executable, "-m", "support.spark.killed_build", str(logs), str(lake), phase]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT}/spark:{ROOT}/tests"}
    return subprocess.run(words, env=environment, timeout=280).returncode


if __name__ == "__main__":
    build_and_tidy(Path(sys.argv[1]), Path(sys.argv[2]), KillAt(sys.argv[3]))
