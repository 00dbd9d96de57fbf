"""New messages that are not loaded, each submitter's in the order of their arrival. Pure.

Submitters take turns. Those of whom few messages are loaded take every second turn, however many there are of the
others, and there is room in the active set for them when it is full for the others (scheduler.py). So nobody's first
messages wait behind all those of somebody else. Messages whose submitter is not known have one queue together.
"""

from collections import OrderedDict
from collections.abc import Iterator
from itertools import islice

from queue_send.scheduler.fifo import Fifo

FEW = 8  # A submitter has few messages loaded if there are fewer.
SUBMITTERS_MAX = 1000  # Queues, some 500 bytes each. New messages of further submitters have one queue together.

Queues = OrderedDict[bytes | None, Fifo]


class LoadedCounts:
    """How many messages of each submitter are loaded."""

    def __init__(self) -> None:
        self._counts: dict[bytes, int] = {}

    def are_few(self, submitter: bytes | None) -> bool:
        """Return whether few messages of a submitter are loaded."""
        return submitter is not None and self._counts.get(submitter, 0) < FEW

    def add(self, submitter: bytes) -> bool:
        """Count a message that is loaded; return whether there are no longer few."""
        count = self._counts[submitter] = self._counts.get(submitter, 0) + 1
        return count == FEW

    def remove(self, submitter: bytes) -> bool:
        """Count a message that is not loaded any more; return whether there are few again."""
        count = self._counts[submitter] - 1
        if count:
            self._counts[submitter] = count
        else:
            del self._counts[submitter]
        return count == FEW - 1


class NewMail:
    """The new messages of one class. `loaded` is of all classes together."""

    def __init__(self, loaded: LoadedCounts) -> None:
        self._loaded = loaded
        self._few: Queues = OrderedDict()  # Of submitters who have few messages loaded; who is next is first.
        self._many: Queues = OrderedDict()  # Of the others.
        self._few_are_next = True
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def has(self, few: bool) -> bool:
        """Return whether `take` returns a message."""
        return bool(self._few) if few else self._count > 0

    def put(self, message: int, submitter: bytes | None) -> None:
        """Add a message."""
        queues = self._few if submitter in self._few else self._many
        if submitter not in queues:
            if len(self._few) + len(self._many) > SUBMITTERS_MAX:
                submitter = None
            queues = self._few if self._loaded.are_few(submitter) else self._many
        queues.setdefault(submitter, Fifo()).put(message)
        self._count += 1

    def take(self, few: bool) -> int | None:
        """Remove and return the message whose turn it is; None if there is none.

        `few`: only of a submitter of whom few are loaded.
        """
        queues = self._few if few or not self._many or (self._few and self._few_are_next) else self._many
        if not queues:
            return None
        self._few_are_next = queues is self._many
        submitter, queue = queues.popitem(last=False)
        message = queue.take()
        if queue:
            queues[submitter] = queue
        self._count -= 1
        return message

    def sort(self, submitter: bytes) -> None:
        """Have a submitter take the turns that are right for the number of messages that are loaded now."""
        before, after = (self._many, self._few) if self._loaded.are_few(submitter) else (self._few, self._many)
        queue = before.pop(submitter, None)
        if queue is not None:
            after[submitter] = queue

    def holds(self, message: int) -> bool:
        """Return whether a message is here."""
        return any(queue.holds(message) for queue in self.queues())

    def queues(self) -> Iterator[Fifo]:
        """Yield the messages of each submitter, the oldest first."""
        yield from self._few.values()
        yield from self._many.values()

    def oldest(self, most: int) -> Iterator[int]:
        """Yield up to `most` messages, the oldest ones of each submitter together."""
        queues = list(islice(self.queues(), most))
        for queue in queues:
            yield from queue.oldest(max(1, most // len(queues)))
