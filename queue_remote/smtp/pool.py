"""The pool of open connections: keeps idle ones for the next message with the same options, and limits their number.

An idle connection is kept for `connectionidle` seconds. The one that was used last is used first, so that connections
that are not needed expire. A connection that has carried `connectionmessages` messages is not kept. If as many
connections are open as may be, the one that has been idle longest is closed.
"""

import asyncio
import time
from typing import NamedTuple

from queue_remote.config import RemoteConfig
from queue_remote.jobs import DeliveryOptions
from queue_remote.smtp.connection import Connection
from queue_smtp.client import ENVELOPE, ClientState

# To wait for the rest of a server's replies, once the verdict is known.
SETTLE_SECONDS = 5.0


class ConnectionKey(NamedTuple):
    """What mail must have in common to share a connection. Control files that were read again are a new `config`."""

    options: DeliveryOptions
    config: RemoteConfig


class Pool:
    """Open connections: `most` at a time, unless more are in use."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: set[Connection] = set()
        self._idle: dict[ConnectionKey, list[Connection]] = {}
        # Idle connections, the longest idle one first, with their keys and the times when they expire.
        self._expiry: dict[Connection, tuple[ConnectionKey, float]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._drained: asyncio.Future[None] | None = None

    def __len__(self) -> int:
        """Return how many connections are open."""
        return len(self._open)

    def add(self, connection: Connection) -> None:
        """Count a new connection until it ends."""
        self._open.add(connection)
        connection.on_end = self._forget

    def make_room(self) -> None:
        """Before a new connection: if there are too many, abort the one that has been idle longest."""
        if len(self._open) >= self._most and self._expiry:
            self._drop(next(iter(self._expiry)), gently=False)

    def make_much_room(self) -> bool:
        """Abort all idle connections; return whether there were any."""
        found = bool(self._expiry)
        for connection in list(self._expiry):
            self._drop(connection, gently=False)
        return found

    def take(self, key: ConnectionKey) -> Connection | None:
        """Return an idle connection, which is READY, None if there is none."""
        waiting = self._idle.get(key)
        if not waiting:
            return None
        connection = waiting.pop()
        if not waiting:
            del self._idle[key]
        del self._expiry[connection]
        return connection

    def give(self, key: ConnectionKey, connection: Connection) -> None:
        """Take back a connection whose transaction is done."""
        client = connection.client
        kept = client.transactions < key.config.connection_messages and key.config.connection_idle > 0
        if client.state is ClientState.READY and kept:
            self._idle.setdefault(key, []).append(connection)
            self._expiry[connection] = (key, time.monotonic() + key.config.connection_idle)
            connection.park(self._drop)
            if self._timer is None:
                self._set_timer(key.config.connection_idle)
        elif client.state in ENVELOPE:
            connection.park(lambda settled: self.give(key, settled), SETTLE_SECONDS)
        else:
            connection.close()

    def close_idle(self) -> None:
        """Close all idle connections with QUIT."""
        for connection in list(self._expiry):
            self._drop(connection)

    async def drain(self) -> None:
        """Close all idle connections with QUIT, and wait until every connection has ended."""
        self.close_idle()
        if self._open:
            self._drained = asyncio.get_running_loop().create_future()
            await self._drained

    def _drop(self, connection: Connection, gently: bool = True) -> None:
        key, _ = self._expiry.pop(connection)
        waiting = self._idle[key]
        waiting.remove(connection)
        if not waiting:
            del self._idle[key]
        connection.close()
        if not gently:
            connection.abort()

    def _forget(self, connection: Connection) -> None:
        self._open.discard(connection)
        if connection in self._expiry:
            self._drop(connection)
        if not self._open and self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    def _set_timer(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._close_expired)

    def _close_expired(self) -> None:
        self._timer = None
        now = time.monotonic()
        while self._expiry:
            connection, (_, end) = next(iter(self._expiry.items()))
            if end > now:
                self._set_timer(end - now)
                return
            self._drop(connection)
