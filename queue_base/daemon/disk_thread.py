"""A thread for work that may wait for the disk, so that a daemon's loop never waits for it.

Pieces of work run one after the other, in the order in which they were submitted. `run`, called in the loop, calls the
function that was submitted with the work, with None for success or the OSError that the work raised; lack of memory is
ENOMEM. Any other exception is a bug: `run` raises it, so that the daemon ends and does not wait for a dead thread.
"""

import errno
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue

# Seconds in one turn of the loop for delivering results. The last result may exceed it.
DELIVER_SECONDS = 0.002

Result = OSError | None
Piece = tuple[Callable[[], None], Callable[[Result], None], bool]


class DiskThread:
    """Takes work with `submit`. `busy` is true until the results of all work have been delivered.

    `done` is the number of pieces that were done, `seconds` the time they took, `worst` the longest; `commits` and
    `commit_seconds` are of those pieces that sync.
    """

    def __init__(self) -> None:
        """Start the thread. Raises OSError."""
        self._reader, self._writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._pieces: SimpleQueue[Piece] = SimpleQueue()
        self._results: deque[tuple[Callable[[Result], None], BaseException | None]] = deque()
        self._out = 0
        self.done = self.commits = 0
        self.seconds = self.worst = self.commit_seconds = 0.0
        # A daemon thread: if the loop ends by an exception, the process must not wait for a disk that hangs.
        try:
            threading.Thread(target=self._work, name="sync", daemon=True).start()
        except RuntimeError as error:
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN), "a thread") from error

    def submit(self, work: Callable[[], None], then: Callable[[Result], None], syncs: bool = True) -> None:
        """Run `work` in the thread, and call `then` with its result in the loop; `syncs` only decides how it counts."""
        self._out += 1
        self._pieces.put((work, then, syncs))

    @property
    def descriptor(self) -> int:
        """Readable when there are results, unless `has_results` already tells."""
        return self._reader

    @property
    def has_results(self) -> bool:
        """Whether there are results to deliver now."""
        return bool(self._results)

    @property
    def busy(self) -> bool:
        """Whether results are outstanding."""
        return self._out > 0

    def _work(self) -> None:
        while True:
            work, then, syncs = self._pieces.get()
            result: BaseException | None = None
            begun = time.monotonic()
            try:
                work()
            except MemoryError:
                result = OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
            except BaseException as error:
                result = error
            took = time.monotonic() - begun
            self.done += 1
            self.seconds += took
            self.worst = max(self.worst, took)
            if syncs:
                self.commits += 1
                self.commit_seconds += took
            self._results.append((then, result))
            # Drop the references: they may be large, and the next piece of work may come much later.
            del work, then, result
            try:
                os.write(self._writer, b"\0")
            except BlockingIOError:
                continue  # The pipe is full, so the loop is woken up already.

    def prepare(self, poll: "select.poll", now: float) -> float:
        """Register the wake-up pipe; return the seconds to wait at most."""
        poll.register(self._reader, select.POLLIN)
        return 0.0 if self._results else 3600.0

    def run(self, ready: dict[int, int], now: float) -> None:
        """Deliver results, for DELIVER_SECONDS at most; the others are delivered in the next turns.

        Raises the exception of a piece of work that failed by a bug.
        """
        if self._reader in ready:
            os.read(self._reader, 65536)
        until = time.monotonic() + DELIVER_SECONDS
        while self._results:
            then, result = self._results.popleft()
            self._out -= 1
            if result is not None and not isinstance(result, OSError):
                raise result
            then(result)
            if time.monotonic() >= until:
                return
