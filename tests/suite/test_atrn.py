"""ATRN (RFC 2645): mail of a domain is stored at once, and goes to the host that asks for it on its own connection."""

import fcntl
import os
import re
import signal
import socket
import subprocess
import termios
import threading
import time
from array import array
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from queue_wire.admin.ondemand_socket import ATRN, ETRN, FLUSH, LATER
from queue_wire.control.smtpdusers import SharedSecret
from support.local.good_mail import GoodMail
from support.processes.ondemand_client import ask
from support.processes.suite import Suite, enqueue, program, wait_until
from support.queues.home import make_several
from support.queues.letters import letter_text, token_of
from support.send.control import queuectl
from support.servers.smtp.raw_server import Peer, RawServer
from support.servers.smtp.sink import Sink, Taken
from support.smtpd.odmr_host import PASSWORD, OdmrHost, fetch, give_users, make_provider
from support.smtpd.smtpd_daemon import SmtpdDaemon
from support.tools import need

STORED = r"^delivery \d+: success: stored_for_(customer|branch|other)\.example/Its_host_asks_for_it_with_ATRN"
ENDED = r"^ondemand customer\.example ended: "


@pytest.fixture
def provider(mail: GoodMail, tmp_path: Path) -> GoodMail:
    """Give a site with three domains of two users."""
    make_provider(mail, tmp_path)
    return mail


@pytest.fixture
def sink() -> Iterator[Sink]:
    with Sink() as found:
        yield found


def send(mail: GoodMail, suite: Suite, *tokens: str, domain: str = "customer.example", user: str = "ann") -> None:
    """Send messages, and wait until they are stored."""
    before = suite.count(STORED)
    for token in tokens:
        done = enqueue(mail.home, b"joe@me.example.org", [f"{user}@{domain}".encode()], letter_text(token))
        assert done.returncode == 0, done.stderr
    suite.wait_for(STORED, times=before + len(tokens))


def tokens(sink: Sink) -> list[str]:
    return [token_of(taken.content) for taken in list(sink.taken)]


def test_a_host_gets_the_mail_of_its_domains_in_order_on_its_own_connection(provider: GoodMail, sink: Sink) -> None:
    with Suite(provider.home) as suite, SmtpdDaemon(provider.home, ["odmr"]) as smtpd:
        send(provider, suite, "c1", "c2")
        send(provider, suite, "b1", domain="branch.example")
        send(provider, suite, "o1", domain="other.example")
        send(provider, suite, "c3")
        assert fetch(smtpd, sink) == 250
        assert tokens(sink) == ["c1", "c2", "c3", "b1"]
        suite.wait_for(r"^ondemand customer\.example started: atrn")
        suite.wait_for(r"^ondemand customer\.example done \S+: to ann@customer\.example success: 127\.0\.0\.1_accepted")
        suite.wait_for(r"^ondemand branch\.example ended: delivered 1 failed 0 deferred 0")
        assert fetch(smtpd, sink) == 453
        assert fetch(smtpd, sink, "branch.example,customer.example") == 453
        smtpd.wait_for(b": atrn customer.example,branch.example: 250")
        smtpd.wait_for(b": end ATRN: messages 0 errors 0 ")
        smtpd.wait_for(b": refused ATRN customer.example,branch.example: 453_4.2.0_You_have_no_mail")
    assert not provider.sink.taken, "nothing was tried by ordinary routing"


def test_one_of_the_domains_may_be_asked_for_and_no_other_users(provider: GoodMail, sink: Sink) -> None:
    with Suite(provider.home) as suite, SmtpdDaemon(provider.home, ["odmr", "mx"]) as smtpd:
        send(provider, suite, "c1")
        send(provider, suite, "b1", domain="branch.example")
        send(provider, suite, "o1", domain="other.example")
        for domains in ("other.example", "customer.example,other.example", "nowhere.example"):
            assert fetch(smtpd, sink, domains) == 450
        with OdmrHost(smtpd, "nobody") as host:
            assert host.ask() == 450
        assert fetch(smtpd, sink, "Branch.Example") == 250
        assert tokens(sink) == ["b1"]
        with OdmrHost(smtpd, "") as host:
            assert host.ask() == host.client.docmd("MAIL FROM:<>")[0] == 530
        with OdmrHost(smtpd) as host:
            assert host.ask("a..b") == 501
            assert host.client.docmd("MAIL FROM:<>")[0] == 502
        with smtpd.smtp(1) as stranger:
            stranger.ehlo()
            assert stranger.docmd("ATRN")[0] == 502
            assert stranger.docmd("ETRN", "customer.example")[0] == 459, "nobody but its host knows where it is"


def test_without_queue_ondemand_or_a_line_the_host_is_told_to_come_again(provider: GoodMail, sink: Sink) -> None:
    with SmtpdDaemon(provider.home, ["odmr"]) as smtpd:
        assert fetch(smtpd, sink) == 451
        provider.control("ondemand", "customer.example:etrn\nbranch.example:atrn\n")
        with Suite(provider.home):
            assert fetch(smtpd, sink) == 451


def test_hosts_that_ask_at_the_same_moment_get_each_its_own_mail(provider: GoodMail, sink: Sink) -> None:
    with Suite(provider.home) as suite, SmtpdDaemon(provider.home, ["odmr"]) as smtpd, Sink() as another:
        send(provider, suite, "c1")
        send(provider, suite, "o1", domain="other.example")
        keeper = suite.daemon("queue-ondemand")
        with OdmrHost(smtpd) as first, OdmrHost(smtpd, "another") as second:
            os.kill(keeper, signal.SIGSTOP)
            try:
                for host in (first, second):
                    host.client.putcmd("ATRN")
                shown = ("smtpd", "--sessions", "--format", "json")
                asks = '"state": "lookup"'
                wait_until(lambda: queuectl(provider.home, *shown).stdout.count(asks) == 2, why="both questions")
            finally:
                os.kill(keeper, signal.SIGCONT)
            pairs = ((first, sink), (second, another))
            taking = [threading.Thread(target=host.take, args=[each]) for host, each in pairs]
            for host, thread in zip((first, second), taking, strict=True):
                assert host.client.getreply()[0] == 250
                thread.start()
            suite.wait_for(r"^ondemand customer\.example ended: delivered 1 ")
            suite.wait_for(r"^ondemand other\.example ended: delivered 1 ")
            # Up to the reply to QUIT; before that neither connection may be closed here.
            for thread in taking:
                thread.join(60)
                assert not thread.is_alive()
        assert tokens(sink) == ["c1"] and tokens(another) == ["o1"]


def test_a_host_that_is_gone_before_the_reply_leaves_nothing_open(provider: GoodMail, sink: Sink) -> None:
    with Suite(provider.home) as suite, SmtpdDaemon(provider.home, ["odmr"]) as smtpd:
        send(provider, suite, "c1")
        with OdmrHost(smtpd) as host:
            assert host.ask() == 250
        suite.wait_for(ENDED)
        wait_until(lambda: fetch(smtpd, sink, "branch.example") == 453, why="the end of the run")
        before = descriptors(suite, smtpd)
        keeper = suite.daemon("queue-ondemand")
        for _ in range(5):
            os.kill(keeper, signal.SIGSTOP)
            try:
                with OdmrHost(smtpd) as host:
                    host.client.putcmd("ATRN")
            finally:
                os.kill(keeper, signal.SIGCONT)
        wait_until(lambda: descriptors(suite, smtpd) <= before, why="the end of all that was opened")
        wait_until(lambda: fetch(smtpd, sink) == 250, why="the mail")
    assert tokens(sink) == ["c1"]


def test_while_the_file_of_domains_cannot_be_read_at_a_start_what_is_stored_goes_nowhere(
    provider: GoodMail, sink: Sink
) -> None:
    with Suite(provider.home) as suite:
        send(provider, suite, "c1")
        right = Path(provider.home.control, "ondemand").read_text()
        provider.control("ondemand", f"{right}broken\n")
    with Suite(provider.home), SmtpdDaemon(provider.home, ["odmr"]) as smtpd:
        for command in (ETRN, FLUSH):
            assert ask(provider.home, b"customer.example", command).word == LATER
        assert fetch(smtpd, sink) == 451
        provider.control("ondemand", right)
        wait_until(lambda: fetch(smtpd, sink) == 250, why="the mail after the file is mended")
    assert tokens(sink) == ["c1"] and not provider.sink.taken


def test_while_a_host_takes_its_mail_another_one_of_the_user_is_busy_and_other_users_are_not(
    provider: GoodMail, sink: Sink
) -> None:
    with Suite(provider.home) as suite, SmtpdDaemon(provider.home, ["odmr"]) as smtpd:
        send(provider, suite, "c1")
        send(provider, suite, "o1", domain="other.example")
        with OdmrHost(smtpd) as stalled:
            assert stalled.ask() == 250
            shown = queuectl(provider.home, "smtpd", "--sessions", "--format", "json").stdout
            assert '"state": "reversed"' in shown, shown
            assert fetch(smtpd, sink) == 450
            assert fetch(smtpd, sink, "customer.example") == 450
            with OdmrHost(smtpd, "another") as host:
                assert host.ask() == 250
                host.take(sink)
            assert tokens(sink) == ["o1"]
        suite.wait_for(r"^ondemand customer\.example ended: delivered 0 failed 0 deferred 1")
        wait_until(lambda: fetch(smtpd, sink) == 250, why="the mail after the end of the connection")
        assert tokens(sink) == ["o1", "c1"]


def test_a_host_that_does_not_read_costs_no_memory_and_goes_on_later(provider: GoodMail, sink: Sink) -> None:
    with Suite(provider.home) as suite, SmtpdDaemon(provider.home, ["odmr"]) as smtpd:
        content = letter_text("large") + b"x" * 70 + b"\n" + (b"y" * 70 + b"\n") * 150_000
        done = enqueue(provider.home, b"joe@me.example.org", [b"ann@customer.example"], content)
        assert done.returncode == 0, done.stderr
        suite.wait_for(STORED)
        with OdmrHost(smtpd) as host:
            before = smtpd.memory()
            assert host.ask() == 250
            connection = host.connection
            for reply in (b"220 h", b"250 h", b"250 ok", b"250 ok", b"354 go on"):
                connection.sendall(reply + b"\r\n")
                assert reply.startswith(b"354") or connection.recv(1000).endswith(b"\r\n")
            # Once nothing more fits between here and there, everybody waits.
            wait_until(lambda: is_full(connection, smtpd), why="the stop")
            assert smtpd.memory() - before < 6 << 20
            assert fetch(smtpd, sink, "branch.example") == 453, "it serves others"
            # Once the host reads, all goes on.
            size, end = 0, b""
            while not end.endswith(b"\r\n.\r\n"):
                data = connection.recv(1 << 20)
                size, end = size + len(data), (end + data)[-5:]
            assert size > 150_000 * 72
            connection.sendall(b"250 taken\r\n")
            assert connection.recv(100) == b"QUIT\r\n"
            connection.sendall(b"221 bye\r\n")
            suite.wait_for(r"^ondemand customer\.example ended: delivered 1 failed 0 deferred 0")
            smtpd.wait_for(b": end ATRN: ")


def is_full(connection: socket.socket, smtpd: SmtpdDaemon) -> bool:
    """Return whether much waits on a connection, and queue-smtpd uses no processor any more."""
    waiting = array("i", [0])
    fcntl.ioctl(connection.fileno(), termios.FIONREAD, waiting)
    stat = Path(f"/proc/{smtpd.process.pid}/stat")
    before = stat.read_text().split()[13:15]
    threading.Event().wait(0.1)
    return waiting[0] > 50_000 and stat.read_text().split()[13:15] == before


def test_what_the_host_refuses_is_returned_and_what_it_defers_stays(provider: GoodMail, sink: Sink) -> None:
    with Suite(provider.home) as suite, SmtpdDaemon(provider.home, ["odmr"]) as smtpd:
        send(provider, suite, "refused", user="refused")
        send(provider, suite, "never", user="never")
        send(provider, suite, "good")
        assert fetch(smtpd, sink) == 250
        assert tokens(sink) == ["good"]
        suite.wait_for(r"^ondemand customer\.example ended: delivered 1 failed 1 deferred 1")
        suite.wait_for(r"^ondemand customer\.example bounced ")
        wait_until(lambda: len(provider.site.delivered()) == 1, why="the bounce")
        assert fetch(smtpd, sink) == 250, "what was deferred is there still"


@pytest.mark.parametrize("reset", [True, False], ids=["by a reset", "behind all that came"])
def test_what_a_host_says_in_the_middle_of_a_message_before_it_closes_is_the_verdict(
    provider: GoodMail, reset: bool
) -> None:
    refused = r"^ondemand customer\.example done .* failure: .*552_5\.3\.4_too_big"
    large = b"Subject: large\n\n" + (b"x" * 70 + b"\n") * 60_000
    with Suite(provider.home) as suite, SmtpdDaemon(provider.home, ["odmr"]) as smtpd:
        for times in range(1, 7):
            assert enqueue(provider.home, b"joe@me.example.org", [b"ann@customer.example"], large).returncode == 0
            suite.wait_for(STORED, times=times)
            with OdmrHost(smtpd) as host:
                assert host.ask_again() == 250
                refuse_in_message(host.connection, reset)
            suite.wait_for(ENDED, times=times)
            assert suite.count(refused) == times, suite.lines[-5:]


def refuse_in_message(connection: socket.socket, reset: bool) -> None:
    """Take the first bytes of a message, refuse it, and close the connection, with much unread or soon after all."""
    connection.sendall(b"220 host.example\r\n")
    for command in (b"EHLO", b"MAIL", b"RCPT", b"DATA"):
        heard = b""
        while not heard.endswith(b"\n"):
            heard += connection.recv(1)
        assert heard.startswith(command)
        connection.sendall(b"354 go on\r\n" if command == b"DATA" else b"250 ok\r\n")
    assert connection.recv(1000)
    connection.sendall(b"552 5.3.4 too big\r\n")
    if not reset:
        connection.shutdown(socket.SHUT_WR)
        with suppress(OSError):
            while connection.recv(1 << 20):
                pass
    connection.close()


def test_fetchmail_takes_mail_in_its_odmr_mode(provider: GoodMail, sink: Sink, tmp_path: Path) -> None:
    give_users(provider, customer=SharedSecret(PASSWORD.encode()))
    rc = tmp_path / "fetchmailrc"
    with Suite(provider.home) as suite, SmtpdDaemon(provider.home, ["odmrs"]) as smtpd:
        send(provider, suite, "f1", "f2")
        rc.touch(0o600)
        rc.write_text(
            f"poll 127.0.0.1 protocol ODMR service {smtpd.ports[0]} timeout 20\n"
            f'plugin "{need("openssl")} s_client -quiet -no_ign_eof -connect %h:%p"\n'
            f'user customer password "{PASSWORD}"\n'
            f"smtphost 127.0.0.1/{sink.port} fetchdomains customer.example branch.example\n"
        )
        command = [need("fetchmail"), "-f", str(rc), "-v"]
        environment = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=tmp_path, env=environment)
        assert tokens(sink) == ["f1", "f2"], done.stdout + done.stderr
        suite.wait_for(r"^ondemand customer\.example ended: delivered 2 failed 0 deferred 0")
        smtpd.wait_for(b": auth customer CRAM-MD5")


def test_a_fetchmail_that_is_killed_leaves_no_connection_that_locks_its_user_out(
    provider: GoodMail, tmp_path: Path
) -> None:
    give_users(provider, customer=SharedSecret(PASSWORD.encode()))
    rc = tmp_path / "fetchmailrc"
    over, asked = threading.Event(), threading.Event()

    def hang(peer: Peer) -> None:
        asked.set()
        over.wait(60)

    with (
        RawServer(hang) as local,
        Suite(provider.home) as suite,
        SmtpdDaemon(provider.home, ["odmrs"]) as smtpd,
    ):
        send(provider, suite, "f1")
        rc.touch(0o600)
        rc.write_text(
            f"poll 127.0.0.1 protocol ODMR service {smtpd.ports[0]} timeout 60\n"
            f'plugin "{need("openssl")} s_client -quiet -no_ign_eof -connect %h:%p"\n'
            f'user customer password "{PASSWORD}"\n'
            f"smtphost 127.0.0.1/{local.port} fetchdomains customer.example\n"
        )
        environment = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
        with subprocess.Popen([need("fetchmail"), "-f", str(rc)], cwd=tmp_path, env=environment) as fetchmail:
            assert asked.wait(60)
            fetchmail.kill()
        [number] = re.findall(rb"smtp (\d+): atrn ", smtpd.log) if smtpd.said(b": atrn ") else []
        smtpd.wait_for(b"smtp %s: end " % number)
        over.set()


@pytest.mark.long
def test_a_host_that_is_silent_for_a_minute_gives_way_to_another_connection_of_its_user(
    provider: GoodMail, sink: Sink
) -> None:
    provider.control("smtpdlimits", "exempt 127.0.0.0/8\n")
    process = SmtpdDaemon(provider.home, ["odmr"])
    with Suite(provider.home) as suite, SmtpdDaemon(provider.home, ["odmr"]) as smtpd, process as another:
        send(provider, suite, "i1")
        with OdmrHost(smtpd) as silent, OdmrHost(smtpd, "another") as other:
            assert silent.ask() == 250
            # The greeting and EHLO have a shorter time.
            silent.connection.sendall(b"220 host.example\r\n")
            assert silent.connection.recv(1000).startswith(b"EHLO ")
            silent.connection.sendall(b"250 host.example\r\n")
            # Nobody takes over a connection through which something has just passed, nor another user ever.
            assert fetch(smtpd, sink) == 450
            assert other.ask("customer.example") == 450
            begun = time.monotonic()

            def taken() -> bool:
                # queue-smtpd waits if nobody reads its log.
                return not smtpd.said(b"?") and not another.said(b"?") and fetch(another, sink) == 250

            # Another process of queue-smtpd has no other way to tell the first one.
            wait_until(taken, 180, "the old connection to end")
            assert time.monotonic() - begun > 50
        assert tokens(sink) == ["i1"]
        smtpd.wait_for(b": end ATRN_failed: ")


def test_the_administrator_is_told_that_the_host_has_to_ask(provider: GoodMail) -> None:
    with Suite(provider.home) as suite:
        send(provider, suite, "c1")
        suite.wait_for("^end msg ")
        command = [*program("queuectl"), "--home", provider.home.path, "flush", "--domain", "customer.example"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert "customer.example: its host has to ask for what is stored, with ATRN\n" in done.stdout, done.stderr
        assert done.returncode == 1
        assert suite.count("^ondemand .* started: ") == 0
        with pytest.raises(AssertionError, match="it has closed the connection"):
            ask(provider.home, b"customer.example", ATRN)


def test_mail_over_the_size_of_its_domain_stays_in_the_queue_and_is_not_tried(provider: GoodMail) -> None:
    provider.control("ondemand", "customer.example:atrn size 1\n")
    with Suite(provider.home) as suite:
        done = enqueue(provider.home, b"joe@me.example.org", [b"ann@customer.example"], letter_text("large"))
        assert done.returncode == 0, done.stderr
        line = suite.wait_for(r"^delivery 1: ")
        assert re.search(r"deferral: Its_host_asks_for_it_with_ATRN\./unable_to_store_it:_disk_quota_exceeded/", line)
    assert not provider.sink.taken


def test_with_several_queues_each_delivers_on_the_same_connection(
    provider: GoodMail, sink: Sink, tmp_path: Path
) -> None:
    home = make_several(tmp_path / "home", "a", "b", split=3)
    for name in ("me", "ondemand", "ondemandusers", "smtpdcert", "smtpdusers"):
        Path(home.control, name).write_bytes(Path(provider.home.control, name).read_bytes())
    Path(home.control, "smtpdusers").chmod(0o640)
    with ExitStack() as stack:
        sets = [stack.enter_context(Suite(home, options=("--queue", name))) for name in home.queues]
        names = ["a1", "a2", "b1", "b2"]
        for name in names:
            queue = home.choose(name[0])
            done = enqueue(queue, b"joe@me.example.org", [b"ann@customer.example"], letter_text(name))
            assert done.returncode == 0, done.stderr
        for suite in sets:
            suite.wait_for(STORED, times=2)
        with SmtpdDaemon(home, ["odmr"]) as smtpd:
            assert fetch(smtpd, sink) == 250
            # Of one queue, two that came at once may have been stored in either order.
            assert [name[0] for name in tokens(sink)] == list("aabb") and sorted(tokens(sink)) == names
            smtpd.wait_for(b": end ATRN: ")
            assert fetch(smtpd, sink) == 453


class KillingSink(Sink):
    """A sink that kills a suite when so many messages have come, before or after the reply to the last one."""

    def __init__(self, messages: int, replied: bool) -> None:
        super().__init__()
        self.suite: Suite | None = None
        self._messages = messages
        self._replied = replied

    def take(self, message: Taken) -> None:
        super().take(message)
        if len(self.taken) == self._messages and not self._replied and self.suite is not None:
            self.suite.kill()

    def hear(self, line: str) -> None:
        """Take a line of the suite's log."""
        if self._replied and line.startswith("ondemand customer.example done "):
            self._messages -= 1
            if not self._messages and self.suite is not None:
                threading.Thread(target=self.suite.kill).start()


@pytest.mark.parametrize("replied", [False, True])
@pytest.mark.parametrize("messages", [3, *[pytest.param(each, marks=pytest.mark.exhaustive) for each in (1, 2)]])
def test_a_kill_at_the_reply_to_a_message_loses_nothing(provider: GoodMail, messages: int, replied: bool) -> None:
    with SmtpdDaemon(provider.home, ["odmr"]) as smtpd, KillingSink(messages, replied) as sink:
        with Suite(provider.home, on_line=sink.hear) as suite:
            send(provider, suite, "m1", "m2", "m3")
            suite.wait_for("^end msg ", times=3)
            sink.suite = suite
            with OdmrHost(smtpd) as host, suppress(OSError):
                assert host.ask() == 250
                host.take(sink)
            wait_until(lambda: suite.process.poll() is not None, why="the end of the suite")
        smtpd.wait_for(b": end ATRN")
        sink.suite = None
        with Suite(provider.home):
            wait_until(lambda: fetch(smtpd, sink) == 453, why="an empty store")
        assert set(tokens(sink)) == {"m1", "m2", "m3"}
        assert len(tokens(sink)) <= 4, "one message comes twice at most"


class CutSink(Sink):
    """A sink that closes a connection for good after so many bytes have come."""

    left = 0

    def cut(self, connection: "OdmrHost", left: int) -> None:
        """Take mail until so many bytes have come. What is answered to them may be lost."""
        self.left = left
        try:
            self.serve(_CutConnection(self, connection))  # type: ignore[arg-type]
        except OSError:
            pass


class _CutConnection:
    def __init__(self, sink: CutSink, host: OdmrHost) -> None:
        self._sink = sink
        self._host = host

    def recv(self, most: int) -> bytes:
        if not self._sink.left:
            return b""
        data = self._host.connection.recv(min(most, self._sink.left))
        self._sink.left -= len(data)
        return data

    def sendall(self, data: bytes) -> None:
        self._host.connection.sendall(data)


def descriptors(suite: Suite, smtpd: SmtpdDaemon) -> int:
    """Return how many descriptors the daemons have open."""
    pid = suite.process.pid
    daemons = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return sum(len(list(Path(f"/proc/{each}/fd").iterdir())) for each in (*daemons, str(smtpd.process.pid)))


def test_cut_at_some_places_nothing_is_lost_and_little_comes_twice(provider: GoodMail) -> None:
    count, cuts = 4, 6
    with Suite(provider.home) as suite, SmtpdDaemon(provider.home, ["odmr"]) as smtpd, CutSink() as sink:
        names = [f"m{number}" for number in range(count)]
        send(provider, suite, *names)
        # In EHLO, an envelope, a message, or behind some messages. test_atrn_cuts.py has all places.
        size = len(letter_text(names[0])) + 200
        before = 0
        for place in range(cuts):
            with OdmrHost(smtpd) as host:
                assert host.ask_again() == 250
                sink.cut(host, 10 + place * size // cuts)
            suite.wait_for(ENDED, times=place + 1)
            before = before or descriptors(suite, smtpd)
        # Daemons open a file or two for the first time; a leak would cost one for each cut.
        wait_until(lambda: descriptors(suite, smtpd) <= before + 2, why="the end of all connections")
        wait_until(lambda: fetch(smtpd, sink) == 250, why="the mail")
        suite.wait_for(ENDED, times=cuts + 1)
        assert fetch(smtpd, sink) == 453
        came = tokens(sink)
    assert set(came) == set(names)
    assert len(came) <= count + cuts, "a cut repeats one message at most"
