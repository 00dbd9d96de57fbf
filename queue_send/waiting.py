"""The backlog: (due, key) of every message that waits, in two arrays, 16 bytes an entry.

A binary heap, the earliest first. `due` is in seconds since the epoch; `key` is whatever 63 bits the caller
likes. A million entries take 16 MB; objects would take ten times that.
"""

from array import array
from collections.abc import Iterator

from queue_send.keys import find_key

# Seconds; an entry that is this much earlier is past, whatever the clock says.
LONG_AGO = 1 << 40


class Waiting:
    """Entries wait here until they are popped. Equal dues come out in the order of their keys."""

    __slots__ = ("_dues", "_keys")

    def __init__(self) -> None:
        self._dues = array("q")
        self._keys = array("q")

    def __len__(self) -> int:
        return len(self._dues)

    def first_due(self) -> int | None:
        """Return the earliest due, None where nothing waits."""
        return self._dues[0] if self._dues else None

    def push(self, due: int, key: int) -> None:
        """Add an entry."""
        dues, keys = self._dues, self._keys
        place = len(dues)
        dues.append(due)
        keys.append(key)
        while place:
            parent = (place - 1) >> 1
            if (dues[parent], keys[parent]) <= (due, key):
                break
            dues[place], keys[place] = dues[parent], keys[parent]
            place = parent
        dues[place], keys[place] = due, key

    def pop(self) -> tuple[int, int]:
        """Remove and return the earliest entry. Raises IndexError where there is none."""
        dues, keys = self._dues, self._keys
        due, key = dues.pop(), keys.pop()
        if not dues:
            return due, key
        first = dues[0], keys[0]
        count = len(dues)
        # The last entry sinks from the top: the hole goes down along the smaller children.
        place, child = 0, 1
        while child < count:
            other = child + 1
            if other < count and (dues[other], keys[other]) < (dues[child], keys[child]):
                child = other
            if (due, key) <= (dues[child], keys[child]):
                break
            dues[place], keys[place] = dues[child], keys[child]
            place, child = child, 2 * child + 1
        dues[place], keys[place] = due, key
        return first

    def make_due(self) -> None:
        """Make everything due, in the order that it had."""
        # Taking the same from each keeps the heap as it is.
        self._dues = array("q", (due - LONG_AGO for due in self._dues))

    def dues_of(self, key: int) -> list[int]:
        """Return the dues of the entries that have this key."""
        return [self._dues[place] for place in find_key(self._keys, key)]

    def due_by(self, due: int, start: int, count: int) -> Iterator[tuple[int, int]]:
        """Yield those of `count` entries, from place `start` on and in no order, that are due at `due` or earlier."""
        stop = start + count
        for one, key in zip(self._dues[start:stop], self._keys[start:stop], strict=True):
            if one <= due:
                yield one, key
