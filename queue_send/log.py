"""The log: whole lines to stdout, in order. The loop never waits for the logger.

stdout may be shared with others (a terminal, stderr), so it stays in blocking mode: a pipe that poll
calls writable takes PIPE_BUF bytes without blocking, and no more than that is written at a time. While the
logger does not read, lines are kept; over UNWRITTEN_MAX bytes `full` stops new deliveries, not the log.

If stdout is a file that cannot take lines, on a full disk above all, they are kept and tried again every RETRY seconds.
Lines are dropped only if the logger is gone, or takes nothing for EXIT_WAIT seconds while queue-send is to exit.
"""

import errno
import os
import select
import time

from queue_base.errors import complain, reason
from queue_wire import logline

PIPE_BUF = 4096
UNWRITTEN_MAX = 256 * 1024
WRITES_A_TURN = 64
RETRY = 1.0  # Seconds until stdout is tried again after an error.
EXIT_WAIT = 30.0  # Seconds without a byte taken, after which an exit waits no more: the supervisor waits for it.

_GONE = (errno.EPIPE, errno.EBADF)


class Log:
    """Collects lines; `run` writes what stdout takes."""

    def __init__(self, descriptor: int = 1, exit_wait: float = EXIT_WAIT) -> None:
        self._descriptor = descriptor
        self._lines: list[bytes] = []
        self._rest = b""
        self._unwritten = 0
        self._total = 0  # Bytes of all lines ever put.
        self._status = b""
        self._deliveries = 0
        self.given_up = False  # Whether lines were dropped because nobody took them.
        self._exit_wait = exit_wait
        # In an exit: the bytes that stdout had taken when it last took any, and when that was noticed.
        self._taken = -1
        self._taken_at = 0.0
        self._again = 0.0  # When stdout is tried again (monotonic); 0 if the last write succeeded.
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)

    def put(self, line: bytes) -> None:
        """Add a line, given without its newline."""
        size = len(line) + 1
        if self.given_up:
            self._total += size
            return
        self._lines.append(line)
        self._unwritten += size
        self._total += size

    @property
    def position(self) -> int:
        """The position behind the last line, for `has_written`."""
        return self._total

    def has_written(self, position: int) -> bool:
        """Return whether the lines up to a position are written, or dropped."""
        return self._total - self._unwritten >= position

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
        """Return the number of the first of `count` deliveries that start now; numbers begin at 1."""
        first = self._deliveries + 1
        self._deliveries += count
        return first

    @property
    def unwritten(self) -> int:
        """The bytes that were not written yet."""
        return self._unwritten

    @property
    def full(self) -> bool:
        """Whether the logger is so far behind that nothing new should be started."""
        return self._unwritten > UNWRITTEN_MAX

    def prepare(self, poll: "select.poll", now: float) -> float:
        """Wait for stdout while there are lines."""
        if self._again:
            # poll calls a file writable at all times, also on a full disk.
            return max(0.0, self._again - time.monotonic())
        if self._unwritten:
            poll.register(self._descriptor, select.POLLOUT)
        return 3600.0

    def run(self, ready: dict[int, int], now: float) -> None:
        """Write what stdout takes, in pieces that cannot block."""
        if self._again > time.monotonic():
            return
        for _ in range(WRITES_A_TURN):
            if not self._unwritten or not self._poll.poll(0) or not self._write():
                return

    def flush(self) -> None:
        """Write what stdout takes now. Called before an action, so that a kill after it cannot lose its line."""
        self.run({}, 0.0)

    def _write(self) -> bool:
        """Write one piece; return whether to continue at once."""
        if len(self._rest) < PIPE_BUF and self._lines:
            self._rest += b"\n".join(self._lines) + b"\n"
            self._lines = []
        try:
            done = os.write(self._descriptor, self._rest[:PIPE_BUF])
        except BlockingIOError:
            return False  # Another process has made the shared stdout non-blocking.
        except OSError as error:
            if error.errno not in _GONE:
                self._fail(error)
                return False
            done = len(self._rest)  # The logger is gone. Mail goes on.
        self._again = 0.0
        self._unwritten -= done
        self._rest = self._rest[done:]
        return True

    def _fail(self, error: OSError) -> None:
        if not self._again:
            complain("queue-send", f"alert: unable to write the log: {reason(error)}; lines are kept, mail may wait")
        self._again = time.monotonic() + RETRY

    def limit_wait(self) -> float:
        """Called again and again during an exit: drops the lines, these and all later ones, if nobody takes them.

        That is, if stdout has taken nothing for EXIT_WAIT seconds. Returns the seconds that are left. What would follow
        from the lines is done then: a recipient without its line is better than one who gets a message twice.
        """
        now, taken = time.monotonic(), self._total - self._unwritten
        if not self._unwritten or taken != self._taken:
            self._taken, self._taken_at = taken, now
        left = self._taken_at + self._exit_wait - now
        if self._unwritten and left <= 0:
            self._give_up()
        return left if self._unwritten else 3600.0

    def _give_up(self) -> None:
        text = f"alert: unable to write the log: its last {self._unwritten} bytes, and what follows, are lost"
        # stderr is often the same pipe as stdout, and would block.
        poll = select.poll()
        poll.register(2, select.POLLOUT)
        if any(event & select.POLLOUT for _, event in poll.poll(0)):
            complain("queue-send", text)
        self.given_up = True
        self._lines, self._rest, self._unwritten, self._again = [], b"", 0, 0.0

    def finish(self) -> None:
        """Write everything before the exit, as long as the logger takes lines."""
        while self._unwritten:
            left = self.limit_wait()
            if self._poll.poll(1000 * max(0.0, min(left, RETRY))) and not self._write():
                time.sleep(RETRY / 10)
