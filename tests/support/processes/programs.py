"""Programs run by a delivery's process, and a look at what of them still lives."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from queue_local.deliveries import Ended
from queue_local.shell_command import run_program
from support.local.deliveries import end_of
from support.processes.suite import wait_until

ENVIRONMENT = {b"PATH": b"/usr/local/bin:/usr/bin:/bin"}


def program(
    command: bytes, *, seconds: float = 60, environment: dict[bytes, bytes] = ENVIRONMENT
) -> Callable[[int], str]:
    """Return a delivery's work: run a program, say `CODE:OUTPUT`."""

    def work(message: int) -> str:
        ran = run_program(command, environment, message, seconds)
        return f"{ran.code}:{ran.output.decode()}"

    return work


def run_command(
    command: bytes,
    directory: Path,
    *,
    seconds: float = 60,
    environment: dict[bytes, bytes] = ENVIRONMENT,
    limit: int = 60,
) -> Ended:
    """Run a command on the file `message` in the directory, as a delivery of at most `limit` seconds."""
    message = directory / "message"
    if not message.exists():
        message.write_bytes(b"Subject: hello\n\nbody\n")
    return end_of(program(command, seconds=seconds, environment=environment), message, seconds=limit)


def pid_in(file: Path) -> int:
    """Return the number that a program writes into a file, once it is there."""
    wait_until(lambda: file.exists() and file.read_bytes().endswith(b"\n"), why=f"a pid in {file}")
    return int(file.read_text())


def lives(pid: int) -> bool:
    """Return whether a process runs; one that only waits to be reaped does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def wait_for_end(pid: int) -> None:
    """Wait until a process is gone."""
    wait_until(lambda: not lives(pid), why=f"the end of process {pid}")


def kill_left(pid: int) -> None:
    """Kill what a test has left running on purpose."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


class Stopwatch:
    """How long something took, in seconds."""

    def __init__(self) -> None:
        self._start = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._start
