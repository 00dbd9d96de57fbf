"""Opens SMTP connections, to one target as its TLS plan says, and again where that makes up for a peer's faults.

    a broken handshake, where TLS is a choice      once more in clear
    EHLO that ends the connection                  once more with HELO

Each is on a fresh connection to the same target.
"""

import asyncio
import errno
import functools
import time

from queue_base.errors import reason
from queue_remote.connection import Connection
from queue_remote.pool import ConnectionKey, Pool
from queue_remote.route.order import Target
from queue_remote.route.unroutable import Unroutable, loops_back
from queue_remote.tls.handshake import hold_little
from queue_remote.tls.plan import TlsPlan
from queue_remote.trace import Trace
from queue_smtp.auth import Credentials
from queue_smtp.client import SmtpClient
from queue_smtp.session import Phase, Session, Tls
from queue_smtp.text import NO_RESOURCES, Verdict, no_source, not_connected, not_trusted
from queue_wire.report import HOST_SCOPE, MESSAGE_SCOPE, PERMANENT, TEMPORARY

_TOO_MANY_FILES = {errno.EMFILE, errno.ENFILE}
_OUR_SHORTAGE = {errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL, *_TOO_MANY_FILES}


class Opener:
    """Opens connections for one delivery.

    `failure` is the verdict of the last host that answered, or of all where none did; `scope` is that of the report.
    `ours` are this host's names: a peer that goes by one is no place to deliver to.
    """

    def __init__(
        self, key: ConnectionKey, nexthop: bytes, pool: Pool, trace: Trace | None, ours: frozenset[bytes]
    ) -> None:
        self._key = key
        self._nexthop = nexthop
        self._ours = ours
        self._pool = pool
        self._trace = trace
        self._tries: list[tuple[bytes, str]] = []
        self._answer: Verdict | None = None
        self.scope = HOST_SCOPE
        # No further target is tried after this; each attempt has limits of its own.
        self.until = time.monotonic() + key.config.connect_timeout + key.config.reply_timeout

    @property
    def failure(self) -> Verdict:
        return self._answer or (TEMPORARY, not_connected(self._tries))

    def refused(self, connection: Connection) -> None:
        """Take note of a connection that failed before its peer had accepted MAIL."""
        client = connection.client
        self._answer = client.failure
        # A peer that falls silent at MAIL may dislike this sender; one that says 421 there dislikes everybody now.
        self.scope = HOST_SCOPE if client.dismissed else MESSAGE_SCOPE

    def pass_over(self, target: Target, plan: TlsPlan) -> None:
        """Take note of a target that the TLS policy leaves out."""
        text = not_trusted(_peer(target), plan.refusal or "", plan.policy.encode("utf-8", "backslashreplace"))
        self._answer, self.scope = (TEMPORARY, text), HOST_SCOPE
        self._note_failure()

    async def open(self, target: Target, plan: TlsPlan, credentials: Credentials | None) -> Connection | None:
        """Return a connection that is READY, None where there is no way.

        Raises Unroutable where it is our own fault, and where the peer is this host, so that there is nowhere to go.
        """
        policy = b"" if plan.mode in (Tls.NEVER, Tls.MAY) else plan.policy.encode("utf-8", "backslashreplace")
        session = Session(
            _peer(target), self._key.options.helohost, plan.mode, credentials, policy=policy, ours=self._ours
        )
        while True:
            connection = await self._attempt(target, plan, session)
            if connection is None:
                return None
            client = connection.client
            if client.phase is Phase.READY:
                if not client.secure:
                    plan.in_clear()
                return connection
            connection.close()
            if client.looped:
                raise self._loop(session.peer)
            self._answer, self.scope = client.failure, HOST_SCOPE
            self._note_failure()
            if client.tls_broken and plan.fallback and session.tls is not Tls.NEVER:
                session = session._replace(tls=Tls.NEVER)
                self._note("TLS failed; once more in clear")
            elif client.ehlo_broken and session.tls in (Tls.NEVER, Tls.MAY) and session.credentials is None:
                session = session._replace(esmtp=False)
                self._note("EHLO failed; once more with HELO")
            else:
                return None

    def _loop(self, peer: bytes) -> Unroutable:
        """Return why mail goes no further than this host, which a target has turned out to be.

        RFC 5321 section 5.1: what is beyond it is not for us. Better hosts that were tried may be back later.
        """
        if self._tries or self._answer is not None:
            return Unroutable(*self.failure, self.scope)
        return Unroutable(PERMANENT, loops_back(self._nexthop, peer), MESSAGE_SCOPE)

    async def _attempt(self, target: Target, plan: TlsPlan, session: Session) -> Connection | None:
        """Return an open connection, READY or CLOSED; None where none came about."""
        port = target.port if plan.port is None else plan.port
        self._note(f"connecting to {session.peer.decode('ascii', 'replace')}, port {port}")
        client = SmtpClient(session)
        try:
            connection = await self._connect(target.address, port, client)
        except OSError as error:
            why = reason(error) if error.errno else "no answer in time"
            self._note(f"not connected: {why}")
            self._tries.append((session.peer, why))
            return None
        self._pool.add(connection)
        try:
            if session.tls is Tls.DONE:
                await connection.start_tls(plan)
            await connection.opened()
            if client.phase is Phase.STARTTLS:
                await connection.start_tls(plan)
                await connection.opened()
        except BaseException:
            connection.close()
            raise
        return connection

    async def _connect(self, address: str, port: int, client: SmtpClient) -> Connection:
        """Return a connection. Raises OSError (TimeoutError is one), and Unroutable where it is our own fault."""
        settings = self._key.config
        source = self._key.options.source.six if ":" in address else self._key.options.source.four
        make = functools.partial(Connection, client, settings.reply_timeout, self._trace)
        loop = asyncio.get_running_loop()
        self._pool.make_room()
        while True:
            try:
                async with asyncio.timeout(settings.connect_timeout):
                    local = (source, 0) if source else None
                    transport, connection = await loop.create_connection(make, address, port, local_addr=local)
                hold_little(transport)
                return connection
            except OSError as error:
                if error.errno in _TOO_MANY_FILES and self._pool.make_much_room():
                    await asyncio.sleep(0)
                    continue
                if source and error.errno == errno.EADDRNOTAVAIL:
                    raise Unroutable(TEMPORARY, no_source(source, reason(error)), MESSAGE_SCOPE) from error
                if error.errno in _OUR_SHORTAGE:
                    raise Unroutable(TEMPORARY, NO_RESOURCES, MESSAGE_SCOPE) from error
                raise

    def _note_failure(self) -> None:
        """The report has the last one only."""
        self._note(self.failure[1].decode("utf-8", "replace").strip().replace("\n", " "))

    def _note(self, text: str) -> None:
        if self._trace is not None:
            self._trace.note(text)


def _peer(target: Target) -> bytes:
    """Return a target as texts name it."""
    address = target.address.encode("ascii")
    return b"%s (%s)" % (address, target.host) if target.host else address
