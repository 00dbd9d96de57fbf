"""Messages that wait on disk because their destination has no room for them, with the ends of their lifetimes. Pure.

A queue with 16 bytes per message. It consists of blocks of BLOCK messages, each with the earliest end of its lifetimes,
so that expired messages are found among a million without examining the others.
"""

from array import array
from collections import deque
from itertools import compress

from queue_send.scheduler.fifo import Fifo, find_number

NEVER = (1 << 63) - 1  # The end for a message that also has a next attempt in the backlog.
BLOCK = 500
_REPEATS_MOST = 1000  # Messages that one call skips because they were taken before.
_TAKEN_MOST = 100_000  # Messages remembered as taken. One that is not remembered is tried once too often.


class _Block:
    """Messages in order. `at` is the index of the oldest that is left; `ends` is None if each end is NEVER.

    `first` is the earliest end. `repeated`: the messages were suspended, and may be in the queue a second time.
    """

    __slots__ = ("at", "ends", "first", "keys", "repeated")

    def __init__(self, keys: "array[int]", ends: "array[int] | None", repeated: bool = False) -> None:
        self.keys = keys
        self.ends = ends
        self.first = NEVER if ends is None else min(ends, default=NEVER)
        self.at = 0
        self.repeated = repeated


class Overflow:
    """The queue of one destination. The ends of lifetimes are in seconds since the epoch."""

    __slots__ = ("_blocks", "_count", "_taken")

    def __init__(self) -> None:
        self._blocks: deque[_Block] = deque()  # Each has a message.
        self._count = 0
        self._taken: set[int] | None = None  # Messages taken since a repeated block came in.

    def __len__(self) -> int:
        return self._count

    def holds(self, message: int) -> bool:
        """Returns whether a message is in the queue."""
        return any(place >= block.at for block in self._blocks for place in find_number(block.keys, message))

    def oldest(self, most: int) -> list[int]:
        """Returns up to `most` messages, the oldest first."""
        found: list[int] = []
        for block in self._blocks:
            if len(found) >= most:
                break
            found += block.keys[block.at : block.at + most - len(found)]
        return found

    def put(self, message: int, end: int) -> None:
        """Adds a message."""
        block = self._blocks[-1] if self._blocks else None
        if block is None or block.ends is None or len(block.keys) >= BLOCK:
            block = _Block(array("q"), array("q"))
            self._blocks.append(block)
        assert block.ends is not None
        block.keys.append(message)
        block.ends.append(end)
        block.first = min(block.first, end)
        self._count += 1

    def take(self) -> int | None:
        """Removes and returns the oldest message; None if there is none."""
        message, repeated = self._pop()
        if self._taken is None or message is None:
            self._taken = None
            return message
        for _ in range(_REPEATS_MOST):
            if message is None or not repeated or message not in self._taken:
                break
            message, repeated = self._pop()
        if message is not None and len(self._taken) < _TAKEN_MOST:
            self._taken.add(message)
        return message

    def _pop(self) -> tuple[int | None, bool]:
        if not self._blocks:
            return None, False
        block = self._blocks[0]
        message = block.keys[block.at]
        block.at += 1
        self._count -= 1
        if block.at == len(block.keys):
            self._blocks.popleft()
        return message, block.repeated

    def take_expired(self, now: float, most: int) -> list[int]:
        """Removes and returns expired messages, the oldest first: `most`, and the rest of a block."""
        found: list[int] = []
        if all(block.first >= now for block in self._blocks):
            return found
        left: deque[_Block] = deque()
        for block in self._blocks:
            if block.first < now and block.ends is not None and len(found) < most:
                keys, ends = block.keys[block.at :], block.ends[block.at :]
                found += compress(keys, [end < now for end in ends])
                stay = [end >= now for end in ends]
                block = _Block(array("q", compress(keys, stay)), array("q", compress(ends, stay)))
            if block.keys:
                left.append(block)
        self._blocks = left
        self._count -= len(found)
        return found

    def join(self, other: Fifo) -> None:
        """Appends all messages of `other`, and empties it. A message that is in the queue twice is taken once."""
        if other:
            block = _Block(other.take_all(), None, repeated=True)
            self._blocks.append(block)
            self._count += len(block.keys)
            self._taken = self._taken or set()
