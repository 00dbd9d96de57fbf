"""Hosts that have connected to queue-smtpd and are now the servers on their own connections (ATRN, RFC 2645).

A connection comes as a descriptor, at whose other end queue-smtpd passes on what the host says. There is no TLS and no
AUTH on it: queue-smtpd has done both. The host greets first, as a server that was connected to. Jobs for its domains go
over the connection, up to `release`, which closes it without QUIT: it may carry the mail of another queue next.
"""

import asyncio
import errno
import functools
import os
import socket
from collections.abc import Callable
from typing import cast

from queue_remote.smtp.connection import Connection
from queue_remote.smtp.pool import SETTLE_SECONDS, Pool
from queue_remote.tls.handshake import limit_buffer
from queue_smtp.client import ENVELOPE, ClientState, Session, SmtpClient
from queue_wire.pipes.job import ReversedHost

# Seconds for each reply at most. RFC 5321 section 4.5.3.2 wants no more than ten minutes, and the host cannot ask once
# more before a run that has lost it is over.
TIMEOUT_MAX = 600.0
# Seconds for the greeting and the reply to EHLO: the host has just said ATRN, and has a place that others wait for.
OPENING_SECONDS = 30.0


class ReversedHosts:
    """The hosts, by each of their domains."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._openings: dict[bytes, asyncio.Task[Connection]] = {}

    def __contains__(self, domain: object) -> bool:
        """Return whether the mail of a domain goes over such a connection."""
        return domain in self._openings

    def add(self, host: ReversedHost, descriptor: int | None, name: bytes, timeout: float) -> None:
        """Use a host's connection, and close its descriptor at the end. `name` is that for EHLO.

        If there is no descriptor, `find` raises OSError, so that the mail goes nowhere else.
        """
        opening = asyncio.get_running_loop().create_task(self._open(host, descriptor, name, timeout))
        for domain in host.domains:
            self._openings[domain] = opening

    async def find(self, domain: bytes) -> Connection:
        """Return the connection of a domain, which is READY or has ended. Raises OSError."""
        return await asyncio.shield(self._openings[domain])

    async def release(self, domain: bytes) -> bool:
        """Close the connection of a domain; return whether its server would take more."""
        opening = self._openings.get(domain)
        if opening is None:
            return False
        try:
            connection = await asyncio.shield(opening)
            await settle(connection)
            ready = connection.client.state is ClientState.READY
            connection.abort()
        except OSError:
            ready = False
        for name in [name for name, other in self._openings.items() if other is opening]:
            del self._openings[name]
        return ready

    async def _open(self, host: ReversedHost, descriptor: int | None, name: bytes, timeout: float) -> Connection:
        if descriptor is None:
            raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))
        client = SmtpClient(Session(host.address, name, replaceable=False))
        new = functools.partial(Connection, client, min(timeout, OPENING_SECONDS), None)
        make = cast("Callable[[], asyncio.Protocol]", new)
        try:
            given = socket.socket(fileno=descriptor)
        except OSError:
            os.close(descriptor)
            raise
        given.setblocking(False)
        try:
            transport, protocol = await asyncio.get_running_loop().create_unix_connection(make, sock=given)
        except BaseException as error:
            given.close()
            if isinstance(error, ValueError):  # It is another kind of socket.
                raise OSError(errno.EPROTOTYPE, os.strerror(errno.EPROTOTYPE)) from error
            raise
        limit_buffer(transport)
        connection = cast(Connection, protocol)
        self._pool.add(connection)
        await connection.opened()
        connection.set_timeout(min(timeout, TIMEOUT_MAX))
        await settle(connection)
        return connection


async def settle(connection: Connection) -> None:
    """Wait for the rest of the server's replies. Then the connection is READY, or has ended, and has no time limit."""
    if connection.client.state in ENVELOPE:
        waiter = asyncio.get_running_loop().create_future()
        connection.park(lambda settled: None if waiter.done() else waiter.set_result(None), SETTLE_SECONDS)
        await waiter
    connection.park(_ignore)


def _ignore(connection: Connection) -> None:
    """The state of the client tells whether the connection has ended."""
