"""What a build shows while it runs: on a terminal one line on stderr, drawn anew; otherwise nothing."""

import shutil
import sys
import threading
from types import TracebackType
from typing import Any

# Seconds between two looks at Spark, and the width of the bar.
PERIOD = 0.2
BAR = 24


class Progress:
    """Says nothing. phase(text) is called as each phase of a build begins."""

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        pass

    def watch(self, session: Any) -> None:
        """Follow the jobs of a session from now on."""

    def phase(self, text: str) -> None:
        """Begin a phase, such as `writing messages`."""


class TerminalProgress(Progress):
    """Draws the phase and how many tasks of Spark's are done in it."""

    def __init__(self) -> None:
        self._text = "starting"
        self._tracker: Any = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._draw_on, name="progress", daemon=True)

    def __enter__(self) -> "Progress":
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()
        sys.stderr.write("\r\033[K")
        sys.stderr.flush()

    def watch(self, session: Any) -> None:
        self._tracker = session.sparkContext.statusTracker()

    def phase(self, text: str) -> None:
        self._text = text

    def _draw_on(self) -> None:
        while not self._over.is_set():
            done, tasks = self._tasks()
            line = draw(self._text, done, tasks, shutil.get_terminal_size().columns)
            sys.stderr.write(f"\r{line}\033[K")
            sys.stderr.flush()
            self._over.wait(PERIOD)

    def _tasks(self) -> tuple[int, int]:
        """Return how many tasks are done and wanted of the stages that run now; 0, 0 for none."""
        done = tasks = 0
        try:
            for stage in self._tracker.getActiveStageIds() if self._tracker else ():
                information = self._tracker.getStageInfo(stage)
                if information:
                    done += information.numCompletedTasks
                    tasks += information.numTasks
        except Exception:
            # The session is ending; a line on the screen is no reason to fail.
            self._tracker = None
        return done, tasks


def draw(text: str, done: int, tasks: int, columns: int) -> str:
    """Return the line: `writing messages [######      ] 3/12`, cut to the terminal's width."""
    line = f"queue-report: {text}"
    if tasks:
        filled = BAR * done // tasks
        line = f"{line} [{'#' * filled}{' ' * (BAR - filled)}] {done}/{tasks}"
    return line[: max(columns - 1, 1)]


def make_progress() -> Progress:
    """Return what suits stderr."""
    return TerminalProgress() if sys.stderr.isatty() else Progress()
