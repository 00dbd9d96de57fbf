"""Which waiting message is loaded next: new mail and due deferred mail, one and one. Pure.

A backlog never starves new mail, and new mail never starves the backlog. Mail whose destination has room
again comes before both: it was let in once already.
"""

from collections import deque
from collections.abc import Collection, Iterator
from itertools import islice

from queue_send.fifo import Keys
from queue_send.waiting import LONG_AGO, Waiting


class Admission:
    """The messages of one channel that are not loaded, by number."""

    def __init__(self) -> None:
        self._fresh = Keys()
        self._refill: deque[int] = deque()
        self._waiting = Waiting()
        self._turn_of_fresh = True

    def __len__(self) -> int:
        """Entries; a message may have two."""
        return len(self._waiting) + len(self._fresh) + len(self._refill)

    def arrived(self, message: int) -> None:
        """A new message."""
        self._fresh.put(message)

    def found(self, message: int, due: int, flushed: bool) -> None:
        """A deferred message, with the next attempt that its file has; `flushed` makes it due all the same."""
        self._waiting.push(due - LONG_AGO if flushed else due, message << 1)

    def wake(self, message: int, due: int) -> None:
        """A message to be tried at `due`, whatever its file says."""
        self._waiting.push(due, message << 1 | 1)

    def refill(self, message: int) -> None:
        """A message whose destination has room again."""
        self._refill.append(message)

    def flush(self) -> None:
        """Everything that waits is due, in its order."""
        self._waiting.make_due()

    def next(self, now: float) -> tuple[int, int | None] | None:
        """Return (message, the next attempt that its file should have or None for any), or None for nothing.

        Where the file has another next attempt, the message was tried in between and has an entry for that.
        """
        due = self._waiting.first_due()
        deferred_is_due = due is not None and due <= now
        if self._refill:
            return self._refill.popleft(), None
        if self._fresh and (self._turn_of_fresh or not deferred_is_due):
            message = self._fresh.take()
            assert message is not None
            self._turn_of_fresh = False
            return message, None
        if not deferred_is_due:
            return None
        self._turn_of_fresh = True
        due, key = self._waiting.pop()
        return key >> 1, None if key & 1 else due % LONG_AGO

    def next_time(self, now: float) -> float | None:
        """Return when `next` has something, in seconds since the epoch; None for never."""
        return now if self._refill or self._fresh else self._waiting.first_due()

    def is_next(self, message: int) -> bool:
        """Return whether a message is new here, or let in again: due, whatever its file says."""
        return self._fresh.holds(message) or message in self._refill

    def dues_of(self, message: int, stamps: Collection[int]) -> list[int]:
        """Return when a message is tried, by those of its entries that count: its file has one of the `stamps`.

        Negative, or 0, is at once.
        """
        dues = [due for due in self._waiting.dues_of(message << 1) if due % LONG_AGO in stamps]
        return dues + self._waiting.dues_of(message << 1 | 1)

    def oldest(self, most: int) -> Iterator[int]:
        """Yield messages that are let in again, and new ones, the oldest first; `most` of each."""
        yield from islice(self._refill, most)
        yield from self._fresh.oldest(most)

    @property
    def fresh(self) -> int:
        """Messages that are new."""
        return len(self._fresh)

    def fresh_at(self, place: int) -> int:
        """Return a new message by its place, the oldest at 0."""
        return self._fresh[place]

    @property
    def entries(self) -> int:
        """Places in the heap of deferred mail."""
        return len(self._waiting)

    def due_by(self, due: int, start: int, count: int) -> Iterator[tuple[int, int | None]]:
        """Yield what `next` would return of the entries in `count` places of the heap, if it is due by `due`."""
        for one, key in self._waiting.due_by(due, start, count):
            yield key >> 1, None if key & 1 else one % LONG_AGO

    def first_due(self) -> int | None:
        """Return the earliest next attempt of deferred mail, as Waiting does."""
        return self._waiting.first_due()
