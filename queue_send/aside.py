"""The messages that wait on the disk for room in one destination, with the ends of their lifetimes. Pure.

First in, first out, 16 bytes each. What leaves takes its end with it: nothing is left behind that could later be
mistaken for a message that uses the same number. They are kept in pieces of PIECE, each with its earliest end, so
that those that are late are found among a million without a look at the others.
"""

from array import array
from collections import deque
from itertools import compress

from queue_send.fifo import Keys
from queue_send.keys import find_key

NEVER = (1 << 63) - 1  # The end of what has a next attempt in time, too.
PIECE = 500
_REPEATS_MOST = 1000  # Keys that are passed over at once because they were taken before.
_TAKEN_MOST = 100_000  # Keys that are remembered for that; one that is not is tried once too often.


class _Piece:
    """`at` is the place of the oldest that is left; `ends` is None where each is NEVER, `first` the earliest of them.

    `again`: these were turned away, and may be here a second time.
    """

    __slots__ = ("again", "at", "ends", "first", "keys")

    def __init__(self, keys: "array[int]", ends: "array[int] | None", again: bool = False) -> None:
        self.keys = keys
        self.ends = ends
        self.first = NEVER if ends is None else min(ends, default=NEVER)
        self.at = 0
        self.again = again


class Aside:
    """Ends are in seconds since the epoch."""

    __slots__ = ("_count", "_pieces", "_taken")

    def __init__(self) -> None:
        self._pieces: deque[_Piece] = deque()  # None of them is empty.
        self._count = 0
        self._taken: set[int] | None = None  # What was taken since there has been a piece whose keys may be twice here.

    def __len__(self) -> int:
        return self._count

    def holds(self, message: int) -> bool:
        """Return whether a message is among them."""
        return any(place >= piece.at for piece in self._pieces for place in find_key(piece.keys, message))

    def oldest(self, most: int) -> list[int]:
        """Return those that came first, `most` of them."""
        found: list[int] = []
        for piece in self._pieces:
            if len(found) >= most:
                break
            found += piece.keys[piece.at : piece.at + most - len(found)]
        return found

    def put(self, message: int, end: int) -> None:
        """Add a message."""
        piece = self._pieces[-1] if self._pieces else None
        if piece is None or piece.ends is None or len(piece.keys) >= PIECE:
            piece = _Piece(array("q"), array("q"))
            self._pieces.append(piece)
        assert piece.ends is not None
        piece.keys.append(message)
        piece.ends.append(end)
        piece.first = min(piece.first, end)
        self._count += 1

    def take(self) -> int | None:
        """Remove and return the one that came first, None where there is none."""
        message, again = self._pop()
        if self._taken is None or message is None:
            self._taken = None
            return message
        for _ in range(_REPEATS_MOST):
            if message is None or not again or message not in self._taken:
                break
            message, again = self._pop()
        if message is not None and len(self._taken) < _TAKEN_MOST:
            self._taken.add(message)
        return message

    def _pop(self) -> tuple[int | None, bool]:
        if not self._pieces:
            return None, False
        piece = self._pieces[0]
        message = piece.keys[piece.at]
        piece.at += 1
        self._count -= 1
        if piece.at == len(piece.keys):
            self._pieces.popleft()
        return message, piece.again

    def take_late(self, now: float, most: int) -> list[int]:
        """Remove and return those that are past their end, in their order; no more than `most` and a piece."""
        found: list[int] = []
        if all(piece.first >= now for piece in self._pieces):
            return found
        left: deque[_Piece] = deque()
        for piece in self._pieces:
            if piece.first < now and piece.ends is not None and len(found) < most:
                keys, ends = piece.keys[piece.at :], piece.ends[piece.at :]
                found += compress(keys, [end < now for end in ends])
                stay = [end >= now for end in ends]
                piece = _Piece(array("q", compress(keys, stay)), array("q", compress(ends, stay)))
            if piece.keys:
                left.append(piece)
        self._pieces = left
        self._count -= len(found)
        return found

    def join(self, other: Keys) -> None:
        """Take all of the other's in behind these. One that is taken before it is not taken again."""
        if other:
            piece = _Piece(other.take_all(), None, again=True)
            self._pieces.append(piece)
            self._count += len(piece.keys)
            self._taken = self._taken or set()
