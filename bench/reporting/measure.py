"""What one run of queue-report takes: seconds, memory of Java as the kernel and as its collector see it."""

import os
import re
import resource
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple

from processes import cpu_seconds, family, resident

ROOT = Path(__file__).resolve().parents[2]
PAUSE = re.compile(r"(\d+)M->(\d+)M\(\d+M\)")


class Cost(NamedTuple):
    """Seconds; CPU seconds of all processes; MB: most that was resident, most heap before and after collections.

    disk: MB, the most that was in the scratch directory at once.
    """

    seconds: float
    cpu: float
    resident: int
    heap: int
    kept: int
    disk: int
    said: str = ""


def measure(command: list[str], scratch: Path) -> Cost:
    """Run a command; Java, if it starts that, keeps its own files in scratch/local. said: what it printed.

    Raises SystemExit with what it said where it fails.
    """
    collections = scratch / "collections"
    options = f"-Xlog:gc:file={collections}:none:filecount=0"
    begun = time.monotonic()
    before = _children_seconds()
    process = subprocess.Popen(
        command,
        env={**os.environ, "JDK_JAVA_OPTIONS": options},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    most, over = Most(), threading.Event()
    watcher = threading.Thread(target=_watch, args=(process.pid, scratch / "local", most, over))
    watcher.start()
    said = process.communicate()[0]
    seconds = time.monotonic() - begun
    over.set()
    watcher.join()
    if process.returncode:
        sys.exit(f"{' '.join(command)}: exit {process.returncode}\n{said}")
    # What was waited for is exact, also of a run that is over before the second look.
    cpu = max(_children_seconds() - before, sum(most.seconds.values()))
    pauses = PAUSE.findall(collections.read_text()) if collections.exists() else []
    heap, kept = max((int(one) for one, _ in pauses), default=0), max((int(two) for _, two in pauses), default=0)
    return Cost(seconds, cpu, most.resident, heap, kept, most.disk >> 20, said)


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Most:
    """What a process and its descendants took: most MB resident, most bytes on the disk, by pid its last CPU seconds.

    Nobody waits for Java when Python ends, so the kernel counts its time for nobody.
    """

    def __init__(self) -> None:
        self.resident = self.disk = 0
        self.seconds: dict[int, float] = {}


def _watch(pid: int, scratch: Path, most: Most, over: threading.Event) -> None:
    while not over.wait(0.05):
        together = family(pid)
        most.resident = max(most.resident, sum(map(resident, together)) >> 20)
        most.disk = max(most.disk, _size(scratch))
        most.seconds |= {one: seconds for one in together if (seconds := cpu_seconds(one))}


def _size(directory: Path) -> int:
    """Return the bytes of all files in a directory, whatever is removed meanwhile."""
    total = 0
    for place, _, names in os.walk(directory):
        for name in names:
            try:
                total += os.lstat(f"{place}/{name}").st_size
            except OSError:
                continue
    return total
