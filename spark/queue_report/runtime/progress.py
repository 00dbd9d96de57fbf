"""What a build shows on stderr while it runs: on a terminal one line, drawn anew; elsewhere a line each minute."""

import shutil
import sys
import threading
import time
from types import TracebackType
from typing import Any, NamedTuple, TextIO

# Seconds between two lines on a terminal, and elsewhere; and the width of the bar.
PERIOD, MINUTE = 0.2, 60.0
BAR = 24


class Progress:
    """Says nothing. phase(text) is called as each phase of a build begins."""

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        pass

    def watch(self, session: Any) -> None:
        """Follow the tasks of a session from now on."""

    def phase(self, text: str) -> None:
        """Begin a phase, such as `matching lines`."""

    def expect(self, size: int) -> None:
        """Say how many bytes the tasks of this phase read, in about equal parts."""


class Phase(NamedTuple):
    """A phase at work: what it does, since when (monotonic), and of how many bytes."""

    text: str
    begun: float
    size: int = 0


class LiveProgress(Progress):
    """Tells the phase, how many tasks of Spark's are done in it, the bytes, their rate, and how long the rest takes."""

    def __init__(self, out: TextIO, on_terminal: bool) -> None:
        self._out, self._on_terminal = out, on_terminal
        self._phase = Phase("starting", time.monotonic())
        self._tracker: Any = None
        # What a Connect server has told last; it tells by itself.
        self._told = (0, 0)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._tell_on, name="progress", daemon=True)

    def __enter__(self) -> "Progress":
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()
        if self._on_terminal:
            self._write("\r\033[K")

    def watch(self, session: Any) -> None:
        if type(session).__module__.startswith("pyspark.sql.connect"):
            session.registerProgressHandler(self._hear)
        else:
            self._tracker = session.sparkContext.statusTracker()

    def phase(self, text: str) -> None:
        self._phase, self._told = Phase(text, time.monotonic()), (0, 0)

    def expect(self, size: int) -> None:
        self._phase = self._phase._replace(size=size)

    def _hear(self, stages: Any, **_: Any) -> None:
        running = list(stages or ())
        self._told = (sum(one.num_completed_tasks for one in running), sum(one.num_tasks for one in running))

    def _tell_on(self) -> None:
        if not self._on_terminal:
            while not self._over.wait(MINUTE):
                self._write(f"{describe(self._phase, *self._tasks(), time.monotonic())}\n")
            return
        while not self._over.is_set():
            line = describe(self._phase, *self._tasks(), time.monotonic(), BAR)
            self._write(f"\r{line[: max(shutil.get_terminal_size().columns - 1, 1)]}\033[K")
            self._over.wait(PERIOD)

    def _write(self, text: str) -> None:
        try:
            self._out.write(text)
            self._out.flush()
        except OSError:
            # Who reads it is gone; a line of progress is no reason to fail.
            self._over.set()

    def _tasks(self) -> tuple[int, int]:
        """Return how many tasks are done and wanted of the stages that run now; 0, 0 for none."""
        done, tasks = self._told
        try:
            for stage in self._tracker.getActiveStageIds() if self._tracker else ():
                information = self._tracker.getStageInfo(stage)
                if information:
                    done += information.numCompletedTasks
                    tasks += information.numTasks
        except Exception:
            # The session is ending.
            self._tracker = None
        return done, tasks


def describe(phase: Phase, done: int, tasks: int, now: float, bar: int = 0) -> str:
    """Return the line: `queue-report: matching lines [######      ] 3/12, 15 of 45 MB, 5.0 MB/s, 6 s left`."""
    line = f"queue-report: {phase.text}"
    if not tasks:
        return line
    filled = bar * done // tasks
    line = f"{line} [{'#' * filled}{' ' * (bar - filled)}] {done}/{tasks}" if bar else f"{line} {done}/{tasks}"
    seconds = now - phase.begun
    if not phase.size or not done or seconds <= 0:
        return line
    read = phase.size * done / tasks / 1e6
    left = seconds * (tasks - done) / done
    return f"{line}, {read:.0f} of {phase.size / 1e6:.0f} MB, {read / seconds:.1f} MB/s, {left:.0f} s left"


def make_progress() -> Progress:
    """Return what suits stderr."""
    return LiveProgress(sys.stderr, sys.stderr.isatty())
