"""Processes that are killed at random moments, and a supervisor that starts the suite again each time.

The moments come from a seeded generator. Every wait of a random length is what is tested: nothing else
here waits for a time.
"""

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from support.feeding import Bulk
from support.suite import Suite, wait_until

from queue_base.home import Home

DAEMONS = ("queue-send", "queue-todo", "queue-clean", "queue-remote", "queue-local", "queue-pickup")
ALL = "all at once"
LATEST = 0.6  # Seconds after the start of a process in which it is killed.


class Supervisor:
    """Starts the suite whenever it ends, as supervise does. Use it as a context manager."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self.runs: list[Suite] = [Suite(home)]
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> "Supervisor":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(60)
        for run in self.runs:
            self._close(run)

    @staticmethod
    def _close(run: Suite) -> None:
        """Make an end of a run. Every process of it holds its log open, so a log that has ended tells of them all."""
        if run._reader.is_alive():
            run.kill()
        run._reader.join(30)
        run.process.wait(30)
        assert run.process.stdout is not None
        run.process.stdout.close()

    def _watch(self) -> None:
        while not self._stopping.is_set():
            if self.runs[-1].process.poll() is None:
                self._stopping.wait(0.005)
            else:
                # The lock may be held for a moment by what is left of the last set; supervise waits a second.
                self._stopping.wait(0.05)
                if not self._stopping.is_set():
                    self.runs.append(Suite(self._home))

    @property
    def current(self) -> Suite:
        """The suite that runs now, or has just ended."""
        return self.runs[-1]

    def lines(self) -> list[str]:
        """Return the log of all runs."""
        return [line for run in self.runs for line in run.lines]

    def pid_of(self, name: str) -> int | None:
        """Return the pid of a daemon, None where it does not run now."""
        suite = self.current
        if name == "queue-send":
            words = Path(f"/proc/{suite.process.pid}/cmdline")
            return suite.process.pid if b"/queue-send" in _read(words) else None
        try:
            return suite.daemon(name)
        except AssertionError:
            return None

    def kill(self, name: str, moment: float) -> None:
        """Wait for a daemon, let it live for `moment` seconds, kill it, and wait for the suite's end."""
        wait_until(lambda: self.pid_of("queue-send" if name == ALL else name), why=f"{name} to run")
        suite = self.current
        threading.Event().wait(moment)
        if name == ALL:
            suite.kill()
            return
        pid = self.pid_of(name)
        if pid is not None and suite is self.current:
            os.kill(pid, signal.SIGKILL)
            wait_until(lambda: suite.process.poll() is not None, why=f"the end of the suite after the loss of {name}")

    def flush(self) -> None:
        """Make everything due now, as an administrator would."""
        pid = self.pid_of("queue-send")
        # Before its handlers are there, ALRM would end it.
        if pid is not None and any(line.startswith("status:") for line in self.current.lines):
            os.kill(pid, signal.SIGALRM)

    def stop(self) -> None:
        """End the last run with TERM; fail where a process of any run is left after that."""
        self._stopping.set()
        self._thread.join(60)
        assert self.current.stop() == 0
        for run in self.runs:
            run._reader.join(30)
            assert not run._reader.is_alive(), "a process of the suite outlives it"


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


class Rounds:
    """What is killed in which order, and when; counts what was done."""

    def __init__(self, seed: int, each: int, together: int) -> None:
        self.random = random.Random(seed)
        self.names = [*DAEMONS * each, *[ALL] * together]
        self.killed: Counter[str] = Counter()

    def kill_injectors(self, works: list[Bulk]) -> None:
        """Kill injectors, each at a random moment."""
        for work in works:
            threading.Event().wait(self.random.uniform(0, LATEST / len(works)))
            work.process.kill()

    def kill(self, supervisor: Supervisor, name: str) -> None:
        """Kill one daemon, or all of them, at a random moment."""
        supervisor.kill(name, self.random.uniform(0, LATEST))
        self.killed[name] += 1


def drain(supervisor: Supervisor, is_empty: Callable[[], bool], deadline: float = 90.0) -> None:
    """Flush until the queue is empty."""
    end = time.monotonic() + deadline
    while not is_empty():
        assert time.monotonic() < end, "\n".join(supervisor.lines()[-60:])
        supervisor.flush()
        threading.Event().wait(0.2)
