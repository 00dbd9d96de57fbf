"""Opens SMTP and LMTP connections: to one target, as its TLS plan says, and again if that avoids a server's fault.

    STARTTLS or TLS failed, and TLS is optional        once more in clear
    the server closed the connection at EHLO           once more with HELO

Each attempt is a new connection to the same target.
"""

import asyncio
import errno
import functools
import time
from collections.abc import Callable
from typing import cast

from queue_base.errors import reason
from queue_base.socket_errors import NO_DESCRIPTOR, OF_THIS_HOST
from queue_remote.options import ConnectionKey
from queue_remote.report_text import (
    NO_RESOURCES,
    Verdict,
    describe_failure,
    no_source,
    not_connected,
    not_trusted,
)
from queue_remote.route.order import Target
from queue_remote.route.unroutable import Unroutable, loops_back
from queue_remote.smtp.connection import Connection
from queue_remote.smtp.pool import Pool
from queue_remote.smtp.trace import Trace
from queue_remote.tls.handshake import limit_buffer
from queue_remote.tls.plan import TlsPlan
from queue_smtp.auth import Credentials
from queue_smtp.client import ClientState, Session, SmtpClient, Tls
from queue_wire.control.registry import TIMEOUTCONNECT, TIMEOUTREMOTE
from queue_wire.pipes.report import HOST_SCOPE, MESSAGE_SCOPE, PERMANENT, TEMPORARY


class Opener:
    """Opens connections for one delivery.

    `failure` is the verdict on the last host that answered, or on all if none did; `scope` is the report's. `ours` are
    this host's names: a server that has one of them is this host, and mail is not delivered to it.
    """

    def __init__(
        self, key: ConnectionKey, nexthop: bytes, pool: Pool, trace: Trace | None, ours: frozenset[bytes], until: float
    ) -> None:
        """No target is tried after `until`, and a connection must be READY by then."""
        self._key = key
        self._nexthop = nexthop
        self._ours = ours
        self._pool = pool
        self._trace = trace
        self._tries: list[tuple[bytes, str]] = []
        self._smtp_tried = False
        self._answer: Verdict | None = None
        self._no_source: Verdict | None = None
        self.scope = HOST_SCOPE
        self.until = until

    @property
    def failure(self) -> Verdict:
        if self.scope == MESSAGE_SCOPE and self._no_source is not None and self._answer is None:
            return self._no_source
        return self._answer or (TEMPORARY, not_connected(self._tries, bool(self._tries) and not self._smtp_tried))

    def refused(self, connection: Connection) -> None:
        """Note a connection that failed before the server had accepted MAIL."""
        client = connection.client
        self._answer = _verdict(client)
        # A server that falls silent at MAIL may refuse this sender only. After 421 it accepts no mail at all for now.
        self.scope = HOST_SCOPE if client.dismissed else MESSAGE_SCOPE

    def pass_over(self, target: Target, plan: TlsPlan) -> None:
        """Note a target that the TLS policy excludes."""
        text = not_trusted(_peer(target), plan.refusal or "", plan.policy.encode("utf-8", "backslashreplace"))
        self._answer, self.scope = (TEMPORARY, text), HOST_SCOPE
        self._note_failure()

    async def open(self, target: Target, plan: TlsPlan, credentials: Credentials | None) -> Connection | None:
        """Return a connection that is READY, or None if the target cannot be used.

        Raises Unroutable if the fault is this host's, or if the server is this host.
        """
        policy = b"" if plan.mode in (Tls.NEVER, Tls.MAY) else plan.policy.encode("utf-8", "backslashreplace")
        mode, stalls = plan.mode, self._pool.tls_stalls
        if plan.fallback and stalls.knows(target.address, target.port):
            mode = Tls.NEVER
            self._note("STARTTLS was not answered in time, or with 421, lately; in clear")
        session = Session(
            _peer(target), self._key.options.helohost, mode, credentials, policy=policy, ours=self._ours,
            lmtp=target.lmtp,
        )  # fmt: skip
        stalled = False
        while True:
            begun = time.monotonic()
            connection = await self._attempt(target, plan, session)
            if connection is None:
                return None
            client = connection.client
            if client.state is ClientState.READY:
                if not client.secure:
                    plan.in_clear()
                if stalled:
                    stalls.add(target.address, target.port)
                return connection
            connection.close()
            if client.looped:
                raise self._loop(session.peer)
            self._answer, self.scope = _verdict(client), HOST_SCOPE
            self._note_failure()
            if client.tls_broken and plan.fallback and session.tls is not Tls.NEVER:
                session = session._replace(tls=Tls.NEVER)
                stalled = client.dismissed or time.monotonic() - begun >= self._tls_timeout(plan)
                self._note("TLS failed; once more in clear")
            elif client.ehlo_broken and session.tls in (Tls.NEVER, Tls.MAY) and session.credentials is None:
                session = session._replace(esmtp=False)
                self._note("EHLO failed; once more with HELO")
            else:
                return None

    def _loop(self, peer: bytes) -> Unroutable:
        """Return the verdict if a target has turned out to be this host.

        RFC 5321 section 5.1: targets with lower preference are not tried. Better ones that failed may work later.
        """
        if self._tries or self._answer is not None:
            return Unroutable(*self.failure, self.scope)
        return Unroutable(PERMANENT, loops_back(self._nexthop, peer), MESSAGE_SCOPE)

    async def _attempt(self, target: Target, plan: TlsPlan, session: Session) -> Connection | None:
        """Return a connection that is READY, or whose client has ended; None if there is no connection."""
        port = target.port if plan.port is None else plan.port
        where = "" if target.is_socket else f", port {port}"
        self._note(f"connecting to {session.peer.decode('ascii', 'replace')}{where}")
        client = SmtpClient(session)
        try:
            connection = await self._connect(target.address, port, client, self._tls_timeout(plan))
        except OSError as error:
            why = reason(error) if error.errno else "no answer in time"
            self._note(f"not connected: {why}")
            self._smtp_tried = self._smtp_tried or not target.lmtp
            self._judge_no_connection(error, target)
            self._tries.append((session.peer, why))
            return None
        self._pool.add(connection)
        try:
            if session.tls is Tls.IMPLICIT:
                await connection.start_tls(plan)
            await connection.opened()
            if client.state is ClientState.TLS:
                await connection.start_tls(plan)
                await connection.opened()
        except BaseException:
            connection.close()
            raise
        return connection

    def _judge_no_connection(self, error: OSError, target: Target) -> None:
        """Set the scope, unless a server has answered: if this host has no address to send from, it is the message's.

        Another target may be of a family of which this host has an address.
        """
        if self._answer is not None:
            return
        lacks = error.errno == errno.EADDRNOTAVAIL
        self.scope = MESSAGE_SCOPE if lacks and (not self._tries or self.scope == MESSAGE_SCOPE) else HOST_SCOPE
        if lacks and (source := self._source(target.address)):
            self._no_source = TEMPORARY, no_source(source, reason(error))

    def _source(self, address: str) -> str:
        """Return the address to send from; empty if the system chooses."""
        source = self._key.options.source
        return source.six if ":" in address else source.four

    def _tls_timeout(self, plan: TlsPlan) -> float:
        """Return the seconds for STARTTLS and the handshake: where mail goes in clear after that, no more than for
        connecting.
        """
        values = self._key.config.values
        return min(values[TIMEOUTCONNECT], values[TIMEOUTREMOTE]) if plan.fallback else values[TIMEOUTREMOTE]

    async def _connect(self, address: str, port: int, client: SmtpClient, tls_timeout: float) -> Connection:
        """Return a connection. Raises OSError (also TimeoutError), and Unroutable if the fault is this host's."""
        values = self._key.config.values
        source = self._source(address)
        new = functools.partial(Connection, client, values[TIMEOUTREMOTE], self._trace, tls_timeout, self.until)
        make = cast("Callable[[], asyncio.Protocol]", new)
        loop = asyncio.get_running_loop()
        self._pool.close_oldest_if_full()
        while True:
            try:
                async with asyncio.timeout(values[TIMEOUTCONNECT]):
                    if address.startswith("/"):
                        transport, protocol = await loop.create_unix_connection(make, address)
                    else:
                        local = (source, 0) if source else None
                        transport, protocol = await loop.create_connection(make, address, port, local_addr=local)
                limit_buffer(transport)
                return cast(Connection, protocol)
            except OSError as error:
                if error.errno in NO_DESCRIPTOR and self._pool.abort_idle():
                    await asyncio.sleep(0)
                    continue
                if error.errno in OF_THIS_HOST:
                    raise Unroutable(TEMPORARY, NO_RESOURCES, MESSAGE_SCOPE) from error
                raise

    def _note_failure(self) -> None:
        """Put the failure into the trace; the report has only the last one."""
        self._note(self.failure[1].decode("utf-8", "replace").strip().replace("\n", " "))

    def _note(self, text: str) -> None:
        if self._trace is not None:
            self._trace.note(text)


def _peer(target: Target) -> bytes:
    """Return the name of a target in texts."""
    address = target.address.encode("ascii")
    return b"%s (%s)" % (address, target.host) if target.host not in (b"", address) else address


def _verdict(client: SmtpClient) -> Verdict | None:
    return None if client.failure is None else describe_failure(client, client.failure)
