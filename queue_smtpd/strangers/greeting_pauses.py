"""The pauses before greetings: one timer for all of them, however many they are.

All pauses have the same length, so they end in the order in which they began. Only after control/smtpdlimits was
changed may one end later than it should: when those before it have ended.
"""

import asyncio
from collections import deque
from collections.abc import Callable

# Those that end in one turn of the loop.
_AT_ONCE = 100


class GreetingPauses:
    """The pauses that have begun. `add` begins one, at whose end it calls `greet`, with the time."""

    __slots__ = ("_loop", "_timer", "_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[tuple[float, Callable[[float], None]]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, seconds: float, greet: Callable[[float], None]) -> None:
        """Begin a pause. If its connection ends before, `greet` is called all the same."""
        self._waiting.append((self._loop.time() + seconds, greet))
        self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is None and self._waiting:
            self._timer = self._loop.call_at(self._waiting[0][0], self._run)

    def _run(self) -> None:
        self._timer = None
        now = self._loop.time()
        for _ in range(_AT_ONCE):
            if not self._waiting or self._waiting[0][0] > now:
                break
            _, greet = self._waiting.popleft()
            greet(now)
        self._set_timer()
