"""The log: lines to stdout, whole and in order, never waiting in the loop for the logger.

stdout may be shared with others (a terminal, stderr), so it stays in blocking mode: a pipe that poll
calls writable takes PIPE_BUF bytes without blocking, and no more than that is written at a time. While the
logger does not read, lines are kept; over HELD_MOST bytes `full` stops new deliveries, not the log.

Lines are kept, too, where stdout is a file that cannot take them, on a full disk above all, and tried again
every RETRY seconds. They are dropped only where nobody will ever read them: the logger is gone.
"""

import errno
import os
import select
import time

from queue_base.errors import complain, reason
from queue_wire import logline

PIPE_BUF = 4096
HELD_MOST = 256 * 1024
WRITES_A_TURN = 64
RETRY = 1.0  # Seconds until stdout is tried again after an error.
PARTING = 10.0  # Seconds for which `finish` puts up with errors: the supervisor waits for our exit.

_GONE = (errno.EPIPE, errno.EBADF)


class Log:
    """Collects lines; `run` writes what stdout takes."""

    def __init__(self, descriptor: int = 1) -> None:
        self._descriptor = descriptor
        self._lines: list[bytes] = []
        self._rest = b""
        self._held = 0
        self._total = 0  # Bytes of all lines ever put.
        self._status = b""
        self._deliveries = 0
        self._again = 0.0  # When stdout is tried again (monotonic); 0 where the last write went well.
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)

    def put(self, line: bytes) -> None:
        """Add a line, given without its newline."""
        self._lines.append(line)
        self._held += len(line) + 1
        self._total += len(line) + 1

    @property
    def position(self) -> int:
        """Where the lines end that were put so far, for `has_written`."""
        return self._total

    def has_written(self, position: int) -> bool:
        """Return whether the lines up to a position are out, or nobody will ever read them."""
        return self._total - self._held >= position

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

    def number_deliveries(self, count: int) -> int:
        """Returns the number of the first of `count` deliveries that start now; numbers begin at 1."""
        first = self._deliveries + 1
        self._deliveries += count
        return first

    @property
    def full(self) -> bool:
        """Whether the logger is so far behind that nothing new should be started."""
        return self._held > HELD_MOST

    def prepare(self, poll: "select.poll", now: float) -> float:
        """Wait for stdout while there are lines."""
        if self._again:
            # poll calls a file writable at all times, also on a full disk.
            return max(0.0, self._again - time.monotonic())
        if self._held:
            poll.register(self._descriptor, select.POLLOUT)
        return 3600.0

    def run(self, ready: dict[int, int], now: float) -> None:
        """Write what stdout takes, in pieces that cannot block."""
        if self._again > time.monotonic():
            return
        for _ in range(WRITES_A_TURN):
            if not self._held or not self._poll.poll(0) or not self._write():
                return

    def flush(self) -> None:
        """Write what stdout takes now: lines of which something is about to follow, lest a kill come in between."""
        self.run({}, 0.0)

    def _write(self) -> bool:
        """Write one piece; return whether there is a point in going on at once."""
        if len(self._rest) < PIPE_BUF and self._lines:
            self._rest += b"\n".join(self._lines) + b"\n"
            self._lines = []
        try:
            done = os.write(self._descriptor, self._rest[:PIPE_BUF])
        except BlockingIOError:
            return False  # Somebody who shares stdout made it non-blocking, and it is fuller than poll knows.
        except OSError as error:
            if error.errno not in _GONE:
                self._fail(error)
                return False
            done = len(self._rest)  # The logger is gone. Nobody can be told; mail goes on.
        self._again = 0.0
        self._held -= done
        self._rest = self._rest[done:]
        return True

    def _fail(self, error: OSError) -> None:
        if not self._again:
            complain("queue-send", f"alert: unable to write the log: {reason(error)}; lines are kept, mail may wait")
        self._again = time.monotonic() + RETRY

    def finish(self) -> None:
        """Write everything, waiting as long as the logger takes: the last words before the exit."""
        end = time.monotonic() + PARTING
        while self._held:
            self._poll.poll()
            if not self._write() and self._again:
                if time.monotonic() > end:
                    complain("queue-send", f"alert: unable to write the log: its last {self._held} bytes are lost")
                    return
                time.sleep(RETRY / 10)
