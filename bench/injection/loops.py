"""Measures one loop of queue-inject and many at once, to show the effect of shared syncs."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from disk import read_disk
from injection.batches import ROOT, letter, new_home
from processes import NOTHING, Usage, wait_for_usage

_LOOP = 'left=$1 message=$2; shift 2; while [ "$left" -gt 0 ]; do left=$((left-1)); "$@" <"$message" || exit 1; done'
# A disk whose flush takes some milliseconds, one at a time. As in the journal of a file system, the next flush serves
# all processes that began to wait while one was running. Without sharing each process has a flush of its own.
_SLOW = """
import fcntl, mmap, os, sys, time
seconds, shares, state = float(sys.argv[1]) / 1000, sys.argv[2] == "share", sys.argv[3]
handle = os.open(state, os.O_RDWR)
begun = mmap.mmap(handle, 8)
def flush(descriptor, real=os.fsync):
    seen = int.from_bytes(begun[:8], "little")
    fcntl.lockf(handle, fcntl.LOCK_EX)
    now = int.from_bytes(begun[:8], "little")
    if not shares or now == seen:
        begun[:8] = (now + 1).to_bytes(8, "little")
        time.sleep(seconds)
    fcntl.lockf(handle, fcntl.LOCK_UN)
os.fsync = flush
from queue_inject.main import main
os._exit(main(["queue-inject", *sys.argv[4:]]))
"""


def run_loops(
    loops: int,
    each: int,
    words: list[str],
    message: Path,
    environment: dict[str, str],
    wrapped: Callable[[list[str]], list[str]] = lambda command: command,
) -> tuple[float, Usage]:
    """Run so many loops at once of a command with the message on its stdin; return seconds, and what all used.

    `wrapped` returns the command that is to be run in place of a loop.
    """
    command = ["sh", "-c", _LOOP, "sh", str(each), str(message), *words]
    begin = time.perf_counter()
    running = [subprocess.Popen(wrapped(command), env=environment) for _ in range(loops)]
    used = sum(map(wait_for_usage, running), NOTHING)
    return time.perf_counter() - begin, used


def loop_rate(top: Path, loops: int, each: int, slow: tuple[float, bool] | None = None) -> tuple[float, float]:
    """Return messages a second of so many loops at once, and the disk's flushes a message.

    With `slow`, milliseconds and whether flushes are shared, the disk is a simulated one.
    """
    message = top / "message"
    message.write_bytes(letter(0))
    program = str(ROOT / "bin/queue-inject")
    with new_home(top) as home:
        words = [sys.executable, program, "--home", home.path]
        if slow is not None:
            state, script = top / "state", top / "slow.py"
            state.write_bytes(bytes(8))
            script.write_text(_SLOW)
            words[1:2] = [str(script), str(slow[0]), "share" if slow[1] else "alone", str(state)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "USER": "ann"}
        before = read_disk(top)
        taken, _ = run_loops(loops, each, words, message, environment)
        return loops * each / taken, (read_disk(top) - before).flushes / (loops * each)
