"""What the demo prints: titles, commands, blocks of text, the log as it comes, and a verdict for each check."""

import os
import sys
import threading

from queue_base.durable import write_all

_BOLD, _DIM, _RED, _GREEN = "1", "2", "31", "32"


class Screen:
    """Writes to stdout, a block at a time; two threads share it. `failed` lists the checks that came out wrong."""

    def __init__(self) -> None:
        self.failed: list[str] = []
        self.passed = 0
        self._lock = threading.Lock()
        self._colours = sys.stdout.isatty() and "NO_COLOR" not in os.environ

    def title(self, text: str) -> None:
        """Begin a part of the story."""
        self._write("\n" + self._colour(_BOLD, f"== {text}"))

    def say(self, text: str) -> None:
        """Tell what happens."""
        self._write(text)

    def command(self, text: str) -> None:
        """Show a command as a person would type it."""
        self._write(self._colour(_BOLD, f"$ {text}"))

    def log(self, line: str, program: str = "queue-send") -> None:
        """Show a line of the log of a program."""
        self._write(self._colour(_DIM, f"  {program} | {line}"))

    def block(self, text: bytes) -> None:
        """Show a file or what a command printed."""
        lines = text.decode("utf-8", "replace").splitlines() or ["(nothing)"]
        self._write("\n".join(f"    | {line}" for line in lines))

    def check(self, what: str, right: bool, found: object = "") -> None:
        """Print ok, or NOT OK with what was found instead, and remember it."""
        if right:
            self.passed += 1
            self._write(f"{self._colour(_GREEN, 'ok')}      {what}")
        else:
            self.failed.append(what)
            self._write(f"{self._colour(_RED, 'NOT OK')}  {what}" + (f"; found {found!r}" if found != "" else ""))

    def equal(self, what: str, found: object, wanted: object) -> None:
        """Check that two values are equal."""
        self.check(what, found == wanted, f"{found!r} in place of {wanted!r}")

    def _colour(self, code: str, text: str) -> str:
        return f"\033[{code}m{text}\033[0m" if self._colours else text

    def _write(self, text: str) -> None:
        with self._lock:
            try:
                write_all(1, f"{text}\n".encode("utf-8", "backslashreplace"))
            except OSError:
                pass  # Nobody reads any more (`| head`); the exit code still tells.
