"""Open connections: those that wait for the next job that goes their way, and how many there are in all.

A connection that is done with a transaction waits for `connectionidle` seconds, the one that was used last going
first, so that those that are not needed grow old. One that has had `connectionmessages` is not kept. Where there
are as many connections as may be open, the one that has waited longest makes room.
"""

import asyncio
import time
from typing import NamedTuple

from queue_remote.connection import Connection
from queue_remote.settings import Settings
from queue_remote.ways import Way
from queue_smtp.client import ENVELOPE, ClientState

# For the rest of a peer's replies, once the verdict is known.
SETTLE_SECONDS = 5.0


class Key(NamedTuple):
    """What connections have in common that can carry each other's mail; control files read again are new settings."""

    way: Way
    settings: Settings


class Pool:
    """At most `most` connections, as far as waiting ones can make room."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: set[Connection] = set()
        self._idle: dict[Key, list[Connection]] = {}
        # What waits, in the order in which it began to, with its key and the time when it is to go.
        self._waiting: dict[Connection, tuple[Key, float]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._drained: asyncio.Future[None] | None = None

    def __len__(self) -> int:
        """How many are open."""
        return len(self._open)

    def add(self, connection: Connection) -> None:
        """Count a new connection, until it ends."""
        self._open.add(connection)
        connection.on_end = self._forget

    def make_room(self) -> None:
        """Before a new connection: if there are too many, close the one that has waited longest, at once."""
        if len(self._open) >= self._most and self._waiting:
            self._drop(next(iter(self._waiting)), gently=False)

    def make_much_room(self) -> bool:
        """Close all that wait, at once; return whether there were any."""
        found = bool(self._waiting)
        for connection in list(self._waiting):
            self._drop(connection, gently=False)
        return found

    def take(self, key: Key) -> Connection | None:
        """Return a connection that is READY, None where there is none."""
        waiting = self._idle.get(key)
        if not waiting:
            return None
        connection = waiting.pop()
        if not waiting:
            del self._idle[key]
        del self._waiting[connection]
        return connection

    def give(self, key: Key, connection: Connection) -> None:
        """Take over a connection whose transaction is done."""
        client = connection.client
        kept = client.transactions < key.settings.connection_messages and key.settings.connection_idle > 0
        if client.state is ClientState.READY and kept:
            self._idle.setdefault(key, []).append(connection)
            self._waiting[connection] = (key, time.monotonic() + key.settings.connection_idle)
            connection.park(self._drop)
            if self._timer is None:
                self._set_timer(key.settings.connection_idle)
        elif client.state in ENVELOPE:
            connection.park(lambda settled: self.give(key, settled), SETTLE_SECONDS)
        else:
            connection.close()

    def part(self) -> None:
        """Close all that wait, in good order."""
        for connection in list(self._waiting):
            self._drop(connection)

    async def drain(self) -> None:
        """Close all that wait, in good order, and wait until every connection has ended."""
        self.part()
        if self._open:
            self._drained = asyncio.get_running_loop().create_future()
            await self._drained

    def _drop(self, connection: Connection, gently: bool = True) -> None:
        key, _ = self._waiting.pop(connection)
        waiting = self._idle[key]
        waiting.remove(connection)
        if not waiting:
            del self._idle[key]
        connection.close()
        if not gently:
            connection.abort()

    def _forget(self, connection: Connection) -> None:
        self._open.discard(connection)
        if connection in self._waiting:
            self._drop(connection)
        if not self._open and self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    def _set_timer(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._look_at_clock)

    def _look_at_clock(self) -> None:
        self._timer = None
        now = time.monotonic()
        while self._waiting:
            connection, (_, end) = next(iter(self._waiting.items()))
            if end > now:
                self._set_timer(end - now)
                return
            self._drop(connection)
