"""Tries operations again that the disk refused. Only ENOENT means that a file does not exist; other errors may pass."""

import select
import time
from collections import deque
from collections.abc import Callable, Hashable

from queue_base.errors import reason
from queue_send.log import Log
from queue_send.scheduler.retry import AGAIN_AFTER

WARN_EVERY = 10.0  # Seconds between warnings: a directory that cannot be read affects many messages.
A_TURN = 20


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
        """Calls `work` with the time after AGAIN_AFTER seconds, once for all calls with this key; logs a warning."""
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
        """Waits until the first is due."""
        return max(0.0, self._waiting[0][0] - time.monotonic()) if self._waiting else 3600.0

    def run(self, ready: dict[int, int], now: float) -> None:
        """Does some of what is due."""
        for _ in range(A_TURN):
            if not self._waiting or self._waiting[0][0] > time.monotonic():
                return
            self._work.pop(self._waiting.popleft()[1])(now)
