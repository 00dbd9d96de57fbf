"""queue-smtpd as a daemon: listeners, TERM, HUP, the limit of connections, several processes, memory."""

import asyncio
import os
import re
import resource
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from queue_base.errors import Permanent, Temporary
from queue_base.home import Home
from queue_base.server_certificates import PemFiles, ServerCertificates
from queue_smtpd import smtp_connection
from queue_smtpd.config import read_config
from queue_smtpd.processes import smtp_daemon
from queue_smtpd.processes.listening import BACKLOG, ListeningSocket, given_sockets, open_sockets
from queue_smtpd.processes.log_writer import LogWriter
from queue_smtpd.strangers.client_limits import ClientLimits
from queue_wire.control.listeners import Listener, Role
from queue_wire.control.registry import SMTPDLIMITS
from support.inject.injectors import queued, shared_home
from support.intake.intake_daemon import IntakeDaemon
from support.processes.suite import wait_until
from support.smtpd.milter_server import MilterServer
from support.smtpd.smtpd_daemon import SmtpdDaemon

ANN, BOB = "ann@example.net", "bob@example.org"
TEXT = "Subject: hello\r\n\r\nHow are you?\r\n"
BUSY = b"421 4.3.2 Server is busy; try again later\r\n"


class Kept(LogWriter):
    """A log that is a list."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []

    def write(self, lines: list[bytes]) -> None:
        self.lines += lines


@pytest.fixture
def smtpd_home() -> Iterator[Home]:
    """Yield a home whose queue belongs to whoever runs the test; it takes mail for example.org."""
    with shared_home(0) as home:
        Path(home.control, "rcpthosts").write_text("example.org\n")
        # So that tests are no strangers with limits on their rates.
        Path(home.control, "relayclients").write_text("127.0.0.1\n")
        yield home


@pytest.fixture
def intake(smtpd_home: Home) -> Iterator[IntakeDaemon]:
    with IntakeDaemon(smtpd_home) as daemon:
        yield daemon


def rest(connection: socket.socket) -> bytes:
    """Return what comes to the end of a connection."""
    found = b""
    while data := connection.recv(65536):
        found += data
    return found


@pytest.mark.parametrize("given", [False, True])
def test_it_takes_mail_on_sockets_of_its_own_and_on_those_of_its_supervisor(intake: IntakeDaemon, given: bool) -> None:
    with SmtpdDaemon(intake.home, given=given) as daemon:
        for _ in range(2):
            with daemon.smtp() as client:
                client.sendmail(ANN, [BOB], TEXT)
        daemon.wait_for(b": queued ")
        numbers = [int(number) for number in re.findall(rb"smtp (\d+): connect", daemon.log)]
        assert numbers == list(range(1, len(numbers) + 1))
    assert len(queued(intake.home)) == 2


def test_at_term_a_transaction_ends_and_other_sessions_get_421(intake: IntakeDaemon) -> None:
    with SmtpdDaemon(intake.home) as daemon, daemon.smtp() as client, daemon.connect() as idle:
        assert idle.recv(100).startswith(b"220 ")
        client.ehlo("c")
        client.mail(ANN)
        client.rcpt(BOB)
        daemon.process.send_signal(signal.SIGTERM)
        assert rest(idle) == b"421 4.3.2 Service is shutting down\r\n"
        idle.close()
        wait_until(lambda: not listens(daemon), 60, "the end of listening")
        assert client.data(TEXT)[0] == 250
        assert client.getreply()[0] == 421
        client.close()
        assert daemon.process.wait(60) == 0
        daemon.wait_for(b"end stop: messages 1")
    assert len(queued(intake.home)) == 1


def listens(daemon: SmtpdDaemon) -> bool:
    try:
        daemon.connect().close()
    except (ConnectionRefusedError, ConnectionResetError):
        return False
    return True


def test_hup_rereads_control_files_and_an_error_leaves_the_old_values(intake: IntakeDaemon) -> None:
    bad = Path(intake.home.control, "badmailfrom")
    with SmtpdDaemon(intake.home) as daemon:
        bad.write_text(f"{ANN}\n")
        with daemon.smtp() as client:
            assert client.docmd("HELO c")[0] == client.mail(ANN)[0] == 250
            daemon.process.send_signal(signal.SIGHUP)
            wait_until(lambda: refused(daemon), 60, "badmailfrom to be in force")
            # A session goes on with the rules that it has begun with.
            assert client.rset()[0] == client.mail(ANN)[0] == 250
        Path(intake.home.control, "databytes").write_text("many\n")
        bad.unlink()
        daemon.process.send_signal(signal.SIGHUP)
        daemon.wait_for(b"databytes line 1: not a size")
        assert b"the old values stay" in daemon.log and refused(daemon)


def refused(daemon: SmtpdDaemon) -> bool:
    """Return whether a new session refuses ANN."""
    with daemon.smtp() as client:
        client.helo("c")
        return client.mail(ANN)[0] == 550


@pytest.mark.parametrize("processes", [1, 2])
def test_a_connection_too_many_is_turned_away_and_a_place_is_kept_for_those_who_authenticate(
    intake: IntakeDaemon, processes: int
) -> None:
    Path(intake.home.control, "relayclients").unlink()
    Path(intake.home.control, "concurrencyincoming").write_text("10\n")
    Path(intake.home.control, "processessmtpd").write_text(f"{processes}\n")
    Path(intake.home.control, "smtpdlimits").write_text("connections 0\n")
    with SmtpdDaemon(intake.home, ("mx", "submission")) as daemon:
        wait_until(lambda: daemon.said(b"") and daemon.log.count(b": end ") == 2, 60, "the first clients to end")
        held = []
        for _ in range(9):
            held.append(daemon.connect())
            assert held[-1].recv(100).startswith(b"220 ")
        with daemon.connect() as one_more:
            assert rest(one_more) == BUSY
        wait_until(lambda: greeted(daemon, 1), 60, "a place for a user")
        held.pop().close()
        wait_until(lambda: greeted(daemon, 0), 60, "a free place to be given")
        for connection in held:
            connection.close()


def greeted(daemon: SmtpdDaemon, listener: int) -> bool:
    with daemon.connect(listener) as connection:
        return connection.recv(100).startswith(b"220 ")


def test_several_processes_share_the_port_and_one_that_died_is_started_again(intake: IntakeDaemon) -> None:
    Path(intake.home.control, "processessmtpd").write_text("2\n")
    with SmtpdDaemon(intake.home) as daemon:
        wait_until(lambda: len(children(daemon.process.pid)) == 2, 60, "both processes")
        pids = children(daemon.process.pid)
        os.kill(pids[0], signal.SIGKILL)
        daemon.wait_for(b"alert: process %d has ended (signal 9)" % pids[0])
        wait_until(lambda: len(children(daemon.process.pid)) == 2, 60, "a new process")
        for _ in range(4):
            with daemon.smtp() as client:
                client.sendmail(ANN, [BOB], TEXT)
        daemon.process.send_signal(signal.SIGTERM)
        assert daemon.process.wait(60) == 0
        daemon.said(b"")
    assert len(queued(intake.home)) == 4
    # The numbers of one process are odd, those of the other one even.
    ended = [int(number) for number in re.findall(rb"smtp (\d+): end", daemon.log)]
    assert len(ended) >= 4


def test_at_term_nobody_connects_any_more_though_one_of_several_processes_has_a_transaction(
    intake: IntakeDaemon,
) -> None:
    Path(intake.home.control, "processessmtpd").write_text("2\n")
    with SmtpdDaemon(intake.home) as daemon, daemon.smtp() as client:
        client.ehlo("c")
        client.mail(ANN)
        daemon.process.send_signal(signal.SIGTERM)
        wait_until(lambda: not listens(daemon), 60, "the end of listening of both processes")
        for _ in range(10):
            assert not listens(daemon)
        assert client.rcpt(BOB)[0] == 250
        assert client.data(TEXT)[0] == 250
        client.close()
        assert daemon.process.wait(60) == 0


def test_a_burst_of_clients_waits_for_a_daemon_that_is_busy(intake: IntakeDaemon) -> None:
    if int(Path("/proc/sys/net/core/somaxconn").read_text()) < BACKLOG:
        pytest.skip("needs net.core.somaxconn of 1,024")
    with SmtpdDaemon(intake.home) as daemon, ExitStack() as clients:
        os.kill(daemon.process.pid, signal.SIGSTOP)
        # A client too many would wait here for the daemon.
        for _ in range(200):
            connection = socket.create_connection(("127.0.0.1", daemon.ports[0]), 10)
            clients.enter_context(connection)
        os.kill(daemon.process.pid, signal.SIGCONT)
        assert connection.recv(100).startswith(b"220 ")


def test_at_term_a_queue_intake_that_hangs_keeps_the_daemon_for_a_minute_and_no_longer(
    smtpd_home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(smtp_daemon, "STOP_SECONDS", 0.2)
    monkeypatch.setattr(smtp_connection, "LINGER_SECONDS", 0.2)
    os.makedirs(f"{smtpd_home.queue}/intake", exist_ok=True)
    here = os.getcwd()
    with socket.socket(socket.AF_UNIX) as hanging, ExitStack() as undone:
        undone.callback(os.chdir, here)
        # The path of a socket is short.
        os.chdir(smtpd_home.queue)
        hanging.bind("intake/socket")
        hanging.listen()
        hanging.setblocking(False)
        sockets = open_sockets([Listener("127.0.0.1", 0, Role.MX)])
        mail = b"EHLO c\r\nMAIL FROM:<a@b.example>\r\nRCPT TO:<bob@example.org>\r\nDATA\r\nx\r\n.\r\n"
        with socket.create_connection(sockets[0].socket.getsockname()) as client, open(os.devnull, "wb") as log:
            client.sendall(mail)
            asyncio.run(asyncio.wait_for(_serve_to_term(smtpd_home, sockets, LogWriter(log.fileno()), hanging), 60))
            client.settimeout(60)
            said = rest(client)
    assert b"\r\n354 " in said and b"\r\n451 " in said and b"\r\n250 2.6.0" not in said


async def _serve_to_term(home: Home, sockets: list[ListeningSocket], log: LogWriter, hanging: socket.socket) -> None:
    """Serve; TERM comes when a message was handed over."""
    loop = asyncio.get_running_loop()
    tls = smtp_daemon.TlsSource(ServerCertificates(), list)
    numbering = smtp_daemon.Numbering(1, 1)
    config = read_config(home)
    limits = ClientLimits(config.values[SMTPDLIMITS])
    daemon = smtp_daemon.SmtpDaemon(home, sockets, True, config, log, numbering, tls, limits, loop)
    serving = loop.create_task(daemon.run(None))
    intake, _ = await loop.sock_accept(hanging)
    with intake:
        intake.setblocking(False)
        assert await loop.sock_recv(intake, 10)
        daemon.stop()
        await serving


def test_at_term_a_milter_that_thinks_keeps_the_daemon_for_a_minute_and_no_longer(
    intake: IntakeDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(smtp_daemon, "STOP_SECONDS", 0.2)
    monkeypatch.setattr(smtp_connection, "LINGER_SECONDS", 0.2)
    home = intake.home
    sockets = open_sockets([Listener("127.0.0.1", 0, Role.MX)])
    mail = b"EHLO c\r\nMAIL FROM:<a@b.example>\r\nRCPT TO:<bob@example.org>\r\nDATA\r\nx\r\n.\r\n"
    Path(home.control, "checkrcpt").write_text("0\n")

    async def serve(milter: MilterServer, log: LogWriter) -> None:
        tls = smtp_daemon.TlsSource(ServerCertificates(), list)
        numbering = smtp_daemon.Numbering(1, 1)
        loop = asyncio.get_running_loop()
        config = read_config(home)
        limits = ClientLimits(config.values[SMTPDLIMITS])
        daemon = smtp_daemon.SmtpDaemon(home, sockets, True, config, log, numbering, tls, limits, loop)
        serving = loop.create_task(daemon.run(None))
        await loop.run_in_executor(None, milter.wait_for, b"E")
        daemon.stop()
        await serving

    with MilterServer(tmp_path / "m") as milter, open(tmp_path / "log", "wb") as log:
        milter.begin({b"E": []})
        Path(home.control, "milters").write_text(f"unix:{milter.path}\n")
        with socket.create_connection(sockets[0].socket.getsockname()) as client:
            client.sendall(mail)
            asyncio.run(asyncio.wait_for(serve(milter, LogWriter(log.fileno())), 60))
            client.settimeout(60)
            said = rest(client)
    assert b"\r\n354 " in said and b"\r\n451 4.3.0" in said and b"\r\n421 " in said
    assert b"smtp 1: end stop: messages 0" in (tmp_path / "log").read_bytes() and not queued(home)


def test_a_process_that_cannot_begin_again_says_why_in_one_line(intake: IntakeDaemon) -> None:
    Path(intake.home.control, "processessmtpd").write_text("2\n")
    with SmtpdDaemon(intake.home) as daemon:
        wait_until(lambda: len(children(daemon.process.pid)) == 2, 60, "both processes")
        Path(intake.home.control, "databytes").write_text("many\n")
        os.kill(children(daemon.process.pid)[0], signal.SIGKILL)
        daemon.wait_for(b"databytes line 1: not a size")
        assert b"Traceback" not in daemon.log


def test_processes_end_when_their_parent_is_killed(intake: IntakeDaemon) -> None:
    Path(intake.home.control, "processessmtpd").write_text("2\n")
    with SmtpdDaemon(intake.home) as daemon:
        wait_until(lambda: len(children(daemon.process.pid)) == 2, 60, "both processes")
        pids = children(daemon.process.pid)
        daemon.process.kill()
        wait_until(lambda: not any(Path(f"/proc/{pid}/fd/0").exists() for pid in pids), 60, "the processes to end")


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_a_socket_that_no_line_of_control_smtpd_is_for_is_an_error() -> None:
    with pytest.raises(Permanent, match="not a number of descriptors: -1"):
        given_sockets({"LISTEN_FDS": "-1"}, [])
    assert given_sockets({"LISTEN_FDS": "1", "LISTEN_PID": "1"}, []) == given_sockets({}, []) == []


def test_an_address_in_use_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(Temporary, match=f"unable to listen on 127.0.0.1:{port}: address already in use"):
            open_sockets([Listener("127.0.0.1", port, Role.MX)])


@pytest.mark.exhaustive
def test_5000_idle_connections_take_at_most_150_mb(intake: IntakeDaemon) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 12_000:
        pytest.skip("needs 12,000 descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (12_000, hard))
    Path(intake.home.control, "concurrencyincoming").write_text("6000\n")
    try:
        with SmtpdDaemon(intake.home) as daemon:
            held = []
            for _ in range(5000):
                connection = daemon.connect()
                connection.sendall(b"EHLO c\r\n")
                held.append(connection)
                daemon.said(b"")
            for connection in held:
                assert connection.recv(1000).startswith(b"220 ")
            with daemon.smtp() as client:
                client.sendmail(ANN, [BOB], TEXT)
            assert daemon.memory() < 150 << 20
            for connection in held:
                connection.close()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.exhaustive
def test_fifty_messages_of_50_mb_at_once_take_at_most_150_mb(smtpd_home: Home) -> None:
    Path(smtpd_home.control, "databytes").write_text("60M\n")
    megabyte = (b"x" * 998 + b"\r\n") * 1000
    replies: list[bytes] = []

    def send(connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as lines:
            connection.settimeout(300)
            envelope = f"MAIL FROM:<{ANN}>\r\nRCPT TO:<{BOB}>\r\n".encode()
            connection.sendall(b"EHLO c\r\n" + envelope + b"DATA\r\nSubject: x\r\n\r\n")
            for _ in range(50):
                connection.sendall(megabyte)
            connection.sendall(b".\r\nQUIT\r\n")
            replies.append(lines.readlines()[-2])

    with IntakeDaemon(smtpd_home) as intake, SmtpdDaemon(smtpd_home) as daemon:
        senders = [threading.Thread(target=send, args=(daemon.connect(),)) for _ in range(50)]
        for sender in senders:
            sender.start()
        most = 0
        while any(sender.is_alive() for sender in senders):
            daemon.said(b"")
            most = max(most, daemon.memory(), psutil.Process(intake.process.pid).memory_info().rss)
            time.sleep(0.05)
    assert [reply[:9] for reply in replies] == [b"250 2.6.0"] * 50
    assert most < 150 << 20


def test_an_exception_while_files_are_read_anew_is_logged_once_and_they_are_read_again(
    smtpd_home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(smtp_daemon, "TICK_SECONDS", 0.01)
    monkeypatch.setattr(smtp_daemon, "REREAD_SECONDS", 0.01)
    attempts = {"certificates": 0, "users": 0}

    def fail(what: str) -> bool:
        attempts[what] += 1
        raise ZeroDivisionError(what)

    def read() -> list[PemFiles]:
        assert not fail("certificates")
        return []

    log = Kept()

    async def serve() -> None:
        config, loop = read_config(smtpd_home), asyncio.get_running_loop()
        sockets = open_sockets([Listener("127.0.0.1", 0, Role.MX)])
        shared = smtp_daemon.Numbering(1, 1), smtp_daemon.TlsSource(ServerCertificates(), read)
        daemon = smtp_daemon.SmtpDaemon(
            smtpd_home, sockets, True, config, log, *shared, ClientLimits(config.values[SMTPDLIMITS]), loop
        )
        monkeypatch.setattr(daemon._authenticator, "refresh", lambda: fail("users"))
        serving = loop.create_task(daemon.run(None))
        async with asyncio.timeout(60):
            while min(attempts.values()) < 3:
                await asyncio.sleep(0.01)
        daemon.stop()
        await serving

    asyncio.run(serve())
    assert sorted(line for line in log.lines if line.startswith(b"alert: ")) == [
        b"alert: unable to read the %s anew: ZeroDivisionError('%s'); the old ones stay; report this" % (what, what)
        for what in (b"certificates", b"users")
    ]
