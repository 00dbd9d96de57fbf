"""daemontools' multilog as the logger of a suite that is restarted, killed, and rotated while it writes.

The pipe is held open here, as svscan holds it, so no line is lost between two suites or two loggers.
"""

import array
import fcntl
import os
import signal
import subprocess
import termios
from pathlib import Path

from support.processes.suite import wait_until
from support.tools import need


class Multilog:
    """Runs from the start; what is written to `writer` gets a stamp and goes to `directory`, in files of `size` bytes.

    Call `end` when nobody else has the pipe open; use it as a context manager to have it killed if that never comes.
    """

    def __init__(self, directory: Path, size: int = 10_000) -> None:
        self.directory = directory
        self._words = [need("multilog"), "t", f"s{size}", "n1000", str(directory)]
        self._reader, self.writer = os.pipe()
        self.process = self._start()

    def __enter__(self) -> "Multilog":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait(30)
        for descriptor in (self._reader, self.writer):
            if descriptor >= 0:
                os.close(descriptor)

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self._words, stdin=self._reader)

    def rotate(self) -> None:
        """Have it begin a new file now."""
        self.process.send_signal(signal.SIGALRM)

    def restart(self) -> None:
        """End it with TERM, which it obeys after the line that it reads, and start another. Lines are being written."""
        self.process.terminate()
        wait_until(lambda: self.process.poll() is not None, why="multilog to see a line after TERM")
        self.process = self._start()

    def kill(self) -> None:
        """Kill it once it has written all that it has read; start another, which keeps the old `current` as `.u`."""
        wait_until(self._is_idle, why="multilog to have written everything")
        self.process.kill()
        self.process.wait(30)
        self.process = self._start()

    def _is_idle(self) -> bool:
        """Whether the pipe is empty and it sleeps, which it does only before it reads; it writes everything first."""
        waiting = array.array("i", [0])
        fcntl.ioctl(self._reader, termios.FIONREAD, waiting)
        state = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[0]
        return not waiting[0] and state == "S"

    def end(self) -> None:
        """Let it come to the end of the log and exit."""
        os.close(self.writer)
        self.writer = -1
        assert self.process.wait(30) == 0

    def files(self) -> list[Path]:
        """Return the log's files, the oldest first."""
        found = [path for path in self.directory.iterdir() if path.name[0] == "@"]
        return [*sorted(found), self.directory / "current"]
