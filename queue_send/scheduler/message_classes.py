"""Which messages are not of the first class (queue_wire.control.priorities), a bit for each. Pure.

The rank of a class is its place in control/priorities, from 0 on; a class that is not there is the last one. Rank 0 is
the first class, the others are lower.
"""

from collections.abc import Iterable

from queue_send.scheduler.message_set import MessageSet


class MessageClasses:
    """The classes of messages, by their numbers. `any` says whether a message is of a lower class."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names = list(names) or [""]
        self._members = [MessageSet() for _ in self._names]  # That of the first class is empty.
        self.any = False

    def rank(self, message: int) -> int:
        """Return the rank of a message's class."""
        if self.any:
            for rank, members in enumerate(self._members):
                if message in members:
                    return rank
        return 0

    def name(self, message: int) -> str:
        """Return the name of a message's class; empty for the first one."""
        rank = self.rank(message)
        return self._names[rank] if rank else ""

    def put(self, message: int, name: str) -> None:
        """Note the class of a message, empty for the first one."""
        self.discard(message)
        if not name or name == self._names[0]:
            return
        if name not in self._names:
            self._names.append(name)
            self._members.append(MessageSet())
        self._members[self._names.index(name)].add(message)
        self.any = True

    def discard(self, message: int) -> None:
        """Forget a message that has ended."""
        if self.any:
            for members in self._members:
                members.discard(message)
            self.any = any(members.count for members in self._members)
