"""Message numbers first in, first out, 8 bytes each. Pure."""

from array import array
from collections.abc import Iterable, Iterator

from queue_send.keys import find_key


class Keys:
    """A deque of objects would take five times that."""

    __slots__ = ("_in", "_out")

    def __init__(self, keys: Iterable[int] = ()) -> None:
        self._in = array("q", keys)
        self._out = array("q")  # Its last is the oldest of all.

    def __len__(self) -> int:
        return len(self._in) + len(self._out)

    def __iter__(self) -> Iterator[int]:
        """The oldest first."""
        yield from reversed(self._out)
        yield from self._in

    def __getitem__(self, place: int) -> int:
        """Return one by its place, the oldest at 0."""
        left = len(self._out)
        return self._out[left - place - 1] if place < left else self._in[place - left]

    def holds(self, key: int) -> bool:
        """Return whether a key is among them."""
        return any(True for keys in (self._in, self._out) for _ in find_key(keys, key))

    def oldest(self, most: int) -> list[int]:
        """Return the oldest, `most` of them."""
        first = self._out[: -most - 1 : -1].tolist()
        return first + self._in[: most - len(first)].tolist()

    def put(self, key: int) -> None:
        """Add one."""
        self._in.append(key)

    def take(self) -> int | None:
        """Remove and return the oldest, None where there is none."""
        if not self._out:
            self._in.reverse()
            self._in, self._out = self._out, self._in
        return self._out.pop() if self._out else None

    def take_all(self) -> "array[int]":
        """Remove and return all, the oldest first."""
        found = self._out[::-1] + self._in
        self._in, self._out = array("q"), array("q")
        return found
