"""The log: lines to stdout, whole and in order, never waiting in the loop for the logger.

stdout may be shared with others (a terminal, stderr), so it stays in blocking mode: a pipe that poll
calls writable takes PIPE_BUF bytes without blocking, and no more than that is written at a time. While the
logger does not read, lines are kept; over HELD_MOST bytes `full` stops new deliveries, not the log.
"""

import os
import select

from queue_wire import logline

PIPE_BUF = 4096
HELD_MOST = 256 * 1024
WRITES_A_TURN = 64


class Log:
    """Collects lines; `run` writes what stdout takes."""

    def __init__(self, descriptor: int = 1) -> None:
        self._descriptor = descriptor
        self._lines: list[bytes] = []
        self._rest = b""
        self._held = 0
        self._status = b""
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)

    def put(self, line: bytes) -> None:
        """Add a line, given without its newline."""
        self._lines.append(line)
        self._held += len(line) + 1

    def alert(self, text: str) -> None:
        """Add an alert line."""
        self.put(logline.alert(text))

    def warning(self, text: str) -> None:
        """Add a warning line."""
        self.put(logline.warning(text))

    def status(self, line: bytes) -> None:
        """Add a status line, if it differs from the last one."""
        if line != self._status:
            self._status = line
            self.put(line)

    @property
    def full(self) -> bool:
        """Whether the logger is so far behind that nothing new should be started."""
        return self._held > HELD_MOST

    def prepare(self, poll: "select.poll", now: float) -> float:
        """Wait for stdout while there are lines."""
        if self._held:
            poll.register(self._descriptor, select.POLLOUT)
        return 3600.0

    def run(self, ready: dict[int, int], now: float) -> None:
        """Write what stdout takes, in pieces that cannot block."""
        for _ in range(WRITES_A_TURN):
            if not self._held or not self._poll.poll(0):
                return
            self._write()

    def _write(self) -> None:
        if len(self._rest) < PIPE_BUF and self._lines:
            self._rest += b"\n".join(self._lines) + b"\n"
            self._lines = []
        try:
            done = os.write(self._descriptor, self._rest[:PIPE_BUF])
        except BlockingIOError:
            return  # Somebody who shares stdout made it non-blocking, and it is fuller than poll knows.
        except OSError:
            done = len(self._rest)  # The logger is gone. Nobody can be told; mail goes on.
        self._held -= done
        self._rest = self._rest[done:]

    def finish(self) -> None:
        """Write everything, waiting as long as it takes: the last words before the exit."""
        while self._held:
            self._poll.poll()
            self._write()
