"""The mail that dead destinations turned away, to be tried as soon as they are alive again. Pure.

Each such message has its next attempt as well, in the backlog. Over all destinations the latest MOST or so are
remembered; the others wait for that.
"""

from queue_send.destination import Destination

MOST = 100_000  # Of 8 bytes each.


class Away:
    """Counts what the destinations remember."""

    def __init__(self) -> None:
        self._count = 0

    def note(self, destination: Destination, message: int) -> None:
        """A message was turned away. If there are too many, its destination forgets its oldest, or this one."""
        if self._count >= MOST and self.take(destination) is None:
            return
        destination.away.put(message)
        self._count += 1

    def take(self, destination: Destination) -> int | None:
        """Forget and return the message that was turned away first, None where there is none."""
        message = destination.away.take()
        if message is not None:
            self._count -= 1
        return message

    def bring_back(self, destination: Destination) -> None:
        """A destination is alive: what it turned away waits for room in it."""
        self._count -= len(destination.away)
        destination.aside.join(destination.away)  # Each is tried once, although it may be there twice.

    def forget(self, destination: Destination) -> None:
        """A destination goes: what it turned away waits for its next attempt."""
        self._count -= len(destination.away)
