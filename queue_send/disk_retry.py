"""Tries operations again that the disk refused. Only ENOENT means that a file does not exist; other errors may pass."""

import os
import select
import time
from collections import deque
from collections.abc import Callable, Hashable

from queue_base.durable import check_works
from queue_base.errors import reason
from queue_send.log import Log
from queue_send.scheduler.retry import AGAIN_AFTER

WARN_EVERY = 10.0  # Seconds between warnings: a directory that cannot be read affects many messages.
A_TURN = 20
LOOK_EVERY = 5.0  # Seconds between looks at a disk that takes no changes.


class DiskRetry:
    """A part of the loop. An operation that fails again calls `later` again."""

    def __init__(self, log: Log) -> None:
        self._log = log
        # The delay is constant, so they are due in the order of their arrival.
        self._waiting: deque[tuple[float, Hashable]] = deque()
        self._work: dict[Hashable, Callable[[float], object]] = {}
        self._warned_at = float("-inf")
        self._unwarned = 0

    def later(self, key: Hashable, work: Callable[[float], object], error: OSError) -> None:
        """Call `work` with the time after AGAIN_AFTER seconds, once for all calls with this key; log a warning."""
        if key not in self._work:
            self._waiting.append((time.monotonic() + AGAIN_AFTER, key))
        self._work[key] = work
        now = time.monotonic()
        if now < self._warned_at + WARN_EVERY:
            self._unwarned += 1
            return
        others = f" (and {self._unwarned} more before)" if self._unwarned else ""
        self._warned_at, self._unwarned = now, 0
        where = error.filename if error.filename is not None else key
        self._log.warning(f"unable to look at {where}{others}: {reason(error)}; will try again later")

    def prepare(self, poll: "select.poll", now: float) -> float:
        """Wait until the first is due."""
        return max(0.0, self._waiting[0][0] - time.monotonic()) if self._waiting else 3600.0

    def run(self, ready: dict[int, int], now: float) -> None:
        """Do some of what is due."""
        for _ in range(A_TURN):
            if not self._waiting or self._waiting[0][0] > time.monotonic():
                return
            self._work.pop(self._waiting.popleft()[1])(now)


class QueueDisk:
    """Whether the queue's disk takes changes; a part of the loop.

    What is delivered while it takes none cannot be marked, and is delivered again later. So if a mark fails because the
    file system has failed, became read-only or was taken out, no further delivery is started until it takes changes.
    """

    def __init__(self, queue: str, log: Log) -> None:
        self._queue = queue
        self._log = log
        self._look_at = 0.0
        self.failed = False

    def note(self) -> None:
        """To be called if a mark could not be written."""
        if not self.failed and (why := self._trouble()):
            self.failed = True
            self._look_at = time.monotonic() + LOOK_EVERY
            self._log.alert(f"{self._queue} takes no changes: {why}; no delivery is started until it does")

    def prepare(self, poll: "select.poll", now: float) -> float:
        """Wait until the next look."""
        return max(0.0, self._look_at - time.monotonic()) if self.failed else 3600.0

    def run(self, ready: dict[int, int], now: float) -> None:
        """Look whether it takes changes again."""
        if not self.failed or time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + LOOK_EVERY
        if not self._trouble():
            self.failed = False
            self._log.warning(f"{self._queue} takes changes again; deliveries go on")

    def _trouble(self) -> str:
        try:
            handle = os.open(f"{self._queue}/mess", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                check_works(handle)
            finally:
                os.close(handle)
        except OSError as error:
            return reason(error)
        return ""
