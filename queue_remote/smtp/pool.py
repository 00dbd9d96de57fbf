"""The pool of open connections: keeps idle ones for the next message with the same options, and limits their number.

An idle connection is kept for `connectionidle` seconds. The one that was used last is used first, so that connections
that are not needed expire. A connection that has carried `connectionmessages` messages is not kept. If as many
connections are open as may be, the one that has been idle longest is closed.

While this process is busy, small messages are carried behind others by connections whose servers answer promptly
(`join`): what limits the rate then is this process, and not the servers, and fewer writes and reads are needed. A
message whose turn does not come within 100 ms is taken back and gets a connection of its own: the server has become
slow, and sets the pace.
"""

import asyncio
import time

from queue_remote.options import ConnectionKey
from queue_remote.smtp.connection import Connection
from queue_remote.tls.tls_stalls import TlsStalls
from queue_smtp.client import ENVELOPE, ClientState
from queue_wire.control.registry import CONNECTIONIDLE, CONNECTIONMESSAGES

# To wait for the rest of a server's replies, once the verdict is known.
SETTLE_SECONDS = 5.0
# A message that is carried behind others is taken back after so long: some ten times what a prompt server needs.
BEHIND_SECONDS = 0.1
# This process is busy if it uses, or waits for, more than this share of a processor, over so many seconds at least.
BUSY_SHARE = 0.4
MEASURED_SECONDS = 0.05
# Of this thread: nanoseconds on a processor, nanoseconds in which it was ready to run and waited for one, time slices.
STATISTICS = "/proc/thread-self/schedstat"


class ProcessorShare:
    """Measures whether the thread of the event loop is busy.

    The time in which it waits for a processor counts: if all processors are busy, what saves work is worth while.
    """

    __slots__ = ("_since", "_statistics", "_used", "busy")

    def __init__(self, statistics: str = STATISTICS) -> None:
        self.busy = False
        self._statistics = statistics
        self._since = time.monotonic()
        self._used = self._read()

    def _read(self) -> float:
        try:
            with open(self._statistics, "rb", buffering=0) as file:
                ran, waited, _ = file.read().split()
            return (int(ran) + int(waited)) / 1e9
        except (OSError, ValueError):
            return time.thread_time()  # A kernel without these statistics.

    def measure(self) -> None:
        """Set `busy`, if it is time to."""
        seconds = time.monotonic() - self._since
        if seconds >= MEASURED_SECONDS:
            used = self._read()
            self.busy = used - self._used > BUSY_SHARE * seconds
            self._since += seconds
            self._used = used


class Pool:
    """Open connections: `most` at a time, unless more are in use. `tls_stalls` is what the next ones should know."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: set[Connection] = set()
        self._idle: dict[ConnectionKey, list[Connection]] = {}
        # Idle connections, the longest idle one first, with their keys and the times when they expire.
        self._expiry: dict[Connection, tuple[ConnectionKey, float]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._drained: asyncio.Future[None] | None = None
        # Busy connections that may take more messages, the one to take first at the end.
        self._joinable: dict[ConnectionKey, list[Connection]] = {}
        self._listed: dict[Connection, ConnectionKey] = {}
        # Connections with messages that wait behind others.
        self._queued: set[Connection] = set()
        self._queue_timer: asyncio.TimerHandle | None = None
        self.share = ProcessorShare()
        self.tls_stalls = TlsStalls()

    def __len__(self) -> int:
        """Return how many connections are open."""
        return len(self._open)

    def add(self, connection: Connection) -> None:
        """Count a new connection until it ends."""
        self._open.add(connection)
        connection.on_end = self._forget

    def close_oldest_if_full(self) -> None:
        """Before a new connection: if there are too many, abort the one that has been idle longest."""
        if len(self._open) >= self._most and self._expiry:
            self._drop(next(iter(self._expiry)), gently=False)

    def abort_idle(self) -> bool:
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

    def join(self, key: ConnectionKey) -> Connection | None:
        """Return a connection that carries messages and takes one more, None if there is none or no need."""
        candidates = self._joinable.get(key)
        if not candidates:
            return None
        while candidates:
            connection = candidates[-1]
            if self.share.busy and connection.takes_more(key.config.values[CONNECTIONMESSAGES]):
                self._queued.add(connection)
                if self._queue_timer is None:
                    self._queue_timer = asyncio.get_running_loop().call_later(BEHIND_SECONDS, self._take_back)
                return connection
            del self._listed[connection]
            candidates.pop()
        del self._joinable[key]
        return None

    def offer(self, key: ConnectionKey, connection: Connection) -> None:
        """Let more messages join those that a connection carries."""
        if not self.share.busy or connection in self._listed:
            return
        if connection.takes_more(key.config.values[CONNECTIONMESSAGES]):
            self._listed[connection] = key
            self._joinable.setdefault(key, []).append(connection)

    def _take_back(self) -> None:
        """Take back messages that have waited too long behind others."""
        self._queue_timer = None
        before = time.monotonic() - BEHIND_SECONDS
        for connection in list(self._queued):
            if connection.waiting:
                connection.withdraw(before)
            if not connection.waiting:
                self._queued.discard(connection)
        if self._queued:
            self._queue_timer = asyncio.get_running_loop().call_later(BEHIND_SECONDS / 2, self._take_back)

    def give(self, key: ConnectionKey, connection: Connection) -> None:
        """Take back a connection whose transaction is done; it is kept in use while it carries others."""
        if connection in self._expiry:
            return  # Two of its transactions have ended with one read, and it was given back for the first.
        if connection.carried:
            self.offer(key, connection)
            return
        client = connection.client
        kept = client.transactions < key.config.values[CONNECTIONMESSAGES] and key.config.values[CONNECTIONIDLE] > 0
        if client.state is ClientState.READY and kept:
            self._idle.setdefault(key, []).append(connection)
            self._expiry[connection] = (key, time.monotonic() + key.config.values[CONNECTIONIDLE])
            connection.park(self._drop)
            if self._timer is None:
                self._set_timer(key.config.values[CONNECTIONIDLE])
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
        self._queued.discard(connection)
        key = self._listed.pop(connection, None)
        if key is not None:
            self._joinable[key].remove(connection)
            if not self._joinable[key]:
                del self._joinable[key]
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
