"""What the kernel knows of processes: CPU time, bytes written, memory and context switches, of one or of a whole tree.

A tree is a process, its descendants, and those of them that have ended and were waited for. A process that ends while
it is looked at counts as what is known of it then.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_TICKS = os.sysconf("SC_CLK_TCK")
_TRIES = 5


class Usage(NamedTuple):
    """CPU seconds, and bytes written to files on a disk, when they were written to the cache."""

    cpu: float
    written: int

    def __add__(self, other: object) -> "Usage":
        assert isinstance(other, Usage)
        return Usage(self.cpu + other.cpu, self.written + other.written)

    def __sub__(self, other: "Usage") -> "Usage":
        return Usage(self.cpu - other.cpu, self.written - other.written)


NOTHING = Usage(0.0, 0)


def family(pid: int) -> list[int]:
    """Return a process and its descendants."""
    found = [pid]
    for one in found:
        try:
            for task in os.listdir(f"/proc/{one}/task"):
                found += map(int, Path(f"/proc/{one}/task/{task}/children").read_text().split())
        except OSError:
            continue
    return found


def cpu_seconds(pid: int, ended: bool = False) -> float:
    """Return the CPU seconds of a process; with `ended` also those of its children that it has waited for."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11 : 15 if ended else 13])) / _TICKS


def bytes_written(pid: int) -> int:
    """Return what a process, and its children that it has waited for, have written to files on a disk."""
    try:
        found = re.search(r"^write_bytes: (\d+)", Path(f"/proc/{pid}/io").read_text(), re.MULTILINE)
    except OSError:
        return 0
    return int(found[1]) if found else 0


def tree_usage(pid: int) -> Usage:
    """Return what a tree has used. Where processes end or begin meanwhile, it is looked at again."""
    for _ in range(_TRIES):
        before = family(pid)
        used = sum((Usage(cpu_seconds(one, ended=True), bytes_written(one)) for one in before), NOTHING)
        if family(pid) == before:
            break
    return used


def resident(pid: int, peak: bool = False) -> int:
    """Return the bytes of memory that are resident, or were at most."""
    return _kilobytes(f"/proc/{pid}/status", "VmHWM" if peak else "VmRSS") << 10


def tree_memory(pid: int) -> int:
    """Return the bytes of memory of a tree; what processes share is divided among them (PSS)."""
    return sum(_kilobytes(f"/proc/{one}/smaps_rollup", "Pss") for one in family(pid)) << 10


def _kilobytes(path: str, name: str) -> int:
    try:
        found = re.search(rf"^{name}:\s+(\d+) kB", Path(path).read_text(), re.MULTILINE)
    except OSError:
        return 0
    return int(found[1]) if found else 0


def wakeups(pid: int) -> int:
    """Return how often the threads of a process have waited for something: its voluntary context switches."""
    total = 0
    for status in Path(f"/proc/{pid}/task").glob("*/status"):
        found = re.search(r"^voluntary_ctxt_switches:\s+(\d+)", status.read_text(), re.MULTILINE)
        total += int(found[1]) if found else 0
    return total


def named(pid: int, prefix: str) -> Iterator[tuple[str, int]]:
    """Yield name and pid of the processes of a tree that run a program whose name begins with `prefix`."""
    for one in family(pid):
        try:
            words = Path(f"/proc/{one}/cmdline").read_bytes().split(b"\0")[:4]
        except OSError:
            continue
        for word in words:
            name = os.path.basename(os.fsdecode(word))
            if name.startswith(prefix):
                yield name, one
                break


def wait_for_usage(process: "subprocess.Popen[bytes]") -> Usage:
    """Wait for a child to end, and return what it and its own children used. Raises SystemExit where it failed."""
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        words = process.args if isinstance(process.args, list) else [process.args]
        sys.exit(f"{' '.join(map(str, words))}: exit {process.returncode}")
    return Usage(used.ru_utime + used.ru_stime, used.ru_oublock * 512)
