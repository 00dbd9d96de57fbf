"""How clients share queue-intake: what one of them may have at a time, and whose message is next. Pure.

A client is a user of this host, or a host of the network: its connections count together. A client at its limit waits,
and nobody else. Where there is no room for a connection, the client with most of them loses one. Trusted clients, such
as queue-smtpd, which limits its own clients, have only the limits of all.
"""

from collections import deque
from typing import Generic, NamedTuple, TypeVar

Item = TypeVar("Item")


class SharingLimits(NamedTuple):
    """What one client may have at a time: connections; messages that are not answered, and their bytes.

    all_connections and all_messages are what all clients may have; the last quarter is for trusted ones. There are more
    messages than connections, so that clients which never finish a message do not keep others from beginning one.
    """

    connections: int = 250
    messages: int = 500
    bytes: int = 256 << 20
    all_connections: int = 1000
    all_messages: int = 2000


def limits_for(descriptors: int) -> SharingLimits:
    """Return the limits of a process that may have so many descriptors."""
    usual = SharingLimits()
    most = min(usual.all_connections, descriptors // 5)
    return usual._replace(
        connections=min(usual.connections, most // 2),
        all_connections=most,
        all_messages=min(usual.all_messages, descriptors * 2 // 5),
    )


class ClientUsage:
    """What one client has at the moment: connections; messages that are not answered, and their bytes."""

    __slots__ = ("bytes", "connections", "messages", "trusted")

    def __init__(self, trusted: bool) -> None:
        self.trusted = trusted
        self.connections = self.messages = self.bytes = 0


class UsageCounts:
    """What all clients have, by their names, and what each may have more by the limits."""

    def __init__(self, limits: SharingLimits) -> None:
        self.connections = self.messages = 0
        self._limits = limits
        self._usages: dict[str, ClientUsage] = {}

    def connect(self, client: str, trusted: bool = False) -> ClientUsage | None:
        """Count a new connection; return what its client has, or None if there are too many connections."""
        found = self._usages.get(client)
        if not trusted and self._own(client) >= self._limits.connections:
            return None
        if self.connections >= _share(self._limits.all_connections, trusted):
            return None
        if found is None:
            found = self._usages[client] = ClientUsage(trusted)
        found.connections += 1
        self.connections += 1
        return found

    def evicted_for(self, client: str) -> str | None:
        """Return which client loses a connection, so that `client`, which was refused one, can have it.

        This is the one with most connections, if it has more than `client` would have then; None if there is none.
        """
        if self._own(client) + 1 >= self._limits.connections:
            return None
        names = (name for name, usage in self._usages.items() if not usage.trusted)
        name = max(names, key=self._own, default="")
        return name if self._own(name) > self._own(client) + 1 else None

    def _own(self, client: str) -> int:
        found = self._usages.get(client)
        return 0 if found is None else found.connections

    def disconnect(self, client: str) -> None:
        """Count the end of a connection. Its messages may still be without an answer."""
        self._usages[client].connections -= 1
        self.connections -= 1
        self._forget(client)

    def may_begin(self, usage: ClientUsage, trusted: bool) -> bool:
        """Return whether a client may begin another message. Its first one may have any size."""
        limits = self._limits
        few = trusted or (usage.messages < limits.messages and usage.bytes < limits.bytes)
        return few and self.messages < _share(limits.all_messages, trusted)

    def begin_message(self, usage: ClientUsage, size: int) -> None:
        """Count the beginning of a message."""
        usage.messages += 1
        usage.bytes += size
        self.messages += 1

    def end_message(self, client: str, size: int) -> None:
        """Count the end of a message."""
        found = self._usages[client]
        found.messages -= 1
        found.bytes -= size
        self.messages -= 1
        self._forget(client)

    def _forget(self, client: str) -> None:
        found = self._usages[client]
        if not found.connections and not found.messages:
            del self._usages[client]


def _share(most: int, trusted: bool) -> int:
    """Return up to how many of all a client may have another one."""
    return most if trusted else most * 3 // 4


class Turns(Generic[Item]):
    """Waiting items of clients, who take turns: one item of each."""

    def __init__(self) -> None:
        self._items: dict[str, deque[Item]] = {}
        self._order: deque[str] = deque()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, client: str, item: Item) -> None:
        """Add an item at the end of its client's."""
        if client not in self._items:
            self._items[client] = deque()
            self._order.append(client)
        self._items[client].append(item)
        self._count += 1

    def take(self, most: int) -> list[Item]:
        """Return the next items, at most so many, and forget them."""
        taken: list[Item] = []
        while self._order and len(taken) < most:
            client = self._order.popleft()
            items = self._items[client]
            taken.append(items.popleft())
            if items:
                self._order.append(client)
            else:
                del self._items[client]
        self._count -= len(taken)
        return taken
