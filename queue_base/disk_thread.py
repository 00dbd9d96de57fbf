"""Work that may wait for the disk, done in a thread of its own so that a daemon's loop never does.

Pieces of work are done one after the other, in order. Each result comes back in the loop: `run` calls the
function that was named for it, with None or with the OSError that the work raised; a lack of memory is ENOMEM. Any
other exception is a bug: `run` raises it, so that the daemon dies of it and does not wait for a thread that has ended.
"""

import errno
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue

GIVING = 0.002  # Seconds of a turn of the loop for giving back results; the last of them comes on top.

Result = OSError | None
Piece = tuple[Callable[[], None], Callable[[Result], None]]


class DiskThread:
    """`submit` work; `busy` as long as a result is out."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._pieces: SimpleQueue[Piece] = SimpleQueue()
        self._results: deque[tuple[Callable[[Result], None], BaseException | None]] = deque()
        self._out = 0
        # A daemon thread: should the loop end by an exception, nothing waits for a disk that hangs.
        threading.Thread(target=self._work, name="sync", daemon=True).start()

    def submit(self, work: Callable[[], None], then: Callable[[Result], None]) -> None:
        """Have `work` done in the thread, and `then` called in the loop."""
        self._out += 1
        self._pieces.put((work, then))

    @property
    def busy(self) -> bool:
        """Whether there are results to wait for."""
        return self._out > 0

    def _work(self) -> None:
        while True:
            work, then = self._pieces.get()
            result: BaseException | None = None
            try:
                work()
            except MemoryError:
                result = OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
            except BaseException as error:
                result = error
            self._results.append((then, result))
            # What the work refers to may be large, and the next piece may be long in coming.
            del work, then, result
            try:
                os.write(self._writer, b"\0")
            except BlockingIOError:
                continue  # The pipe is full of such bytes: the loop will look anyway.

    def prepare(self, poll: "select.poll", now: float) -> float:
        """Wait for results."""
        poll.register(self._reader, select.POLLIN)
        return 0.0 if self._results else 3600.0

    def run(self, ready: dict[int, int], now: float) -> None:
        """Give back the results that have come; those that take long in the next turns.

        Raises what a piece of work raised and should not have.
        """
        if self._reader in ready:
            os.read(self._reader, 65536)
        until = time.monotonic() + GIVING
        while self._results:
            then, result = self._results.popleft()
            self._out -= 1
            if result is not None and not isinstance(result, OSError):
                raise result
            then(result)
            if time.monotonic() >= until:
                return
