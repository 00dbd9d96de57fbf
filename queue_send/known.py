"""The messages of earlier runs that were found at start: some 9 bytes each, so that a million fit. Pure.

A notice about one of them is late and changes nothing; one about a message whose number was used again
after it ended does count.
"""

from array import array
from bisect import bisect_left

_PARTS = 4093  # Of ten million numbers each part has some thousand: one more is put into its place at once.


class Known:
    """Numbers that have not ended, in sorted parts."""

    def __init__(self) -> None:
        self._parts: dict[int, array[int]] = {}

    def note(self, message: int) -> None:
        """A message was found."""
        part = self._parts.get(message % _PARTS)
        if part is None:
            part = self._parts[message % _PARTS] = array("Q")
        place = bisect_left(part, message)
        if place == len(part) or part[place] != message:
            part.insert(place, message)

    def holds(self, message: int) -> bool:
        """Return whether the message was found at start and has not ended."""
        part = self._parts.get(message % _PARTS)
        if part is None:
            return False
        place = bisect_left(part, message)
        return place < len(part) and part[place] == message

    def forget(self, message: int) -> None:
        """The message has ended; its number may be used again."""
        if self.holds(message):
            part = self._parts[message % _PARTS]
            del part[bisect_left(part, message)]
