"""A driver that is killed: run as a program, it builds a lake from a script and kills itself as a phase begins.

It drops dates of a century ago, of which there are none, and puts files together, two of a date and host being enough.

Words: the lake, the number of batches in its script, the phase, or `PHASE+` to be killed in the middle of it.
"""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from spark.lake import compact
from spark.runtime.progress import Progress
from support.spark.logs.scripted_logs import Script, ScriptedLake, message, pending

ROOT = Path(__file__).resolve().parents[3]
# Into a phase, which takes some milliseconds.
MIDDLE = 0.004


def script(batches: int) -> Script:
    """Return so many batches; each ends a message that was pending, and has another pending."""
    return [{"messages": [message(f"{n}.1")], "pending": [pending(f"{n + 1}.1")]} for n in range(batches)]


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


def build_and_tidy(lake: ScriptedLake, patch: pytest.MonkeyPatch, progress: Progress) -> None:
    """Build with all that a build can be asked for."""
    patch.setattr(compact, "FEW", 1)
    lake.build(progress, compact=True, expire=36_525)


def run_and_kill(lake: str, batches: int, phase: str) -> int:
    """Run such a driver and wait for its end. Returns its exit code, -9 where it was killed."""
    words = [sys.executable, "-m", "support.spark.killed_build", lake, str(batches), phase]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT}/tests"}
    return subprocess.run(words, env=environment, timeout=280).returncode


if __name__ == "__main__":
    with pytest.MonkeyPatch.context() as patch:
        made = ScriptedLake(sys.argv[1], patch)
        made.script = script(int(sys.argv[2]))
        build_and_tidy(made, patch, KillAt(sys.argv[3]))
