"""A clock that is not affected if somebody sets the system's clock.

It starts with the system's time. So a rate, the wait for a probe and the wait for the next attempt have their right
length if the system's clock is set meanwhile. Times on the disk are the system's: `ahead` is by how many seconds its
clock is ahead of this one, and a time that is read from the disk or written to it goes through `from_disk` or
`to_disk`. A time that was written before the clock was set cannot be recognized and is taken as it is.
"""

import time
from collections.abc import Callable
from functools import partial

STEP = 0.5  # Seconds that the two clocks may differ.
_STEPS_MAX = 50  # Changes of the system's clock that are remembered.
_LATEST = (1 << 40) - 1  # The largest time that scheduler.waiting can hold.


# Seconds that also go on while the machine sleeps; time.monotonic stands still then.
_since_boot = partial(time.clock_gettime, time.CLOCK_BOOTTIME)


class Clock:
    """`system` and `even` are the system's clock, and one that nobody sets."""

    def __init__(
        self, system: Callable[[], float] = time.time, even: Callable[[], float] = _since_boot
    ) -> None:
        self._system = system
        self._even = even
        self._start = system() - even()
        self.ahead = 0
        self._aheads = [0]  # What `ahead` has been, the latest first.

    def now(self) -> float:
        """Return the time, in seconds since the epoch as they were when this began."""
        return self._start + self._even()

    def look(self) -> None:
        """Notice whether the system's clock was set; to be called once in a turn of the loop."""
        apart = self._system() - self.now() - self.ahead
        if abs(apart) > STEP:
            self.ahead += round(apart)
            kept = [ahead for ahead in self._aheads if ahead != self.ahead]
            self._aheads = [self.ahead, *kept[: _STEPS_MAX - 1]]

    def to_disk(self, when: int) -> int:
        """Return the system's time for one of ours, in whole seconds."""
        return max(0, when + self.ahead)

    def from_disk(self, when: int) -> int:
        """Return our time for the system's, in whole seconds."""
        ours = when - self.ahead
        return 0 if ours < 0 else ours if ours < _LATEST else _LATEST

    def all_from_disk(self, when: int) -> list[int]:
        """Return every time of ours that may have been written to the disk as this one."""
        return [min(max(0, when - ahead), _LATEST) for ahead in self._aheads]
