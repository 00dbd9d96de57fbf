"""What a command shows on stderr while it runs: on a terminal one line, drawn anew; elsewhere a line each minute.

    queue-report: matching lines [############            ] 3/6, 225 of 450 MB, 25 MB/s, 9 s left
"""

import shutil
import sys
import threading
import time
from types import TracebackType
from typing import Any

# Seconds between two looks at Spark, between two lines where there is no terminal, and the width of the bar.
PERIOD = 0.2
MINUTE = 60.0
BAR = 24


class Progress:
    """Says nothing. phase(text) is called as each phase begins."""

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        pass

    def watch(self, session: Any) -> None:
        """Follow the stages of a session from now on."""

    def phase(self, text: str) -> None:
        """Begin a phase, such as `matching lines`."""

    def amount(self, size: int) -> None:
        """Tell how many bytes the tasks of this phase have to read."""


class ShownProgress(Progress):
    """Shows the phase, how many tasks of Spark's are done in it, and when it will end, to a terminal or to a log."""

    def __init__(self, terminal: bool) -> None:
        self._terminal = terminal
        self._text, self._size, self._begun = "starting", 0, time.monotonic()
        self._tracker: Any = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._show_on, name="progress", daemon=True)

    def __enter__(self) -> "Progress":
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()
        if self._terminal:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()

    def watch(self, session: Any) -> None:
        # A session of Spark Connect has no tracker: its phases are shown without their tasks.
        context = getattr(session, "_sc", None)
        self._tracker = context.statusTracker() if context is not None else None

    def phase(self, text: str) -> None:
        self._text, self._size, self._begun = text, 0, time.monotonic()

    def amount(self, size: int) -> None:
        self._size = size

    def _show_on(self) -> None:
        while not self._over.wait(0 if self._terminal else MINUTE):
            if self._terminal:
                sys.stderr.write(f"\r{self._line(shutil.get_terminal_size().columns)}\033[K")
            else:
                sys.stderr.write(f"{self._line(1 << 10)}\n")
            sys.stderr.flush()
            if self._terminal:
                self._over.wait(PERIOD)

    def _line(self, columns: int) -> str:
        done, tasks = self._tasks()
        return draw(self._text, done, tasks, columns, self._size, time.monotonic() - self._begun)

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


def draw(text: str, done: int, tasks: int, columns: int, size: int = 0, seconds: float = 0.0) -> str:
    """Return the line, cut to the terminal's width. size: bytes of all tasks, which have about the same each."""
    line = f"queue-report: {text}"
    if tasks:
        filled = BAR * done // tasks
        line = f"{line} [{'#' * filled}{' ' * (BAR - filled)}] {done}/{tasks}"
    if tasks and size:
        read = size * done // tasks
        line += f", {read / 1e6:,.0f} of {size / 1e6:,.0f} MB"
        if read and seconds:
            line += f", {read / seconds / 1e6:,.0f} MB/s, {seconds * (size - read) / read:,.0f} s left"
    return line[: max(columns - 1, 1)]


def make_progress() -> Progress:
    """Return what suits stderr."""
    return ShownProgress(sys.stderr.isatty())
