"""What the disk refused to tell, tried again after a while: nothing is taken for absent but what is (ENOENT)."""

import select
import time
from collections import deque
from collections.abc import Callable, Hashable

from queue_base.errors import reason
from queue_send.log import Log

AFTER = 123.0  # Seconds until it is tried again (qmail's SLEEP_SYSFAIL).
SAY_EVERY = 10.0  # Seconds between lines: a directory that cannot be read concerns many messages.
A_TURN = 20


class Again:
    """A part of the loop. Work that fails once more asks for itself again."""

    def __init__(self, log: Log) -> None:
        self._log = log
        # The delay is always the same, so they are due in the order in which they come.
        self._waiting: deque[tuple[float, Hashable]] = deque()
        self._work: dict[Hashable, Callable[[float], object]] = {}
        self._said = float("-inf")
        self._unsaid = 0

    def later(self, key: Hashable, work: Callable[[float], object], error: OSError) -> None:
        """Have `work` called with the time, once for all that have the same key; say what could not be done."""
        if key not in self._work:
            self._waiting.append((time.monotonic() + AFTER, key))
        self._work[key] = work
        now = time.monotonic()
        if now < self._said + SAY_EVERY:
            self._unsaid += 1
            return
        others = f" (and {self._unsaid} more before)" if self._unsaid else ""
        self._said, self._unsaid = now, 0
        where = error.filename if error.filename is not None else key
        self._log.warning(f"unable to look at {where}{others}: {reason(error)}; will try again later")

    def prepare(self, poll: "select.poll", now: float) -> float:
        """Wait until the first is due."""
        return max(0.0, self._waiting[0][0] - time.monotonic()) if self._waiting else 3600.0

    def run(self, ready: dict[int, int], now: float) -> None:
        """Do what is due, some of it."""
        for _ in range(A_TURN):
            if not self._waiting or self._waiting[0][0] > time.monotonic():
                return
            self._work.pop(self._waiting.popleft()[1])(now)
