"""New connections on a listener with option `proxy`: what comes before the session is the PROXY header, and it says who
the client is.

Only hosts of control/proxyclients may send one; any other is turned away before it has said a word, since it could
claim to be anybody. The header is read to its last byte, and what follows is the client's: TLS, or what it says too
early. Nothing is said to who sends no header, or another one; the log has why.
"""

import asyncio
import time
from collections.abc import Callable
from typing import NamedTuple, cast

from queue_smtp import server_replies as replies
from queue_smtp.proxy_header import ProxiedConnection, unpack_proxy_header
from queue_smtp.server_replies import ServerReply
from queue_smtpd.sessions import session_log
from queue_smtpd.sessions.client_facts import plain_address
from queue_smtpd.smtp_connection import BegunSession, OpenConnections, SmtpConnection
from queue_wire.control.networks import Network, is_listed
from queue_wire.format_error import FormatError

# Seconds for the header. Balancers send it at once.
HEADER_SECONDS = 5.0


class ConnectionEnds(NamedTuple):
    """Both ends of a connection: addresses as text, empty if not known, and ports."""

    client: str
    port: int
    server: str
    server_port: int


def proxied_ends(proxied: ProxiedConnection) -> ConnectionEnds:
    """Return the ends that a header names."""
    client, server = plain_address(proxied.client), plain_address(proxied.server)
    return ConnectionEnds(client, proxied.client_port, server, proxied.server_port)


def transport_ends(transport: asyncio.BaseTransport, listener_port: int = 0) -> ConnectionEnds:
    """Return the ends of a connection. `listener_port` is the server's, for one whose client has gone already."""
    peer, own = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
    client, port = (plain_address(peer[0]), peer[1]) if isinstance(peer, tuple) else ("", 0)
    server, server_port = (plain_address(own[0]), own[1]) if isinstance(own, tuple) else ("", listener_port)
    return ConnectionEnds(client, port, server, server_port)


# What makes the session of a connection whose header is read. The header is None if the balancer speaks for itself.
BeginProxied = Callable[[asyncio.Transport, float, ProxiedConnection | None], BegunSession]


class ProxyReaders:
    """The connections whose header is not read yet. `empty` is set while there are none. `clients` may send one."""

    def __init__(self, connections: OpenConnections, take_number: Callable[[], int]) -> None:
        self.connections = connections
        self.take_number = take_number
        self.clients: tuple[Network, ...] = ()
        self.empty = asyncio.Event()
        self.empty.set()
        self._reading: set[ProxyHeaderReader] = set()

    def __len__(self) -> int:
        return len(self._reading)

    def add(self, reader: "ProxyHeaderReader") -> None:
        self._reading.add(reader)
        self.empty.clear()

    def discard(self, reader: "ProxyHeaderReader") -> None:
        self._reading.discard(reader)
        if not self._reading:
            self.empty.set()

    def run(self, now: float) -> None:
        """End what is too late. Call it every few seconds."""
        for reader in list(self._reading):
            reader.run(now)

    def close(self) -> None:
        """End all: the server stops."""
        for reader in list(self._reading):
            reader.end("stop")


class ProxyHeaderReader(asyncio.Protocol):
    """A connection until its header is read. Then the transport is that of an SmtpConnection."""

    def __init__(self, begin: BeginProxied, readers: ProxyReaders, listener_port: int) -> None:
        self._begin = begin
        self._readers = readers
        self._listener_port = listener_port
        self._transport: asyncio.Transport | None = None
        self._ends = ConnectionEnds("", 0, "", listener_port)
        self._begun = 0.0
        self._head = b""
        # The header is read, or the connection is at its end.
        self._over = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Those of uvloop are no asyncio.Transport.
        self._transport = cast(asyncio.Transport, transport)
        self._begun = time.monotonic()
        self._ends = transport_ends(transport, self._listener_port)
        # Until it is known whom the connection is for, it counts as the balancer's.
        self._readers.connections.limits.hold(self._ends.client)
        self._readers.add(self)
        if not self._ends.client:
            # It has gone already, as a balancer that looks whether we are here.
            self.end("connection lost")
        elif not is_listed(self._ends.client, self._readers.clients):
            self._refuse(replies.PROXY_REFUSED)

    def data_received(self, data: bytes) -> None:
        if self._over:
            return
        self._head += data
        try:
            found = unpack_proxy_header(self._head)
        except FormatError as error:
            self._refuse(replies.PROXY_SYNTAX._replace(text=str(error).encode("utf-8", "backslashreplace")))
            return
        if found is not None:
            self._hand_over(*found)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self.end("connection lost")

    def run(self, now: float) -> None:
        """End the connection if its header is late."""
        if now >= self._begun + HEADER_SECONDS:
            self._refuse(replies.PROXY_LATE)

    def end(self, reason: str, lines: tuple[ServerReply, ...] = ()) -> None:
        """Close the connection, if it is still waited for here. The log has what is wrong with it."""
        if self._over:
            return
        self._leave()
        number, ends = self._readers.take_number(), self._ends
        seconds = int(time.monotonic() - self._begun)
        self._readers.connections.write_log([
            session_log.connect(number, ends.client, ends.port, b"", ends.server, ends.server_port),
            *[session_log.refused(number, b"PROXY", reply, ends.client) for reply in lines],
            session_log.ended(number, reason, 0, len(lines), seconds),
        ])  # fmt: skip
        if self._transport is not None:
            self._transport.abort()

    def _refuse(self, reply: ServerReply) -> None:
        self.end("refused", (reply,))

    def _hand_over(self, length: int, proxied: ProxiedConnection | None) -> None:
        """Begin the session, with what came behind the header."""
        transport, rest = self._transport, self._head[length:]
        assert transport is not None
        self._leave()
        connection = SmtpConnection(lambda made, now: self._begin(made, now, proxied), self._readers.connections)
        transport.set_protocol(cast(asyncio.Protocol, connection))
        connection.connection_made(transport)
        if rest:
            connection.data_received(rest)

    def _leave(self) -> None:
        self._over = True
        self._head = b""
        self._readers.discard(self)
        self._readers.connections.limits.release(self._ends.client)
