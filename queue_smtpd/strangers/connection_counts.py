"""How many connections there are of each key, in this process and in those that share its port.

Each process counts exactly what it has itself, and keeps a table of counts for the others to read, which was made
before they were forked. Only its own process writes to a table, so there is no lock, and a process that begins in the
place of one that died clears it. In a table, keys may have the same place; a count that is read there is that of the
emptier one of two places, so it is hardly ever too large.
"""

import mmap

_SLOTS = 32768
_MASK = (1 << 63) - 1


class ConnectionCounts:
    """The counts; `processes` share them. `begin` says which of them this one is."""

    __slots__ = ("_own", "_place", "_processes", "_table", "_total", "_totals")

    def __init__(self, processes: int = 1) -> None:
        self._processes = processes
        self._place = 0
        self._own: dict[str, int] = {}
        self._total = 0
        self._totals = memoryview(mmap.mmap(-1, processes * 4)).cast("I")
        self._table = memoryview(mmap.mmap(-1, processes * 2 * _SLOTS * 4)).cast("I")

    def begin(self, place: int) -> None:
        """Be the process with this number, from 0. What one before it had there is forgotten."""
        self._place = place
        self._own = {}
        self._total = self._totals[place] = 0
        size = 2 * _SLOTS
        self._table[place * size : (place + 1) * size] = memoryview(bytes(size * 4)).cast("I")

    def add(self, keys: tuple[str, ...]) -> None:
        """Count a connection, for each of these keys."""
        self._change(keys, 1)

    def remove(self, keys: tuple[str, ...]) -> None:
        """Note that it has ended."""
        self._change(keys, -1)

    def count(self, key: str) -> int:
        """Return how many connections a key has."""
        found = self._own.get(key, 0)
        first, second = _slots(key)
        for place in range(self._processes):
            if place != self._place:
                base = place * 2 * _SLOTS
                found += min(self._table[base + first], self._table[base + second])
        return found

    def total(self) -> int:
        """Return how many connections there are."""
        return sum(self._totals)

    def _change(self, keys: tuple[str, ...], amount: int) -> None:
        self._total += amount
        self._totals[self._place] = self._total
        base = self._place * 2 * _SLOTS
        for key in keys:
            number = self._own.get(key, 0) + amount
            if number:
                self._own[key] = number
            else:
                del self._own[key]
            for slot in _slots(key):
                self._table[base + slot] += amount


def _slots(key: str) -> tuple[int, int]:
    """Return the places of a key in a table."""
    found = hash(key) & _MASK
    return found % _SLOTS, _SLOTS + found // _SLOTS % _SLOTS
