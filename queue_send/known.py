"""The messages of earlier runs that were found at start: 9 bytes each, so that a million fit.

A notice about one of them is late and changes nothing; one about a message whose number was used again
after it ended does count.
"""

from array import array
from bisect import bisect_left


class Known:
    """Ids by bucket, sorted, each with a mark once its message has ended."""

    def __init__(self, split: int) -> None:
        self._split = split
        self._ids: dict[int, array[int]] = {}
        self._ended: dict[int, bytearray] = {}
        self._fresh: set[int] = set()
        self._late: set[int] = set()

    def note_late(self, message: int) -> None:
        """A message was found in a bucket that had been read, when the disk could tell of it at last."""
        self._late.add(message)

    def note(self, message: int) -> None:
        """A message was found in the bucket that is being read."""
        self._fresh.add(message)

    def seal(self, bucket: int) -> None:
        """The bucket has been read."""
        self._ids[bucket] = array("Q", sorted(self._fresh))
        self._ended[bucket] = bytearray(len(self._fresh))
        self._fresh = set()

    def holds(self, message: int) -> bool:
        """Return whether the message was found at start and has not ended."""
        if message in self._fresh or message in self._late:
            return True
        place = self._place(message)
        return place is not None and not self._ended[message % self._split][place]

    def forget(self, message: int) -> None:
        """The message has ended; its number may be used again."""
        self._fresh.discard(message)
        self._late.discard(message)
        place = self._place(message)
        if place is not None:
            self._ended[message % self._split][place] = 1

    def _place(self, message: int) -> int | None:
        ids = self._ids.get(message % self._split)
        if ids is None:
            return None
        place = bisect_left(ids, message)
        return place if place < len(ids) and ids[place] == message else None
