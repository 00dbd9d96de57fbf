"""queue-smtpd: the SMTP server. It hands messages to queue-intake, and touches nothing of the queue itself.

    queue-smtpd [--home HOME]                                         a daemon (queue_smtpd.processes.smtp_daemon)
    tcpserver -RHl0 0 25 queue-smtpd [--home HOME] [ROLE [OPTION...]]
    queue-smtpd [--home HOME] --local                                 for sendmail -bs

The daemon listens where control/smtpd says, or on the sockets that its supervisor gives
(queue_smtpd.processes.listening). As root it listens and then becomes account `queued`. If descriptor 0 is a
connection, as under a super-server (queue_smtpd.processes.super_server), it serves this one and exits at its end; role
and options are then those of a line of control/smtpd, and mx unless one is named. Root reads the certificates before it
becomes `queued`; a process that stays root reads them anew for the daemon (queue_smtpd.tls). A listener of role
submissions needs one, and is left out without it; others do not offer STARTTLS then. 250 to a message is said only
after queue-intake has said K: then the message survives a power cut. With --local the client is the user who runs it,
who may send to everybody, as by sendmail; there are no TLS, no AUTH, no milters, and no lookups of recipients.

The log is on stderr. Exit codes: 0 at the end of the connection, or after TERM; 100 for wrong usage, or what does not
pass; 111 if control files cannot be read, or an address cannot be listened on. A client gets 421 then.
"""

import asyncio
import os
import pwd
import signal
import socket
import ssl
import time
from contextlib import suppress
from functools import partial
from typing import cast

import uvloop

from queue_base.accounts import SMTPD_ACCOUNT, Owner, become_reader, make_greylist_directory, queue_owner
from queue_base.control import read_value
from queue_base.daemon.init_process import leave_process_one
from queue_base.daemon.processes import fill_standard_descriptors, keep_descriptors, raise_file_limit, require_files
from queue_base.daemon.signals import ignore, keep_children
from queue_base.daemon.supervisor import Supervisor, take_variables
from queue_base.errors import Failure, Permanent, Temporary, Usage, complain
from queue_base.home import Home, take_help, take_home
from queue_base.server_certificates import ServerCertificates, read_pem_files
from queue_smtp import server_replies as replies
from queue_smtp.proxy_header import ProxiedConnection
from queue_smtp.server_replies import pack_reply
from queue_smtpd.auth.authenticator import Authenticator
from queue_smtpd.config import SmtpdConfig, read_config, read_listeners, session_setup
from queue_smtpd.intake_links import IntakeLinks
from queue_smtpd.milter.session_filter import FilterPlace
from queue_smtpd.processes.listening import ListeningSocket, given_sockets, open_sockets
from queue_smtpd.processes.log_writer import PROGRAM, LogWriter, log_beside
from queue_smtpd.processes.smtp_daemon import Numbering, TlsSource, run_daemon
from queue_smtpd.processes.super_server import Endpoint, GivenConnection, unpack_given
from queue_smtpd.processes.workers import run_workers
from queue_smtpd.proxy_reader import ProxyHeaderReader, ProxyReaders, proxied_ends
from queue_smtpd.recipient_lookups import MailboxLookups
from queue_smtpd.sessions.client_facts import ClientFacts
from queue_smtpd.sessions.session import SessionSetup, SmtpSession
from queue_smtpd.smtp_connection import BegunSession, OpenConnections, SmtpConnection
from queue_smtpd.strangers.client_limits import ClientLimits
from queue_smtpd.strangers.greeting_pauses import GreetingPauses
from queue_smtpd.strangers.stranger_checks import StrangerChecks
from queue_smtpd.tls.certificate_keeper import start_keeper
from queue_wire.control.listeners import IMPLICIT_TLS, Listener, Role, unpack_service
from queue_wire.control.milters import FilterSetup
from queue_wire.control.networks import Network
from queue_wire.control.registry import CHECKPASSWORD, PROCESSESSMTPD, PROXYCLIENTS, SMTPDLIMITS
from queue_wire.control.strangers.smtpdlimits import ClientLimit
from queue_wire.format_error import FormatError
from queue_wire.logline import alert

USAGE = "usage: queue-smtpd [--home HOME] [ROLE [OPTION...]]"
HELP = f"""{USAGE}
Serves SMTP and hands messages to queue-intake: as a daemon, where control/smtpd says; or, as under tcpserver, on the
connection on descriptor 0, whose ROLE is mx (the default), submission, submissions, qmtp, odmr or odmrs.
OPTION is bare, which accepts bare CR and LF, noauth, authname, which names the user of AUTH in Received, or proxy,
which expects a PROXY header.
  --local    the client is a program of the user who runs this (sendmail -bs)
Exit code 0: the connection has ended, or TERM came; 100: wrong usage; 111: trouble that may pass.
"""
# Seconds between looks for what is too late.
TICK_SECONDS = 1.0
NO_CERTIFICATE = (
    "unable to serve role %s: it needs a certificate, and there is none that can be used; control/smtpdcert names it"
)
# Under a super-server each connection is a process of its own, so it has nothing to count.
_NO_LIMIT = ClientLimit(0, 0)
LOCAL = "--local"
FILES_MIN = 64


def take_operands(words: list[str]) -> Listener:
    """Return role and options as of a listener. Raises Usage."""
    try:
        role, *options = words or [Role.MX.value]
        if role.startswith("-"):
            raise Usage(f"{role} is not an option; {USAGE}")
        return unpack_service(role, options)
    except FormatError as error:
        raise Usage(f"{error}; {USAGE}") from error


def leaves_root(home: Home) -> bool:
    """Return whether this is root, and is to become account `queued`: the queue is not root's. Raises Temporary."""
    return os.geteuid() == 0 and queue_owner(home).uid != 0


def leave_root(home: Home) -> None:
    """Become account `queued` if this is root, and the queue is not root's. Raises Permanent, Temporary."""
    if not leaves_root(home):
        return
    try:
        account = pwd.getpwnam(SMTPD_ACCOUNT)
    except KeyError as error:
        raise Permanent(
            f"unable to find account {SMTPD_ACCOUNT}; make it with: useradd --system --user-group {SMTPD_ACCOUNT}"
        ) from error
    owner = Owner(account.pw_uid, account.pw_gid)
    # Where it cannot be made, as under systemd, queuectl init has made it; or the log has an alert when it is used.
    with suppress(OSError):
        make_greylist_directory(home, owner)
    # Milters and check programs have sockets and files for their groups, which the administrator adds the account to.
    become_reader(owner, os.getgrouplist(SMTPD_ACCOUNT, account.pw_gid))


def take_connection() -> socket.socket | None:
    """Return the connection on descriptor 0, None if there is none.

    A connection that its client has reset has no peer any more, and is one all the same.
    """
    descriptor = os.dup(0)
    try:
        connection = socket.socket(fileno=descriptor)
    except OSError:
        os.close(descriptor)
        return None
    listens = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    if connection.type != socket.SOCK_STREAM or listens:
        connection.close()
        return None
    return connection


def local_config(config: SmtpdConfig) -> SmtpdConfig:
    """Return the config for a user of this host: as sendmail has it, without milters and lookups of recipients.

    That user may use neither the milters' sockets nor the recipient checker.
    """
    rules = config.rules._replace(checkrcpt=False)
    return config._replace(rules=rules, filters=FilterSetup(program=config.filters.program))


def _endpoint(name: object) -> Endpoint:
    """Return an end of a socket by its name, as the socket module has it."""
    return Endpoint(name[0], name[1]) if isinstance(name, tuple) else Endpoint()


def run_connection(
    home: Home, listener: Listener, connection: socket.socket, log: LogWriter, local: bool = False
) -> None:
    """Serve one connection to its end; `local`: its client is who runs this. Raises Failure before it has begun."""
    try:
        peer, own = connection.getpeername(), connection.getsockname()
    except OSError:
        # The client is gone.
        return
    try:
        environment = {b"RELAYCLIENT": b""} if local else os.environb
        given = unpack_given(environment, _endpoint(peer), _endpoint(own))
    except FormatError as error:
        raise Temporary(f"unable to use the environment: {error}") from error
    certificates = ServerCertificates()
    if not local:
        log.write([alert(fault) for fault in certificates.take(read_pem_files(home))])
    context = certificates.context
    if listener.role in IMPLICIT_TLS and context is None:
        raise Temporary(NO_CERTIFICATE % listener.role.value)
    leave_root(home)
    config = local_config(read_config(home)) if local else read_config(home)
    limits = ClientLimits(
        config.values[SMTPDLIMITS]._replace(
            connections=_NO_LIMIT, messages=_NO_LIMIT, recipients=_NO_LIMIT, errors=_NO_LIMIT, concurrency=_NO_LIMIT
        )
    )
    authenticator = Authenticator(home, log)
    authenticator.configure(config.values[CHECKPASSWORD])
    if not local:
        authenticator.refresh()
    setup = session_setup(
        config, listener, limits, context is not None, authenticator.offer, given.databytes, given.relay_suffix
    )
    checks = StrangerChecks(home, log)
    checks.configure(config)
    proxies = config.values[PROXYCLIENTS] if listener.proxy else None
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(home, setup, given, context, connection, authenticator, limits, checks, log, proxies))


async def _serve(
    home: Home,
    setup: SessionSetup,
    given: GivenConnection,
    context: ssl.SSLContext | None,
    connection: socket.socket,
    authenticator: Authenticator,
    limits: ClientLimits,
    checks: StrangerChecks,
    log: LogWriter,
    proxies: tuple[Network, ...] | None,
) -> None:
    loop = asyncio.get_running_loop()
    links, lookups = IntakeLinks(home, loop), MailboxLookups(home, loop)
    connections = OpenConnections(links, lookups, log, authenticator, limits, GreetingPauses(loop), checks)

    readers = ProxyReaders(connections, os.getpid)
    readers.clients = proxies or ()

    def begin(
        transport: asyncio.Transport, now: float, proxied: ProxiedConnection | None = None
    ) -> BegunSession:
        client, port, server_port, own_setup = given.client, given.port, given.server_port, setup
        if proxied is not None:
            # RELAYCLIENT is for the balancer.
            address, port, server, server_port = proxied_ends(proxied)
            client, own_setup = ClientFacts(address, server), setup._replace(relay_suffix=b"")
        # Each process has one session, which the pid names, as tcpserver's own log does.
        session = SmtpSession(os.getpid(), client, own_setup, now)
        place = FilterPlace(setup.me, port, server_port)
        filters = connections.filter_session(setup.filters, os.getpid(), place)
        limits.hold(client.address)
        return BegunSession(session, port, server_port, None, context, filters, client.address)

    def make() -> asyncio.Protocol:
        if proxies is None:
            return cast(asyncio.Protocol, SmtpConnection(begin, connections))
        return ProxyHeaderReader(begin, readers, given.server_port)

    await loop.connect_accepted_socket(make, connection)
    while len(readers):
        try:
            await asyncio.wait_for(readers.empty.wait(), TICK_SECONDS)
        except TimeoutError:
            readers.run(time.monotonic())
    while len(connections):
        try:
            await asyncio.wait_for(connections.empty.wait(), TICK_SECONDS)
        except TimeoutError:
            connections.run(time.monotonic())
    connections.close()


def serve_listeners(home: Home, log: LogWriter) -> None:
    """Run the daemon until TERM. Raises Failure before it has begun."""
    listeners = read_listeners(home)
    count = read_value(home, PROCESSESSMTPD)
    # Until the daemon rereads at HUP, there is nothing to reread.
    ignore(signal.SIGHUP)
    raise_file_limit()
    given = given_sockets(os.environ, listeners)
    tls, faults = begin_tls(home)
    log.write([alert(fault) for fault in faults])
    if tls.certificates.context is None:
        listeners, given = without_submissions(listeners, given, log)
    sockets = [given or open_sockets(listeners) for _ in range(count)]
    # Those of a supervisor stay open for the next start.
    ours = not given
    supervisor = Supervisor(take_variables())
    leave_root(home)
    config = read_config(home)
    # The processes share what they count.
    limits = ClientLimits(config.values[SMTPDLIMITS], count)
    supervisor.ready("accepting connections")
    if count == 1:
        run_daemon(home, sockets[0], ours, config, log, Numbering(1, 1), tls, limits, None)
        return

    def run(place: int, life: int) -> None:
        # This may be long after the start.
        tls.refresh()
        limits.begin(place)
        numbering = Numbering(place + 1, count)
        run_daemon(home, sockets[place], ours, read_config(home), log, numbering, tls, limits, life)

    run_workers(sockets if ours else [[] for _ in sockets], run, log)


def begin_tls(home: Home) -> tuple[TlsSource, list[str]]:
    """Read the certificates, and start what reads them anew as root, if this process will be root no more.

    Return what is wrong with them, too. Raises Temporary.
    """
    read = start_keeper(home) if leaves_root(home) else partial(read_pem_files, home)
    tls = TlsSource(ServerCertificates(), read)
    return tls, tls.certificates.take(read_pem_files(home))


def without_submissions(
    listeners: list[Listener], given: list[ListeningSocket], log: LogWriter
) -> tuple[list[Listener], list[ListeningSocket]]:
    """Return the listeners and sockets that can do without a certificate. Raises Temporary if there are none."""
    kept = [each for each in listeners if each.role not in IMPLICIT_TLS]
    why = NO_CERTIFICATE % " and ".join(sorted({each.role.value for each in listeners if each not in kept}))
    if len(kept) < len(listeners):
        if not kept:
            raise Temporary(why)
        log.write([alert(f"{why}; its listeners are left out, and the others go on")])
    sockets = [each for each in given if each.listener in kept]
    if given and not sockets:
        raise Temporary(why)
    return kept, sockets


def main(argv: list[str]) -> int:
    """Return 0, 100 or 111."""
    leave_process_one()
    fill_standard_descriptors()
    keep_descriptors()
    # Its exit code says whether a program has queued a message.
    keep_children()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        home, words = take_home(argv[1:])
        if take_help(words, HELP):
            return 0
        require_files(FILES_MIN)
        local = words == [LOCAL]
        listener = take_operands([] if local else words)
        connection = take_connection()
        if connection is None and words:
            raise Usage(f"descriptor 0 is no connection, and a daemon listens where control/smtpd says; {USAGE}")
        if local and connection is not None and connection.family != socket.AF_UNIX:
            raise Usage(f"{LOCAL} is for a Unix socket, and not for a connection of the network; {USAGE}")
    except Failure as error:
        complain(PROGRAM, f"fatal: {error}")
        return error.exit_code
    log = LogWriter(2) if connection is None else log_beside(0)
    try:
        if connection is None:
            serve_listeners(home, log)
            return 0
        run_connection(home, listener, connection, log, local)
    except Failure as error:
        log.complain(f"fatal: {error}")
        if connection is None or listener.role in (*IMPLICIT_TLS, Role.QMTP):
            # Nothing can be said before TLS, nor in QMTP before a package.
            return error.exit_code
        try:
            os.write(0, pack_reply(replies.RULES_UNDECIDED._replace(code=421)))
        except OSError:
            pass  # The client is gone.
        return error.exit_code
    return 0
