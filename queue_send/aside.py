"""The messages that wait on the disk for room in one destination, with the ends of their lifetimes. Pure.

First in, first out, 16 bytes each. What leaves takes its end with it: nothing is left behind that could later be
mistaken for a message that uses the same number.
"""

from array import array
from itertools import compress

from queue_send.fifo import Keys

NEVER = (1 << 63) - 1  # The end of what has a next attempt in time, too.
_SEARCHED = 2000  # Messages that are searched a second for those that are late, on average.


class Aside:
    """Ends are in seconds since the epoch."""

    __slots__ = ("_ends", "_keys", "_search_at")

    def __init__(self) -> None:
        self._keys = Keys()
        self._ends = Keys()
        self._search_at: float = NEVER  # Nobody is late before.

    def __len__(self) -> int:
        return len(self._keys)

    def holds(self, message: int) -> bool:
        """Return whether a message is among them."""
        return self._keys.holds(message)

    def oldest(self, most: int) -> list[int]:
        """Return those that came first, `most` of them."""
        return self._keys.oldest(most)

    def put(self, message: int, end: int) -> None:
        """Add a message."""
        self._keys.put(message)
        self._ends.put(end)
        if end < self._search_at:
            self._search_at = end

    def take(self) -> int | None:
        """Remove and return the one that came first, None where there is none."""
        self._ends.take()
        return self._keys.take()

    def take_late(self, now: float) -> list[int]:
        """Remove and return those that are past their end, in their order; of very many, some minutes late."""
        if now <= self._search_at:
            return []
        keys, ends = array("q", self._keys), array("q", self._ends)
        late = [end < now for end in ends]
        found = list(compress(keys, late))
        if found:
            left = [not each for each in late]
            self._keys, self._ends = Keys(compress(keys, left)), Keys(compress(ends, left))
        first = min(self._ends, default=NEVER)
        self._search_at = max(first, now + len(keys) / _SEARCHED)
        return found

    def join(self, other: Keys) -> None:
        """Take all of the other's in behind these, each once."""
        there = set(self._keys)
        while (message := other.take()) is not None:
            if message not in there:
                there.add(message)
                self.put(message, NEVER)
