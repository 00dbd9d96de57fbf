"""The announced messages as queue-todo knows them: they stay in todo/, and queue-send delivers them.

Of each message it keeps what is needed to classify it later: the rules of the announcement, and the identity of the
file that was read. A message is here until it is classified, or queue-send says that it has ended. Until then its
number is not examined. If a scan or inotify names the number meanwhile, which may be for a new message of this number,
the number is examined after that. Pure.
"""

from typing import NamedTuple

from queue_wire.control.rewrite import Rules

ANNOUNCED_MAX = 12_000  # Fewer than queue/marks has slots.
BYTES_MAX = 32 << 20  # Bytes of envelopes.


class Announcement(NamedTuple):
    """One announced message. `read` identifies the file in todo/ that was read, `size` is its length in bytes.

    `priority` is its class, empty for the first one.
    """

    rules: Rules
    read: tuple[int, int, int]
    size: int
    priority: str = ""


class Announcements:
    """The announced messages by number."""

    def __init__(self) -> None:
        self._messages: dict[int, Announcement] = {}
        self._again: set[int] = set()
        self._room = BYTES_MAX

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def full(self) -> bool:
        """Whether no more messages may be announced."""
        return self._room <= 0 or len(self._messages) >= ANNOUNCED_MAX

    def add(self, message: int, announcement: Announcement) -> None:
        """Add a message that is announced now."""
        self._messages[message] = announcement
        self._room -= announcement.size

    def get(self, message: int) -> Announcement | None:
        """Return the announcement of a message, None for every other number."""
        return self._messages.get(message)

    def defer(self, message: int) -> bool:
        """Return whether a number is that of an announced message; it is to be examined again after its end then."""
        if message not in self._messages:
            return False
        self._again.add(message)
        return True

    def remove(self, message: int) -> bool:
        """Remove a message that is classified or gone; return whether its number is to be examined again."""
        announcement = self._messages.pop(message, None)
        if announcement is not None:
            self._room += announcement.size
        again = message in self._again
        self._again.discard(message)
        return again
