"""The backlog: the due time and the key of every waiting message, in a binary heap of two arrays, 16 bytes an entry.

A million entries take 16 MB; objects would take ten times that. Due times are in seconds since the epoch; a key is any
63 bits. `make_due` sets the heap aside unchanged and starts a new one: to change a million entries takes 0.1 s.
"""

from array import array
from collections import deque
from collections.abc import Iterator

from queue_send.scheduler.fifo import find_number

# Seconds. A due time minus LONG_AGO lies in the past, whatever the clock says.
LONG_AGO = 1 << 40


class _Heap:
    """Entries with the same due time are popped in the order of their keys."""

    __slots__ = ("dues", "keys")

    def __init__(self) -> None:
        self.dues = array("q")
        self.keys = array("q")

    def push(self, due: int, key: int) -> None:
        dues, keys = self.dues, self.keys
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
        dues, keys = self.dues, self.keys
        due, key = dues.pop(), keys.pop()
        if not dues:
            return due, key
        first = dues[0], keys[0]
        count = len(dues)
        # The last entry moves to the top, then down along the smaller children.
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


class Waiting:
    """A priority queue of (due, key)."""

    __slots__ = ("_heap", "_past")

    def __init__(self) -> None:
        self._heap = _Heap()
        self._past: deque[_Heap] = deque()  # Heaps that were made due, none empty: LONG_AGO is to be subtracted.

    def __len__(self) -> int:
        return len(self._heap.dues) + sum(len(heap.dues) for heap in self._past)

    def first_due(self) -> int | None:
        """Return the earliest due time; None if there are no entries."""
        first = self._heap.dues[0] if self._heap.dues else None
        if not self._past:
            return first
        past = self._past[0].dues[0] - LONG_AGO
        return past if first is None else min(past, first)

    def push(self, due: int, key: int) -> None:
        """Add an entry."""
        self._heap.push(due, key)

    def pop(self) -> tuple[int, int]:
        """Remove and return the earliest entry. Raises IndexError if there is none."""
        past = self._past[0] if self._past else None
        if past is None or (self._heap.dues and self._heap.dues[0] < past.dues[0] - LONG_AGO):
            return self._heap.pop()
        due, key = past.pop()
        if not past.dues:
            self._past.popleft()
        return due - LONG_AGO, key

    def make_due(self) -> None:
        """Make all entries due, in their order; those that were made due before stay before them."""
        if self._heap.dues:
            self._past.append(self._heap)
            self._heap = _Heap()

    def dues_of(self, key: int) -> list[int]:
        """Return the due times of the entries with this key."""
        dues = [self._heap.dues[place] for place in find_number(self._heap.keys, key)]
        return dues + [past.dues[place] - LONG_AGO for past in self._past for place in find_number(past.keys, key)]

    def due_by(self, due: int, start: int, count: int) -> Iterator[tuple[int, int]]:
        """Yield, of `count` entries from index `start` on, in no order, those that are due at `due` or earlier."""
        for heap in (self._heap, *self._past):
            ago = 0 if heap is self._heap else LONG_AGO
            if start < len(heap.dues) and count > 0:
                for one, key in zip(heap.dues[start : start + count], heap.keys[start : start + count], strict=True):
                    if one - ago <= due:
                        yield one - ago, key
                count -= len(heap.dues) - start
            start = max(0, start - len(heap.dues))
