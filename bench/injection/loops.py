"""Measures one loop of queue-inject and many at once, to show the effect of shared syncs."""

import os
import subprocess
import sys
import time
from pathlib import Path

from injection.batches import ROOT, letter, new_home

_LOOP = 'n=0; while [ $n -lt "$1" ]; do n=$((n+1)); "$2" "$3" --home "$4" <"$5" || exit 1; done'
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


def flushes(place: Path) -> int:
    """Return how many flushes the disk under a path has done, by /sys; 0 if it is unknown."""
    device = os.stat(place).st_dev
    try:
        fields = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat").read_text().split()
    except OSError:
        return 0
    return int(fields[15]) if len(fields) > 15 else 0


def loop_rate(top: Path, loops: int, each: int, slow: tuple[float, bool] | None = None) -> tuple[float, float]:
    """Return messages a second of so many loops at once, and the disk's flushes a message.

    With `slow`, milliseconds and whether flushes are shared, the disk is a simulated one.
    """
    message = top / "message"
    message.write_bytes(letter(0))
    program = str(ROOT / "bin/queue-inject")
    with new_home(top) as home:
        words = ["sh", "-c", _LOOP, "sh", str(each), sys.executable, program, home.path, str(message)]
        if slow is not None:
            state, script = top / "state", top / "slow.py"
            state.write_bytes(bytes(8))
            script.write_text(_SLOW)
            line = '"$2" "$3" "$6" "$7" "$8" --home "$4" <"$5"'
            words[2] = _LOOP.replace('"$2" "$3" --home "$4" <"$5"', line)
            words[6] = str(script)
            words += [str(slow[0]), "share" if slow[1] else "alone", str(state)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "USER": "ann"}
        before, begin = flushes(top), time.perf_counter()
        running = [subprocess.Popen(words, env=environment) for _ in range(loops)]
        codes = [process.wait() for process in running]
        taken = time.perf_counter() - begin
        assert codes == [0] * loops, codes
        return loops * each / taken, (flushes(top) - before) / (loops * each)
