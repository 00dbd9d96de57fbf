"""ATRN in trouble: queue-ondemand hangs, a process of queue-smtpd is killed, and a thousand hosts ask at once."""

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from queue_ondemand.keeper import REVERSALS_MAX
from queue_smtp.auth_server import make_verifier
from support.local.good_mail import GoodMail
from support.plugins.saying import Say
from support.processes.suite import Suite, program, wait_until
from support.queues.queued import store_on_demand
from support.servers.smtp.sink import Sink, Taken
from support.smtpd.odmr_host import PASSWORD, OdmrHost, fetch, give_users, make_provider
from support.smtpd.smtpd_daemon import SmtpdDaemon

pytestmark = [pytest.mark.exhaustive, pytest.mark.one_way]
DOMAIN = b"customer.example"
TEXT = b"Subject: hello\n\nhello\n"
MESSAGES = 20
HOSTS = 1000


class WaitingSink(Sink):
    """Takes some messages, and answers the last of them, and what follows, only when it is told to go on."""

    def __init__(self, messages: int) -> None:
        super().__init__()
        self.messages = messages
        self.reached = threading.Event()
        self.going_on = threading.Event()

    def take(self, message: Taken) -> None:
        """Keep a message, and wait if it is that one."""
        super().take(message)
        if len(self.taken) == self.messages:
            self.reached.set()
            assert self.going_on.wait(120)


@pytest.fixture
def provider(mail: GoodMail, tmp_path: Path) -> GoodMail:
    """Give a site with some messages for a domain."""
    make_provider(mail, tmp_path)
    mail.control("smtpdlimits", "exempt 127.0.0.0/8\n")
    store_on_demand(mail.home, DOMAIN, [[address(number)] for number in range(MESSAGES)], data=TEXT)
    return mail


@pytest.fixture
def sink() -> Iterator[WaitingSink]:
    with WaitingSink(MESSAGES // 2) as found:
        yield found


def address(number: int) -> bytes:
    return b"%d@%s" % (number, DOMAIN)


def numbers(sink: Sink) -> list[int]:
    return [int(taken.recipients[0].partition(b"@")[0]) for taken in sink.taken]


def check_whole(sink: Sink, repeats: int) -> None:
    """Check that each message came, in order, and so many of them twice at most."""
    came = numbers(sink)
    assert sorted(set(came)) == list(range(MESSAGES))
    assert len(came) <= MESSAGES + repeats and came == sorted(came), came


def take(host: OdmrHost, sink: Sink) -> None:
    """Take mail, to the end of the connection."""
    with suppress(OSError):
        host.take(sink)


@pytest.mark.parametrize("killed", [False, True], ids=["continued", "killed"])
def test_while_queue_ondemand_hangs_other_mail_goes_on_and_nothing_is_lost(
    provider: GoodMail, sink: WaitingSink, killed: bool
) -> None:
    with SmtpdDaemon(provider.home, ["odmr"]) as smtpd:
        with Suite(provider.home) as suite, OdmrHost(smtpd) as host:
            keeper = suite.daemon("queue-ondemand")
            assert host.ask() == 250
            thread = threading.Thread(target=take, args=[host, sink])
            thread.start()
            assert sink.reached.wait(60)
            os.kill(keeper, signal.SIGSTOP)
            sink.going_on.set()
            # The host says that it has the message, and queue-remote reports that. Nobody marks it.
            provider.check_alive(suite, "meanwhile")
            with OdmrHost(smtpd, "another") as other:
                assert other.ask() == 451
            assert thread.is_alive()
            if killed:
                os.kill(keeper, signal.SIGKILL)
                suite.wait_for(r"alert: oh no! lost queue-ondemand connection! mail for its domains waits")
            else:
                os.kill(keeper, signal.SIGCONT)
            thread.join(60)
            assert not thread.is_alive()
        with Suite(provider.home):
            wait_until(lambda: fetch(smtpd, sink) == 453, why="an empty store")
    assert numbers(sink)[MESSAGES // 2 - 1] == MESSAGES // 2 - 1
    check_whole(sink, repeats=int(killed))


def process_of(smtpd: SmtpdDaemon, host: OdmrHost) -> psutil.Process:
    """Return the process of queue-smtpd that has a host's connection."""
    port = host.connection.getsockname()[1]
    for each in psutil.Process(smtpd.process.pid).children():
        if any(found.raddr and found.raddr[1] == port for found in each.net_connections("tcp")):
            return each
    raise AssertionError("no process has it")


@pytest.mark.parametrize("replied", [False, True])
def test_a_killed_process_of_queue_smtpd_cuts_its_hosts_off_and_costs_one_repeat_each(
    provider: GoodMail, sink: WaitingSink, replied: bool
) -> None:
    provider.control("processessmtpd", "2\n")
    with Suite(provider.home) as suite, SmtpdDaemon(provider.home, ["odmr"]) as smtpd:
        with OdmrHost(smtpd) as host:
            process = process_of(smtpd, host)
            assert host.ask() == 250
            thread = threading.Thread(target=take, args=[host, sink])
            thread.start()
            assert sink.reached.wait(60)
            if not replied:
                process.kill()
            sink.going_on.set()
            if replied:
                suite.wait_for(f"^ondemand .* done .*: to {address(MESSAGES // 2 - 1).decode()} success: ")
                process.kill()
            thread.join(60)
            assert not thread.is_alive()
        smtpd.wait_for(b"alert: process %d has ended (signal 9)" % process.pid)
        suite.wait_for(r"^ondemand customer\.example ended: ")
        with OdmrHost(smtpd) as host:
            code = host.ask_again()
            assert code in (250, 453)
            take(host, sink)
        assert fetch(smtpd, sink) == 453
    check_whole(sink, repeats=1)


def domain_of(number: int) -> bytes:
    return b"d%d.example" % number


@contextmanager
def read_log(smtpd: SmtpdDaemon) -> Iterator[None]:
    """Read queue-smtpd's log all the time: it waits if nobody does, and here it has more to say than a pipe takes."""
    over = threading.Event()

    def read() -> None:
        while not over.wait(0.02):
            smtpd.said(b"")

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def memory(suite: Suite, name: str) -> int:
    """Return the sum of the resident memory of a program's daemons in bytes."""
    return sum(psutil.Process(pid).memory_info().rss for pid in suite.found(name))


def test_of_a_thousand_hosts_that_ask_at_once_some_get_their_mail_and_the_rest_come_again(
    mail: GoodMail, tmp_path: Path, say: Say
) -> None:
    make_provider(mail, tmp_path)
    mail.control("smtpdlimits", "exempt 127.0.0.0/8\n")
    mail.control("concurrencyincoming", f"{HOSTS + 100}\n")
    mail.control("relayclients", "127.0.0.1\n")
    # One more, whose host asks before the others: the daemons load code for the first one.
    domains = [domain_of(number) for number in range(HOSTS + 1)]
    mail.control("ondemand", "".join(f"{domain.decode()}:atrn\n" for domain in domains))
    mail.control("ondemandusers", "".join(f"u{number}:{domain.decode()}\n" for number, domain in enumerate(domains)))
    verifier = make_verifier(PASSWORD.encode(), b"0123456789abcdef")
    give_users(mail, **{f"u{number}": verifier for number in range(HOSTS + 1)})
    for domain in domains:
        store_on_demand(mail.home, domain, [[b"ann@" + domain]], data=TEXT)
    with ExitStack() as stack:
        suite = stack.enter_context(Suite(mail.home))
        smtpd = stack.enter_context(SmtpdDaemon(mail.home, ["odmr", "mx"]))
        stack.enter_context(read_log(smtpd))
        sink = stack.enter_context(Sink())
        daemons = ("queue-ondemand", "queue-remote", "queue-send")
        with OdmrHost(smtpd, f"u{HOSTS}") as host:
            assert host.ask() == 250
            host.take(sink)
        before = {name: memory(suite, name) for name in daemons}
        small = smtpd.memory()
        hosts = []
        for number in range(HOSTS):
            hosts.append(stack.enter_context(OdmrHost(smtpd, f"u{number}")))
        waiting = hosts
        rounds = 0
        while waiting:
            for host in waiting:
                host.client.putcmd("ATRN")
            replies = [host.client.getreply() for host in waiting]
            started = [host for host, (code, _) in zip(waiting, replies, strict=True) if code == 250]
            late = {reply for reply in replies if reply[0] != 250}
            # Of a burst some are refused because it is one, and a place stays free.
            most = min(len(waiting), REVERSALS_MAX)
            assert most * 3 // 4 <= len(started) <= most
            # The time for a first command is short, and this machine may be busy.
            busy = (421, b"4.4.2 Timeout exceeded")
            assert late <= {(451, b"4.3.0 Unable to process ATRN request now"), busy}
            if not rounds:
                # While these hosts say nothing, all others are served.
                with smtpd.smtp(1) as client:
                    client.sendmail("joe@me.example.org", ["ann@elsewhere.example"], TEXT.decode())
                mail.check_alive(suite, "meanwhile")
                shown = subprocess.run(
                    [*program("queuectl"), "--home", mail.home.path, "stat"], capture_output=True, timeout=60
                )
                assert shown.returncode == 0, shown.stderr
                after = {name: memory(suite, name) - before[name] for name in daemons}
                large = smtpd.memory() - small
            for host in started:
                host.take(sink)
                host.client.close()
            waiting = [host for host, (code, _) in zip(waiting, replies, strict=True) if code != 250]
            rounds += 1
        wait_until(lambda: not os.listdir(f"{mail.home.queue}/ondemand"), why="an empty store")
        assert suite.count("warning: internal error") == 0 and b"Traceback" not in smtpd.log
    assert sorted(taken.recipients[0] for taken in sink.taken) == sorted(b"ann@" + domain for domain in domains)
    assert all(more < 16 << 20 for more in after.values()), after
    shown_memory = ", ".join(f"{name} {more >> 10} kB" for name, more in after.items())
    say(f"{rounds} rounds; memory for {REVERSALS_MAX} of {HOSTS}: {shown_memory}, queue-smtpd {large >> 10} kB")
