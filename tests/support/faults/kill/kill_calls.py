"""Kills a program that runs once, at each system call that is its own and not the interpreter's, with strace's faults.

As in killing.py: SIGKILL comes before a call has any effect, SIGUSR1 after it. A call is known by its name and
how many of that name there were before it, from the start of the process on; threads and children are not followed.
"""

import os
import re
import signal
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from support.tools import need

# A test's `every`: some dozens of points, or all of them.
EVERY = pytest.mark.parametrize(
    "every", [pytest.param(False, marks=pytest.mark.timeout(1800)), pytest.param(True, marks=pytest.mark.exhaustive)]
)
AT_ONCE = 4  # Programs at the same time: for much of its time one waits.
TRIES = 5  # Runs for a point that is not reached: how often a program waits, say, differs from run to run.
# Every program of ours sets its umask first, and Python does not.
_BEGIN = "umask("
# Behind ours is what test_accounts.py says.
_PATH = os.pathsep.join(filter(None, (str(Path(__file__).parents[4]), os.environ.get("PYTHONPATH"))))
_CALL = re.compile(r"(\w+)\(")
_KILLED = re.compile(r"\+\+\+ killed by SIG(KILL|USR1)")
# What changes the disk, makes it safe, or is heard by somebody else.
_CHANGING = re.compile(
    r"(write|pwrite64|link|linkat|unlink|rename|renameat2|fsync|fdatasync|sync_file_range|ftruncate|mkdir|fchmod|utimensat|clone3?"
    r"|vfork|exit_group)\(|openat\(.*(O_CREAT|O_TMPFILE)"
)
# One of so many other calls is for every test run.
_STEP = 8


class Point(NamedTuple):
    """The `number`-th call of a name, from 1; `shown` is the call as a person wants to read it."""

    call: str
    number: int
    after: bool
    shown: str

    def __str__(self) -> str:
        return f"{'after' if self.after else 'before'} {self.call} {self.number}: {self.shown}"

    @property
    def changes(self) -> bool:
        """Whether the call changes something."""
        return bool(_CHANGING.match(self.shown))


class Ended(NamedTuple):
    """How a program ended: its exit code, negative for a signal, what it wrote on stdout, whether a point killed it."""

    code: int
    output: bytes
    killed: bool
    calls: list[str]


def traced(point: Point | None, trace: Path | None) -> list[str]:
    """Return strace and its options, to kill a program at a point, or to trace all of it, or no words to leave it."""
    if trace is None:
        return []
    words = [need("strace"), "-q", "-y", "-s", "120", "-e", "signal=KILL,USR1", "-o", str(trace)]
    if point is None:
        return [*words, "--"]
    number = signal.SIGUSR1 if point.after else signal.SIGKILL
    fault = f"inject={point.call}:signal={number.name}:when={point.number}"
    return [*words, "-e", f"trace={point.call}", "-e", fault, "--"]


def steady_environment() -> dict[str, str]:
    """Return an environment in which a program makes the same calls in each run, and a script finds the suite."""
    return {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": _PATH}


def read_end(code: int, output: bytes, trace: Path | None) -> Ended:
    """Return the end of a program, and remove its trace."""
    calls: list[str] = []
    if trace is not None:
        calls = trace.read_text("utf-8", "replace").splitlines()
        trace.unlink()
    return Ended(code, output, any(_KILLED.search(line) for line in calls[-1:]), calls)


def run(
    command: list[str], point: Point | None, trace: Path | None, data: bytes = b"", **environment: str
) -> Ended:
    """Run a command with `data` in a file on its stdin, and wait for it and for all that it has started.

    Without a trace it is not followed, so it makes haste.
    """
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.seek(0)
        done = subprocess.run(
            [*traced(point, trace), *command],
            stdin=file,
            # Whoever it has started has its stderr, whose end is waited for.
            capture_output=True,
            env={**steady_environment(), "USER": "ann", **environment},
            timeout=300,
            check=False,
        )
    return read_end(done.returncode, done.stdout, trace)


def own_points(calls: list[str], every: bool) -> list[Point]:
    """Return the points in the calls of a run in which nobody was killed: each, or some dozens of them.

    Those dozens are the ones before what changes something, and some others. After a call that changes nothing all is
    as it was before it, so that is no point.
    """
    first = next(at for at, line in enumerate(calls) if line.startswith(_BEGIN))
    found: list[Point] = []
    counts: Counter[str] = Counter()
    for at, line in enumerate(calls):
        if name := _CALL.match(line):
            counts[name[1]] += 1
            if at > first:
                found += [Point(name[1], counts[name[1]], after, line[:160]) for after in (False, True)]
    # What ends a process ends it before a signal can.
    found = [point for point in found if not point.after or (point.changes and point.call != "exit_group")]
    assert len(found) > 40, found
    if every:
        return found
    others = [point for point in found if not point.changes][::_STEP]
    return [point for point in found if (point.changes and not point.after) or point in others]


def at_each(points: list[Point], work: Callable[[int, Point], tuple[bool, list[str]]]) -> list[str]:
    """Call `work` with each point and a number, some at a time; return all that was wrong, with the point.

    It says whether the program was killed, and what was wrong. Where it was not killed it is called once more, with
    another number. A tenth of the points need not be reached: none of fewer than ten.
    """

    def reach(place: int) -> tuple[bool, list[str]]:
        for attempt in range(TRIES):
            killed, wrong = work(TRIES * place + attempt, points[place])
            if killed or wrong:
                break
        return killed, wrong

    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = list(pool.map(reach, range(len(points))))
    missed = [f"{point}: nobody was killed" for point, (killed, _) in zip(points, found, strict=True) if not killed]
    wrong = [f"{point}: {each}" for point, (_, wrong) in zip(points, found, strict=True) for each in wrong]
    return wrong + (missed if len(missed) > len(points) // 10 else [])
