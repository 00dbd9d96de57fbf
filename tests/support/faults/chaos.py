"""Processes that are killed at random moments, and a supervisor that starts the suite again each time.

The moments come from a seeded generator. Every wait of a random length is what is tested: nothing else
here waits for a time.
"""

import os
import random
import select
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Self

from queue_base.home import Home
from queue_base.queue.layout import open_layout
from support.processes.suite import Suite, wait_until
from support.send.feeding import Bulk

DAEMONS = (
    "queue-send", "queue-todo", "queue-clean", "queue-remote", "queue-local", "queue-pickup", "queue-intake",
)  # fmt: skip
ALL = "all at once"
LATEST = 0.6  # Seconds after the start of a process in which it is killed.
# Half of the kills wait for a new message, and come this many seconds after it: then something is going on everywhere.
STRIKE = 0.003


class Supervisor:
    """Starts the suite whenever it ends, as supervise does. Use it as a context manager. `log`: as of a Suite.

    `queue` is the name of a queue if the home has several; its set is started.
    """

    def __init__(self, home: Home, log: int = subprocess.PIPE, queue: str = "") -> None:
        self._home = home
        self._log = log
        self._options = ("--queue", queue) if queue else ()
        self._directories = open_layout((home.choose(queue) if queue else home).queue).directories("todo")
        self.runs: list[Suite] = [Suite(home, log=log, options=self._options)]
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(300)
        for run in self.runs:
            self._close(run)

    @staticmethod
    def _close(run: Suite) -> None:
        """Make an end of a run. Every process of it holds its log open, so a log that has ended tells of them all.

        A run that has ended, perhaps minutes ago, is not killed: another suite may have the number of its group by now.
        """
        if run._reader.is_alive() or run.process.poll() is None:
            run.kill()
        run._reader.join(300)
        run.process.wait(300)
        if run.process.stdout is not None:
            run.process.stdout.close()

    def _watch(self) -> None:
        while not self._stopping.is_set():
            if self.runs[-1].process.poll() is None:
                self._stopping.wait(0.005)
            else:
                # The lock may be held for a moment by what is left of the last set; supervise waits a second.
                self._stopping.wait(0.05)
                if not self._stopping.is_set():
                    self.runs.append(Suite(self._home, log=self._log, options=self._options))

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
        return next(iter(suite.found(name)), None)

    def kill(self, name: str, moment: float, strike: float | None) -> None:
        """Wait for a daemon, let it live for `moment` seconds, kill it, and wait for the suite's end.

        The loss of queue-ondemand ends nothing, so only its own end is waited for. It is started again after a pause.
        With `strike` it is killed that many seconds after the next new message, if one comes soon.
        """
        wait_until(lambda: self.pid_of("queue-send" if name == ALL else name), why=f"{name} to run")
        suite = self.current
        wait(moment)
        pid = self.pid_of(name)
        if strike is not None:
            self._wait_for_message()
            wait(strike)
        if name == ALL:
            suite.kill()
            return
        if pid is not None and suite is self.current and suite.process.poll() is None:
            os.kill(pid, signal.SIGKILL)
            wait_until(
                lambda: suite.process.poll() is not None or (name == "queue-ondemand" and pid not in suite.found(name)),
                why=f"the end of the suite after the loss of {name}",
            )

    def _wait_for_message(self) -> None:
        """Return as soon as todo/ has a file that it had not, or after LATEST seconds."""
        before, end = self._todo(), time.monotonic() + LATEST
        while time.monotonic() < end and not self._todo() - before:
            wait(0.0002)

    def _todo(self) -> set[str]:
        return {name for directory in self._directories for name in os.listdir(directory)}

    @property
    def is_up(self) -> bool:
        """Whether queue-send runs and listens to signals; before that, ALRM would end it."""
        lines = self.current.lines
        return self.pid_of("queue-send") is not None and any(line.startswith("status:") for line in lines)

    def flush(self) -> None:
        """Make everything due now, as an administrator would."""
        if self.is_up:
            self.current.signal(signal.SIGALRM)

    def stop(self) -> None:
        """End the last run with TERM; fail where a process of any run is left after that."""
        wait_until(lambda: self.is_up, why="the suite to be up after the last kill")
        self._stopping.set()
        self._thread.join(300)
        code = self.current.stop()
        assert code == 0, "\n".join([f"exit code {code}", *self.current.lines[-30:]])
        for run in self.runs:
            run._reader.join(300)
            assert not run._reader.is_alive(), "a process of the suite outlives it"


def wait(seconds: float) -> None:
    """Let a random time pass."""
    select.select([], [], [], seconds)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def in_turn(each: int, together: int) -> list[str]:
    """Return every daemon in turn, `each` times, and then all at once, `together` times."""
    return [*DAEMONS * each, *[ALL] * together]


class Rounds:
    """What is killed in which order, and when; counts what was done."""

    def __init__(self, seed: int, names: list[str]) -> None:
        self.random = random.Random(seed)
        self.names = names
        self.killed: Counter[str] = Counter()

    def kill_injectors(self, works: list[Bulk]) -> None:
        """Kill injectors, each at a random moment."""
        for work in works:
            wait(self.random.uniform(0, LATEST / len(works)))
            work.process.kill()

    def kill(self, supervisor: Supervisor, name: str) -> None:
        """Kill one daemon, or all of them, at a random moment."""
        strike = self.random.uniform(0, STRIKE) if self.random.random() < 0.5 else None
        supervisor.kill(name, self.random.uniform(0, LATEST), strike)
        self.killed[name] += 1


def drain(supervisor: Supervisor, is_empty: Callable[[], bool], deadline: float = 600.0) -> None:
    """Flush until the queue is empty."""
    end = time.monotonic() + deadline
    while not is_empty():
        assert time.monotonic() < end, "\n".join(supervisor.lines()[-60:])
        supervisor.flush()
        threading.Event().wait(0.2)
