"""Daemons' work in threads that stop before each system call on the queue, so that a test decides what happens next.

Only one thread runs at a time: `Paced.step` lets its thread go on to its next call, or to the end of its work. There
the call may be refused (an OSError), or the process be killed.
"""

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from queue_base.daemon.disk_thread import Result

# What a crash may come before. fsync does nothing: these tests lose no power.
CALLS = ("open", "unlink", "pwrite", "fsync", "link", "rename", "utime", "lstat", "stat", "scandir")
CHANGES = ("open", "unlink", "pwrite", "fsync", "link", "rename", "utime")


class Killed(BaseException):
    """The process is killed."""


class Paced:
    """A thread that does one piece of work at a time. `at` is the call before which it has stopped."""

    _by_thread: ClassVar[dict[int, "Paced"]] = {}

    def __init__(self) -> None:
        self.at = ""
        self._go, self._stopped = threading.Semaphore(0), threading.Semaphore(0)
        self._work: Callable[[], object] | None = None
        self._verdict: BaseException | None = None
        self._error: BaseException | None = None
        self._dead = self._closing = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def busy(self) -> bool:
        """Whether a piece of work has not ended."""
        return self._work is not None

    def begin(self, work: Callable[[], object]) -> None:
        assert self._work is None
        self._work = work

    def step(self, verdict: BaseException | None = None) -> None:
        """Go on until the next call or the end; `verdict` is raised by the call before which it has stopped."""
        assert self._work is not None
        self._verdict = verdict
        self._go.release()
        self._stopped.acquire()
        error, self._error = self._error, None
        if error is not None:
            raise error

    def kill(self) -> None:
        """Nothing more of the work is done."""
        self._dead = True
        while self._work is not None and self.at:
            self.step(Killed())
        self._work = None
        self._dead = False

    def close(self) -> None:
        self.kill()
        self._closing = True
        self._go.release()
        self._thread.join()

    def _run(self) -> None:
        self._by_thread[threading.get_ident()] = self
        while True:
            self._go.acquire()
            if self._closing:
                del self._by_thread[threading.get_ident()]
                return
            assert self._work is not None
            try:
                self._work()
            except Killed:
                pass
            except BaseException as error:
                self._error = error
            self._work, self.at = None, ""
            self._stopped.release()

    def _pause(self, call: str) -> None:
        if self._dead:
            raise Killed
        self.at = call
        self._stopped.release()
        self._go.acquire()
        verdict, self._verdict = self._verdict, None
        if verdict is not None:
            raise verdict


def _hook(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **named: Any) -> Any:
        paced = Paced._by_thread.get(threading.get_ident())
        if paced is not None and not str(args[0]).startswith("/proc"):
            paced._pause(name)
        return None if name == "fsync" else real(*args, **named)

    return call


@contextmanager
def paced_calls() -> Iterator[None]:
    """Have the calls of Paced threads stop."""
    kept = {name: getattr(os, name) for name in CALLS}
    for name, real in kept.items():
        setattr(os, name, _hook(name, real))
    try:
        yield
    finally:
        for name, real in kept.items():
            setattr(os, name, real)


class StepDisk:
    """A DiskThread whose work a test does step by step."""

    def __init__(self, paced: Paced) -> None:
        self._paced = paced
        self._pieces: deque[tuple[Callable[[], None], Callable[[Result], None]]] = deque()
        self._results: deque[tuple[Callable[[Result], None], Result]] = deque()

    def submit(self, work: Callable[[], None], then: Callable[[Result], None], syncs: bool = True) -> None:
        self._pieces.append((work, then))
        self._begin()

    def _begin(self) -> None:
        if self._pieces and not self._paced.busy:
            self._paced.begin(self._do)

    def _do(self) -> None:
        work, then = self._pieces[0]
        result: Result = None
        try:
            work()
        except OSError as error:
            result = error
        self._pieces.popleft()
        self._results.append((then, result))

    def step(self, verdict: BaseException | None = None) -> None:
        """Do a step of the oldest piece of work."""
        self._paced.step(verdict)
        self._begin()

    @property
    def working(self) -> bool:
        """Whether `step` has something to do."""
        return self._paced.busy

    @property
    def busy(self) -> bool:
        return bool(self._pieces or self._results)

    def prepare(self, poll: object, now: float) -> float:
        return 0.0 if self._results else 3600.0

    def run(self, ready: dict[int, int], now: float) -> None:
        for _ in range(len(self._results)):
            then, result = self._results.popleft()
            then(result)
