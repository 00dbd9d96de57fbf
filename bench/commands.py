"""queuectl as it is measured on a large queue: time to the first line and in all, CPU time, and the most memory."""

import os
import signal
import subprocess
import time
from threading import Timer
from typing import NamedTuple

from queue_base.home import Home
from support.processes.suite import program


class Measured(NamedTuple):
    """Seconds of the clock to the first line (0 if there is none) and in all, of CPU, the most memory of a process in
    MB, lines, and the exit code."""

    first: float
    seconds: float
    cpu: float
    memory: int
    lines: int
    code: int


def measure(home: Home, *words: str, most: int | None = None, kill: float | None = None) -> Measured:
    """Run queuectl, and print what it took. With `most`, only so many lines are read, as by `head`.

    With `kill`, it is killed after so many seconds.
    """
    began = time.monotonic()
    process = subprocess.Popen(
        [*program("queuectl"), "--home", home.path, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    timer = Timer(kill or 0.0, process.kill)
    if kill is not None:
        timer.start()
    lines, first = 0, 0.0
    for _ in process.stdout:
        lines += 1
        if lines == 1:
            first = time.monotonic() - began
        if lines == most:
            break
    timer.cancel()
    process.stdout.close()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    cpu = used.ru_utime + used.ru_stime
    found = Measured(first, time.monotonic() - began, cpu, used.ru_maxrss >> 10, lines, process.returncode)
    shown = f"exit code {process.returncode}" if process.returncode >= 0 else signal.Signals(-process.returncode).name
    print(
        f"queuectl {' '.join(words)}{'' if most is None else f' | head -{most}'}: first line"
        f" {f'{first:.2f} s' if lines else '-'}, {found.seconds:.1f} s, {cpu:.2f} s of CPU, {found.memory} MB, {shown},"
        f" {lines} lines",
        flush=True,
    )
    return found
