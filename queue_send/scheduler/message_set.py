"""A set of message numbers in little memory. Pure.

Numbers are those of inodes: many of them lie close together. A page has a bit for each of PAGE numbers, so a million
messages take a few MB at most where a set of int objects takes a hundred.
"""

from array import array

_BITS = 10
PAGE = 1 << _BITS
_LOW = PAGE - 1


class MessageSet:
    """The numbers, each once. `count` is how many there are."""

    __slots__ = ("_pages", "count")

    def __init__(self) -> None:
        self._pages: dict[int, int] = {}
        self.count = 0

    def __len__(self) -> int:
        return self.count

    def __contains__(self, message: int) -> bool:
        return bool(self._pages.get(message >> _BITS, 0) >> (message & _LOW) & 1)

    def add(self, message: int) -> bool:
        """Add a number; return whether it was not in the set."""
        number = message >> _BITS
        page = self._pages.get(number, 0)
        bit = 1 << (message & _LOW)
        if page & bit:
            return False
        self._pages[number] = page | bit
        self.count += 1
        return True

    def add_all(self, messages: "array[int]") -> None:
        """Add all of many numbers."""
        for message in messages:
            self.add(message)

    def discard(self, message: int) -> bool:
        """Remove a number; return whether it was in the set."""
        number = message >> _BITS
        page = self._pages.get(number, 0)
        bit = 1 << (message & _LOW)
        if not page & bit:
            return False
        if page == bit:
            del self._pages[number]
        else:
            self._pages[number] = page ^ bit
        self.count -= 1
        return True
