"""A deadline that moves with each sign of progress, on one timer that is set again only when it comes early.

That costs less than a timer for each reply. `limit` is a time (of time.monotonic) beyond which no progress moves it.
"""

import asyncio
import time
from collections.abc import Callable

NEVER = float("inf")


class Clock:
    """Calls `ring` when the deadline has passed; `timeout` is in seconds from each sign of progress."""

    __slots__ = ("_deadline", "_loop", "_ring", "_timer", "limit", "timeout")

    def __init__(self, loop: asyncio.AbstractEventLoop, timeout: float, ring: Callable[[], None]) -> None:
        self.limit = NEVER
        self.timeout = timeout
        self._loop = loop
        self._ring = ring
        self._deadline = NEVER
        self._timer: asyncio.TimerHandle | None = None

    def progress(self) -> None:
        """Something has moved: the deadline is `timeout` from now, or the limit where that is earlier."""
        self._deadline = min(time.monotonic() + self.timeout, self.limit)
        if self._timer is None:
            self._timer = self._loop.call_later(self.timeout, self._look)

    def allow(self, seconds: float) -> None:
        """All that comes now shall take no longer than this in all."""
        self.limit = time.monotonic() + seconds
        self.progress()

    def left(self) -> float:
        """Return the seconds until the limit."""
        return self.limit - time.monotonic()

    def set(self, seconds: float) -> None:
        """Ring after so many seconds, whatever happens."""
        self.stop()
        self.limit = self._deadline = time.monotonic() + seconds
        self._timer = self._loop.call_later(seconds, self._look)

    def rest(self) -> None:
        """Do not ring until there is progress again."""
        self.limit = self._deadline = NEVER

    def end(self) -> None:
        """Stop for good, and let go of who was to be rung for."""
        self.stop()
        self._ring = _silence

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        left = self._deadline - time.monotonic()
        if left <= 0:
            self._ring()
        elif left != NEVER:
            self._timer = self._loop.call_later(left, self._look)


def _silence() -> None:
    """Nobody is rung for."""
