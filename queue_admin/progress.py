"""A line on stderr that says how far a command has come, if it takes longer than a second and stderr is a terminal.

    with Progress(total, "messages") as progress:
        for message in messages:
            ...
            progress.step()

The line is replaced in place, at most five times a second, and erased at the end. Nothing is written elsewhere. For a
command that prints a line for each thing (`prints`) it is shown only if stdout is a file: on a terminal those lines
show how far it is, and behind a pipe is a pager or a filter that writes on the same terminal.
"""

import os
import stat
import sys
import time
from types import TracebackType

FIRST_AFTER = 1.0  # Seconds until the line is shown.
INTERVAL = 0.2  # Seconds between two versions of it.
_ERASE = "\r\x1b[K"


def stdout_is_file() -> bool:
    """Return whether stdout is a regular file, so that what is printed is not seen on the terminal."""
    try:
        return stat.S_ISREG(os.fstat(sys.stdout.fileno()).st_mode)
    except (AttributeError, OSError):
        return False  # It is closed.


class Progress:
    """How many of `total` things, named by the plural `noun`, are done. `total` None: it is not known."""

    def __init__(self, total: int | None, noun: str, verb: str = "", prints: bool = False) -> None:
        """`verb` is what stands before the count, such as `deleted`. `prints`: a line goes to stdout for each."""
        self.done = 0
        self._total = total
        self._noun = noun
        self._head = f"{verb} " if verb else ""
        self._shows = sys.stderr is not None and sys.stderr.isatty()
        if prints and not stdout_is_file():
            self._shows = False
        self._next = time.monotonic() + FIRST_AFTER
        self._visible = False

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.clear()

    def step(self, count: int = 1) -> None:
        """Count `count` things as done, and show it if it is time to."""
        self.done += count
        if self._shows and time.monotonic() >= self._next:
            self._draw()

    def clear(self) -> None:
        """Erase the line, before something else is printed on the terminal. The next step may show it again."""
        if self._visible:
            self._visible = False
            sys.stderr.write(_ERASE)
            sys.stderr.flush()

    def _draw(self) -> None:
        self._next = time.monotonic() + INTERVAL
        of = ""
        if self._total is not None:
            of = f" of {self._total}"
        percent = f", {min(100, self.done * 100 // self._total)} %" if self._total else ""
        sys.stderr.write(f"{_ERASE}{self._head}{self.done}{of} {self._noun}{percent}")
        sys.stderr.flush()
        self._visible = True
