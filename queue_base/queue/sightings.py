"""Which leftovers of dead injectors were seen long enough to be removed.

The age of a file is what its times say, and a step of the clock makes it old in a moment, while its injector is at
work. So nothing is removed that was not seen by an earlier search, too, an hour before by a clock that nobody sets.
"""

import time

SEEN_SECONDS = 3600.0


class Sightings:
    """When each leftover was first seen, of those that the last search saw."""

    def __init__(self) -> None:
        self._before: dict[tuple[str, int], float] = {}
        self._now: dict[tuple[str, int], float] = {}

    def begin(self) -> None:
        """A search begins."""
        self._before, self._now = self._now, {}

    def add(self, name: str, ctime_ns: int) -> bool:
        """Note a leftover; return whether it was first seen so long ago that it may be removed."""
        now = time.clock_gettime(time.CLOCK_BOOTTIME)
        first = self._now[name, ctime_ns] = self._before.get((name, ctime_ns), now)
        return now - first >= SEEN_SECONDS

    def __len__(self) -> int:
        return len(self._now)
