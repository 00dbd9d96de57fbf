"""The daemon: one process that serves all connections of its listening sockets on one event loop.

HUP, and an order on the status socket, reread the control files, for connections that come later; if one has an
error, the old values stay. Certificates are also read anew every minute, and the users of AUTH every two seconds, in
a thread, if they have changed. At TERM it listens no more, ends sessions that are in no transaction with 421, and
lets the others end theirs, for a minute.

There are at most `concurrencyincoming` connections, of all processes together; a part (`reserve` of smtpdlimits) is
not for strangers on listeners of role mx. A client that comes when there is no place gets 421. But one on a listener
for users gets the place of another client there that has not authenticated for some time: whoever fills all places
without a password cannot lock out the users.
"""

import asyncio
import os
import resource
import signal
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import NamedTuple, cast

import uvloop

from queue_base.errors import Failure
from queue_base.home import Home
from queue_base.server_certificates import PemReader, ServerCertificates
from queue_smtp import server_replies as replies
from queue_smtp.proxy_header import ProxiedConnection
from queue_smtpd.auth.authenticator import Authenticator
from queue_smtpd.config import SmtpdConfig, read_config, session_setup
from queue_smtpd.intake_links import LINKS_MAX, IntakeLinks
from queue_smtpd.milter.session_filter import FilterPlace
from queue_smtpd.processes.listening import BACKLOG, ListeningSocket, stop_listening
from queue_smtpd.processes.log_writer import LogWriter
from queue_smtpd.processes.status_socket import StatusSocket
from queue_smtpd.proxy_reader import ProxyHeaderReader, ProxyReaders, proxied_ends, transport_ends
from queue_smtpd.recipient_lookups import MailboxLookups
from queue_smtpd.sessions.client_facts import ClientFacts
from queue_smtpd.sessions.session import SessionSetup, SmtpSession
from queue_smtpd.sessions.session_log import process_started
from queue_smtpd.smtp_connection import BegunSession, OpenConnections, SmtpConnection
from queue_smtpd.strangers.client_limits import ClientLimits
from queue_smtpd.strangers.greeting_pauses import GreetingPauses
from queue_smtpd.strangers.stranger_checks import StrangerChecks
from queue_wire.admin.settings import in_force, pack_in_force
from queue_wire.admin.smtpd_status import ProcessStatus
from queue_wire.control.listeners import IMPLICIT_TLS, Listener
from queue_wire.control.registry import CHECKPASSWORD, CONCURRENCYINCOMING, PROXYCLIENTS, SMTPDLIMITS
from queue_wire.logline import alert, warning

# Seconds between looks for what is too late.
TICK_SECONDS = 2.0
_STOP_TICK_SECONDS = 0.1
# Seconds for transactions that run when TERM comes.
STOP_SECONDS = 60.0
# Seconds between readings of the certificates.
REREAD_SECONDS = 60.0
# Descriptors for everything but connections.
_OTHERS = LINKS_MAX + 50


class Numbering(NamedTuple):
    """The numbers of a process's sessions: `first`, `first + step`, ... No two processes have the same."""

    first: int
    step: int


class TlsSource(NamedTuple):
    """The certificates, and what reads their files."""

    certificates: ServerCertificates
    read: PemReader

    def refresh(self) -> list[str]:
        """Read the certificates and use what has changed; return what is wrong."""
        try:
            return self.certificates.take(self.read())
        except Failure as error:
            return [f"{error}; the old certificates stay"]


class SmtpDaemon:
    """The daemon's process."""

    def __init__(
        self,
        home: Home,
        sockets: list[ListeningSocket],
        ours: bool,
        config: SmtpdConfig,
        log: LogWriter,
        numbering: Numbering,
        tls: TlsSource,
        limits: ClientLimits,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._home = home
        self._sockets = sockets
        self._ours = ours
        self._log = log
        self._numbering = numbering
        self._next = numbering.first
        self._step = numbering.step
        self._tls = tls
        # What was wrong with certificates when they were read last.
        self._faults: list[str] = []
        # Exceptions that nobody expects, when certificates and users were read last.
        self._mistakes: dict[str, str] = {}
        self._rereading: asyncio.Task[None] | None = None
        self._reread_at = time.monotonic() + REREAD_SECONDS
        self._loop = loop
        self._limits = limits
        self._authenticator = Authenticator(home, log)
        links, lookups = IntakeLinks(home, loop), MailboxLookups(home, loop)
        pauses, self._checks = GreetingPauses(loop), StrangerChecks(home, log)
        self._connections = OpenConnections(links, lookups, log, self._authenticator, limits, pauses, self._checks)
        self._readers = ProxyReaders(self._connections, self._take_number)
        self._status = StatusSocket(home, self._connections, self._about, self._in_force)
        self._started = time.time()
        self._servers: list[asyncio.Server] = []
        self._setups: dict[Listener, SessionSetup] = {}
        # How many connections this process has descriptors for.
        self._places = 0
        self._stop_by = 0.0
        self._stopping = asyncio.Event()
        self._config = config
        # Why the files of the config were refused when they were read last.
        self._refused = ""
        self._context: ssl.SSLContext | None = None
        self._authenticator.configure(config.values[CHECKPASSWORD])
        self._authenticator.refresh()
        self._checks.configure(config)
        self._take_config(config)

    async def run(self, life: int | None) -> None:
        """Serve until TERM, or until the pipe `life` ends."""
        if life is not None:
            self._loop.add_reader(life, self._lost_parent, life)
        for number, act in ((signal.SIGHUP, self.reread), (signal.SIGTERM, self.stop), (signal.SIGINT, self.stop)):
            self._loop.add_signal_handler(number, act)
        self._log.write([process_started(*self._numbering, os.getpid())])
        for each in self._sockets:
            make: Callable[[], asyncio.Protocol] = partial(self._connection, each.listener)
            self._servers.append(await self._loop.create_server(make, sock=each.socket, backlog=BACKLOG))
        why = await self._status.open()
        if why:
            self._log.write([warning(why)])
        watching = self._loop.create_task(self._watch_users())
        while not self._stop_by or len(self._connections):
            if self._stop_by:
                await asyncio.sleep(_STOP_TICK_SECONDS)
            else:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._stopping.wait(), TICK_SECONDS)
            now = time.monotonic()
            self._connections.run(now)
            self._readers.run(now)
            if now >= self._reread_at:
                self._reread_certificates()
            if self._stop_by and now >= self._stop_by:
                # Messages whose answers have not come get 451.
                self._connections.close()
                self._connections.end_all(replies.SHUTTING_DOWN, "stop", now)
        watching.cancel()
        self._status.close()
        self._connections.close()

    def reread(self) -> None:
        """Read the control files again."""
        try:
            config = read_config(self._home)
            self._authenticator.configure(config.values[CHECKPASSWORD])
            self._checks.configure(config)
            self._take_config(config)
            self._refused = ""
        except Failure as error:
            self._log.write([alert(f"{error}; the old values stay")])
            self._refused = str(error)
        # What was wrong before is said once more.
        self._faults = []
        self._reread_certificates()

    def stop(self) -> None:
        """Listen no more, and end when the transactions have ended."""
        if not self._stop_by:
            now = time.monotonic()
            self._stop_by = now + STOP_SECONDS
            self._stopping.set()
            if self._ours:
                # Other processes have the sockets, too, and clients would wait there for nobody.
                stop_listening(self._sockets)
            for server in self._servers:
                server.close()
            self._readers.close()
            self._connections.begin_stop(now)

    async def _in_force(self, anew: bool) -> bytes:
        """Return what is in force of the control files (queue_wire.admin.settings); `anew`: after reading them."""
        if anew:
            if self._rereading is not None:
                # It may have begun before the change.
                await asyncio.wait([self._rereading])
            self.reread()
        if self._rereading is not None:
            await asyncio.wait([self._rereading])
        contents = self._config.values.contents
        if self._faults:
            # The log says what is wrong with the certificates.
            contents = {name: data for name, data in contents.items() if name != "smtpdcert"}
        return pack_in_force(in_force(contents, self._refused))

    def _about(self) -> ProcessStatus:
        """Return what there is to know of this process, but for its sessions and counters."""
        place, count = self._numbering
        share = max(1, min(self._config.values[CONCURRENCYINCOMING] // count, self._places))
        return ProcessStatus(os.getpid(), place, count, self._started, share, 0, {}, {})

    def _lost_parent(self, life: int) -> None:
        self._loop.remove_reader(life)
        self.stop()

    async def _watch_users(self) -> None:
        """Offer AUTH as the file of the users, or its lack, has it. A large file takes time, so a thread reads it."""
        while True:
            await asyncio.sleep(TICK_SECONDS)
            try:
                if await self._loop.run_in_executor(None, self._authenticator.refresh):
                    self._take_config(self._config)
                self._mistakes.pop("users", None)
            except Exception as error:
                self._note_mistake("users", error)

    def _reread_certificates(self) -> None:
        if self._rereading is None:
            self._rereading = self._loop.create_task(self._take_certificates())

    async def _take_certificates(self) -> None:
        try:
            # Disks, and root's process, may be slow, and a context takes a millisecond.
            faults = await self._loop.run_in_executor(None, self._tls.refresh)
            self._log.write([alert(fault) for fault in faults if fault not in self._faults])
            self._faults = faults
            self._take_config(self._config)
            self._mistakes.pop("certificates", None)
        except Exception as error:
            self._note_mistake("certificates", error)
        finally:
            self._reread_at = time.monotonic() + REREAD_SECONDS
            self._rereading = None

    def _note_mistake(self, what: str, error: Exception) -> None:
        """Log that something could not be read anew as it should, when that begins, or is another mistake."""
        text = repr(error)
        if text != self._mistakes.get(what):
            self._log.write([alert(f"unable to read the {what} anew: {text}; the old ones stay; report this")])
        self._mistakes[what] = text

    def _take_config(self, config: SmtpdConfig) -> None:
        self._config = config
        self._context = self._tls.certificates.context
        tls = self._context is not None
        offer = self._authenticator.offer
        self._limits.configure(config.values[SMTPDLIMITS])
        self._readers.clients = config.values[PROXYCLIENTS]
        self._setups = {
            each.listener: session_setup(config, each.listener, self._limits, tls, offer) for each in self._sockets
        }
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._places = max(1, soft - _OTHERS)

    def _take_number(self) -> int:
        """Return the number of the next session."""
        number, self._next = self._next, self._next + self._step
        return number

    def _connection(self, listener: Listener) -> asyncio.Protocol:
        if listener.proxy:
            return ProxyHeaderReader(partial(self._begin, listener), self._readers, listener.port)
        return cast(asyncio.Protocol, SmtpConnection(partial(self._begin, listener), self._connections))

    def _begin(
        self, listener: Listener, transport: asyncio.Transport, now: float, proxied: ProxiedConnection | None = None
    ) -> BegunSession:
        """Return the session of a new connection, whose client and server are those of a PROXY header if it has one."""
        ends = transport_ends(transport, listener.port) if proxied is None else proxied_ends(proxied)
        client, port, server, server_port = ends
        own = not listener.proxy and self._config.trusts_program(client, server)
        facts, setup = ClientFacts(client, server, relays=own), self._setups[listener]
        submits = listener.role.for_users
        busy = None
        if not self._has_place(client, submits or setup.policy.trusts(facts), now):
            busy = replies.SERVER_BUSY
        if listener.role in IMPLICIT_TLS and self._context is None:
            # There was one when this process started.
            busy = replies.TLS_FAILED_FOR_NOW
        number = self._take_number()
        session = SmtpSession(number, facts, setup, now)
        filters = self._connections.filter_session(setup.filters, number, FilterPlace(setup.me, port, server_port))
        return BegunSession(session, port, server_port, busy, self._context, filters, client, submits)

    def _has_place(self, client: str, reserved: bool, now: float) -> bool:
        """Count a new connection; return whether there is a place for it. `reserved`: also one not for strangers."""
        total, most = self._limits.hold(client), self._config.values[CONCURRENCYINCOMING]
        here, places = len(self._connections) + len(self._readers), self._places
        if not reserved:
            most -= most * self._limits.reserve // 100
            places -= places * self._limits.reserve // 100
        if total <= most and here <= places:
            return True
        # The place is free when the other client has closed its connection, a moment later.
        return reserved and self._connections.end_unproven(now)


def run_daemon(
    home: Home,
    sockets: list[ListeningSocket],
    ours: bool,
    config: SmtpdConfig,
    log: LogWriter,
    numbering: Numbering,
    tls: TlsSource,
    limits: ClientLimits,
    life: int | None,
) -> None:
    """Serve until TERM, or until the pipe `life` ends. `ours`: nobody listens on the sockets after TERM."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        daemon = SmtpDaemon(home, sockets, ours, config, log, numbering, tls, limits, runner.get_loop())
        runner.run(daemon.run(life))
