"""What one run of queue-report takes: seconds, memory of Java as the kernel and as its collector see it."""

import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PAUSE = re.compile(r"(\d+)M->(\d+)M\(\d+M\)")


class Cost(NamedTuple):
    """Seconds; CPU seconds of all processes; MB: most that was resident, most heap before and after collections."""

    seconds: float
    cpu: float
    resident: int
    heap: int
    kept: int


def measure(command: list[str], scratch: Path) -> Cost:
    """Run a command that starts Java. Raises SystemExit with what it said where it fails."""
    collections = scratch / "collections"
    options = f"-Xlog:gc:file={collections}:none:filecount=0"
    begun, used = time.monotonic(), os.times()
    process = subprocess.Popen(
        command,
        env={**os.environ, "JDK_JAVA_OPTIONS": options},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    most, over = [0], threading.Event()
    watcher = threading.Thread(target=_watch, args=(process.pid, most, over))
    watcher.start()
    said = process.communicate()[0]
    seconds = time.monotonic() - begun
    over.set()
    watcher.join()
    if process.returncode:
        sys.exit(f"{' '.join(command)}: exit {process.returncode}\n{said}")
    now = os.times()
    cpu = now.children_user + now.children_system - used.children_user - used.children_system
    pauses = PAUSE.findall(collections.read_text()) if collections.exists() else []
    heap, kept = max((int(one) for one, _ in pauses), default=0), max((int(two) for _, two in pauses), default=0)
    return Cost(seconds, cpu, most[0], heap, kept)


def _watch(pid: int, most: list[int], over: threading.Event) -> None:
    """Keep in most[0] the largest peak of resident memory, in MB, of the process and its descendants."""
    while not over.wait(0.2):
        most[0] = max(most[0], sum(map(_resident, _family(pid))))


def _family(pid: int) -> list[int]:
    found = [pid]
    for one in found:
        try:
            found += map(int, Path(f"/proc/{one}/task/{one}/children").read_text().split())
        except OSError:
            continue
    return found


def _resident(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    match = re.search(r"VmRSS:\s+(\d+) kB", status)
    return int(match[1]) // 1024 if match else 0
