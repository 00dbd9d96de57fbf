"""The clock of a resident build: waits until a time, or until a signal says what else to do.

TERM and INT end it after what it is doing; a second one interrupts that (KeyboardInterrupt). HUP asks for a batch now.
"""

import enum
import os
import select
import signal
import time
from typing import Protocol


class Wish(enum.Enum):
    """What a wait ended with."""

    TIME = "it is time"
    BATCH = "a batch is asked for"
    STOP = "the end is asked for"


class Clock(Protocol):
    def now(self) -> float:
        """Return the seconds of a clock that never goes back."""

    def wait(self, until: float) -> Wish:
        """Wait until a time, or a wish. One that came since the last call counts."""


class SystemClock:
    """The machine's clock and this process's signals. Make it in the main thread."""

    def __init__(self) -> None:
        self._stop = self._batch = False
        self._awake, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_stop)
        signal.signal(signal.SIGHUP, self._on_batch)

    def now(self) -> float:
        return time.monotonic()

    def wait(self, until: float) -> Wish:
        while True:
            if self._stop:
                return Wish.STOP
            if self._batch:
                self._batch = False
                return Wish.BATCH
            left = until - time.monotonic()
            if left <= 0:
                return Wish.TIME
            if select.select([self._awake], [], [], left)[0]:
                os.read(self._awake, 4096)

    def _on_stop(self, number: int, frame: object) -> None:
        if self._stop:
            raise KeyboardInterrupt
        self._stop = True

    def _on_batch(self, number: int, frame: object) -> None:
        self._batch = True
