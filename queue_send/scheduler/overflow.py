"""Messages that wait on disk because their destination has no room for them, with the ends of their lifetimes. Pure.

A queue with some 18 bytes per message. It consists of blocks of BLOCK messages, each with the earliest end of its
lifetimes, so that expired messages are found among a million without examining the others. A message is in the queue
once: `_members` has its number. A key in a block whose number is not there is left over, and is passed over.
"""

from array import array
from itertools import compress

from queue_send.scheduler.fifo import Fifo
from queue_send.scheduler.message_set import MessageSet

NEVER = (1 << 63) - 1  # The end for a message that also has a next attempt in the backlog.
BLOCK = 500
_LEFT_OVER_MAX = 1000  # Keys that one call passes over because their messages are not in the queue any more.


class _Block:
    """Messages in order. `at` is the index of the oldest that is left; `ends` is None if each end is NEVER.

    `first` is the earliest end.
    """

    __slots__ = ("at", "ends", "first", "keys")

    def __init__(self, keys: "array[int]", ends: "array[int] | None") -> None:
        self.keys = keys
        self.ends = ends
        self.first = NEVER if ends is None else min(ends, default=NEVER)
        self.at = 0


class Overflow:
    """The queue of one destination. The ends of lifetimes are in seconds since the epoch."""

    __slots__ = ("_blocks", "_members", "_swept")

    def __init__(self) -> None:
        # Each has a key. A list, since an empty deque takes 600 bytes; a million messages have 2,000 blocks.
        self._blocks: list[_Block] = []
        self._members = MessageSet()
        self._swept = 0  # The blocks, from the first on, that `sweep` has examined in this round.

    def __len__(self) -> int:
        return self._members.count

    def holds(self, message: int) -> bool:
        """Return whether a message is in the queue."""
        return message in self._members

    def oldest(self, most: int) -> list[int]:
        """Return up to `most` messages, the oldest first."""
        found: dict[int, None] = {}
        for block in self._blocks:
            for key in block.keys[block.at : block.at + most + _LEFT_OVER_MAX]:
                if len(found) >= most:
                    return list(found)
                if key in self._members:
                    found[key] = None
        return list(found)

    def put(self, message: int, end: int) -> None:
        """Add a message. One that is in the queue keeps its place."""
        if not self._members.count:
            self._clear()
        if not self._members.add(message):
            return
        block = self._blocks[-1] if self._blocks else None
        if block is None or block.ends is None or len(block.keys) >= BLOCK:
            block = _Block(array("q"), array("q"))
            self._blocks.append(block)
        assert block.ends is not None
        block.keys.append(message)
        block.ends.append(end)
        block.first = min(block.first, end)

    def take(self) -> int | None:
        """Remove and return the oldest message; None if there is none.

        Behind very many keys that are left over it returns such a message: the caller finds that it is not to be tried.
        """
        message = None
        for _ in range(_LEFT_OVER_MAX):
            if not self._members.count:
                self._clear()
                return None
            block = self._blocks[0]
            message = block.keys[block.at]
            block.at += 1
            if block.at == len(block.keys):
                del self._blocks[0]
                self._swept = max(0, self._swept - 1)
            if self._members.discard(message):
                return message
        return message

    def _clear(self) -> None:
        self._blocks.clear()
        self._swept = 0

    def take_expired(self, now: float, most: int) -> list[int]:
        """Remove and return expired messages, the oldest first: `most`, and the rest of a block."""
        found: list[int] = []
        if all(block.first >= now for block in self._blocks):
            return found
        left: list[_Block] = []
        for block in self._blocks:
            if block.first < now and block.ends is not None and len(found) < most:
                keys, ends = array("q"), array("q")
                for key, end in zip(block.keys[block.at :], block.ends[block.at :], strict=True):
                    if end >= now:
                        keys.append(key)
                        ends.append(end)
                    elif self._members.discard(key):
                        found.append(key)
                block = _Block(keys, ends)
            if block.keys:
                left.append(block)
        self._blocks = left
        self._swept = 0
        return found

    def join(self, other: Fifo) -> None:
        """Append all messages of `other`, and empty it. A message that is in the queue keeps its place."""
        keys = other.take_all()
        if keys:
            self._members.add_all(keys)
            self._blocks.append(_Block(keys, None))

    def sweep(self, waiting: MessageSet, most: int) -> int:
        """Remove messages that are not in `waiting` from the next blocks; return how many blocks it has examined.

        The round is over when these are fewer than `most`.
        """
        for examined in range(most):
            if self._swept >= len(self._blocks):
                self._swept = 0
                return examined
            block = self._blocks[self._swept]
            keys = block.keys[block.at : block.at + BLOCK]
            ends = None if block.ends is None else block.ends[block.at : block.at + BLOCK]
            rest = block.keys[block.at + BLOCK :]  # Of a block that has joined.
            if rest:
                self._blocks.insert(self._swept + 1, _Block(rest, None))
            for key in keys:
                if key not in waiting:
                    self._members.discard(key)
            stay = [key in self._members for key in keys]
            if any(stay):
                left = None if ends is None else array("q", compress(ends, stay))
                self._blocks[self._swept] = _Block(array("q", compress(keys, stay)), left)
                self._swept += 1
            else:
                del self._blocks[self._swept]
        return most
