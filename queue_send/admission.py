"""Which waiting message is loaded next: new mail and due deferred mail, one and one. Pure.

A backlog never starves new mail, and new mail never starves the backlog. Mail whose destination has room
again comes before both: it was let in once already.
"""

from collections import deque

from queue_send.waiting import LONG_AGO, Waiting


class Admission:
    """The messages of one channel that are not loaded, by number."""

    def __init__(self) -> None:
        self._fresh: deque[int] = deque()
        self._refill: deque[int] = deque()
        self._waiting = Waiting()
        self._turn_of_fresh = True

    def __len__(self) -> int:
        """Entries; a message may have two."""
        return len(self._waiting) + len(self._fresh) + len(self._refill)

    def arrived(self, message: int) -> None:
        """A new message."""
        self._fresh.append(message)

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
            self._turn_of_fresh = False
            return self._fresh.popleft(), None
        if not deferred_is_due:
            return None
        self._turn_of_fresh = True
        due, key = self._waiting.pop()
        return key >> 1, None if key & 1 else due % LONG_AGO

    def next_time(self, now: float) -> float | None:
        """Return when `next` has something, in seconds since the epoch; None for never."""
        return now if self._refill or self._fresh else self._waiting.first_due()
