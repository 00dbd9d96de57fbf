"""A timeout that starts again with each sign of progress.

It uses one timer, which is set again only when it fires too early; that costs less than a timer for each reply.
"""

import asyncio
import time
from collections.abc import Callable

NEVER = float("inf")


class ProgressTimer:
    """Calls `expired` after `timeout` seconds without progress, or at the time `limit` (of time.monotonic).

    No limit that `allow` sets is later than `bound`.
    """

    __slots__ = ("_deadline", "_expired", "_fires", "_loop", "_timer", "bound", "limit", "timeout")

    def __init__(self, loop: asyncio.AbstractEventLoop, timeout: float, expired: Callable[[], None]) -> None:
        self.limit = self.bound = NEVER
        self.timeout = timeout
        self._loop = loop
        self._expired = expired
        self._deadline = NEVER
        self._fires = NEVER
        self._timer: asyncio.TimerHandle | None = None

    def progress(self) -> float:
        """Start the timeout again; the limit stays. Return the time (of time.monotonic)."""
        now = time.monotonic()
        deadline = now + self.timeout
        self._deadline = deadline if deadline < self.limit else self.limit
        if self._timer is None or self._deadline < self._fires:
            self._set_timer(self._deadline - now)
        return now

    def allow(self, seconds: float) -> float:
        """Set the limit to so many seconds from now, and start the timeout again. Return the time."""
        self.limit = NEVER
        now = self.progress()
        self.limit = min(now + seconds, self.bound)
        self._hasten()
        return now

    def shorten(self, seconds: float) -> None:
        """Set the limit to so many seconds from now, if that is sooner."""
        self.limit = min(self.limit, time.monotonic() + seconds)
        self._hasten()

    def left(self) -> float:
        """Return the seconds until the limit."""
        return self.limit - time.monotonic()

    def set(self, seconds: float) -> None:
        """Expire after so many seconds, without regard to progress."""
        self.limit = self._deadline = time.monotonic() + seconds
        self._set_timer(seconds)

    def rest(self) -> None:
        """Do not expire until there is progress again."""
        self.limit = self._deadline = NEVER

    def end(self) -> None:
        """Stop, and release the callback: it refers to the connection."""
        self.stop()
        self._expired = _do_nothing

    def stop(self) -> None:
        """Cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _hasten(self) -> None:
        """Expire at the limit, if that is sooner."""
        if self.limit < self._deadline:
            self._deadline = self.limit
            if self._deadline < self._fires:
                self._set_timer(self.left())

    def _set_timer(self, seconds: float) -> None:
        self.stop()
        self._fires = time.monotonic() + seconds
        self._timer = self._loop.call_later(max(0.0, seconds), self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        left = self._deadline - time.monotonic()
        if left <= 0:
            self._expired()
        elif left != NEVER:
            self._set_timer(left)


def _do_nothing() -> None:
    """The deadline has ended."""
