"""Mail that would take all places, the active set or a daemon's time, and how long other mail beside it waits.

What hangs, or costs much, is one sender's. Others' mail is for prompt hosts or for users, and should start at once.
"""

import contextlib
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from support.processes.suite import Suite
from support.queues.letters import Letter
from support.send.feeding import bulk
from support.servers.dns.hostile_answers import HostileDns
from support.servers.smtp.dripping import Dripping
from support.servers.smtp.sink import Sink, Tarpit
from support.servers.smtp.smtp_sink import SmtpSink
from support.site import LOCAL, Site
from support.smtpd.smtpd_daemon import SmtpdDaemon

STRANGERS, ZONE, PROGRAMS, ONCE_PROMPT = "strangers", "zone", "programs", "once-prompt"
DRIPS, DNS, CHILDREN, RING = "drips", "dns", "children", "ring"
HOST, USER = "host", "user"
CONNECTIONS = 10
HUNG = 20.0  # Seconds after which the jobs of the hog count as slow, and others are measured.
DEADLINE = 30.0
RATE = 10.0  # Messages of others a second.
JOB_SECONDS = 12  # The time limit of a job where a server drips: that to connect and that for a reply.
RING_FILES = 12
CHILDREN_EACH = 2000
DOMAINS_EACH = 60  # Recipients of one message, each of another domain.
EXCHANGERS, LABELS = 417, 118  # Of a DNS answer: as many as 8 kB hold, and as many labels as a name may have.


class Hog(NamedTuple):
    """Recipients of each of one sender's messages, of others' messages, and of messages that are sent before.

    clients: the messages come by SMTP, each from another sender; for each connection what XCLIENT says of its client.
    """

    mail: list[list[str]]
    others: list[str]
    known: list[str]
    clients: tuple[str, ...] = ()


class Beside(NamedTuple):
    """The seconds until the start of others' messages, sorted; all deliveries that were started, and the seconds of
    the longest one that has ended.
    """

    delays: list[float]
    deliveries: int
    longest: float


def hog(kind: str, messages: int, others: int) -> Hog:
    """Return the mail of a kind: `messages` that hang or cost much, and `others` beside them."""
    strangers = [f"a@d{number}.example" for number in range(messages)]
    prompt = [f"a@prompt{number % 3}.test" for number in range(others)]
    users = [f"user{number}@{LOCAL}" for number in range(others)]
    if kind in (STRANGERS, DRIPS):
        return Hog(_alone(strangers), prompt, prompt[:3])
    if kind == ONCE_PROMPT:
        return Hog(_alone(strangers), prompt, [*prompt[:3], *strangers])
    if kind == ZONE:
        fresh = [f"a@fresh{number}.test" for number in range(others)]
        return Hog(_alone([f"a@h{number}.evil.example" for number in range(messages)]), fresh, [])
    if kind in (HOST, USER):
        host = "ADDR=192.0.2.1" if kind == HOST else "ADDR=192.0.2.%d LOGIN=joe"
        clients = tuple(host % number if kind == USER else host for number in range(CONNECTIONS))
        return Hog(_alone(strangers), [f"a@fresh{number}.test" for number in range(others)], [], clients)
    if kind == DNS:
        return Hog([[f"a@d{at}.m{each}.example" for at in range(DOMAINS_EACH)] for each in range(messages)], prompt, [])
    return Hog(_alone([f"hog-{number}@{LOCAL}" for number in range(messages)]), users, [])


def _alone(recipients: list[str]) -> list[list[str]]:
    return [[each] for each in recipients]


class Starts:
    """Follows the log: when the first delivery of each message was started, and how long the longest one took."""

    def __init__(self) -> None:
        self.times: dict[str, float] = {}
        self.deliveries = 0
        self.longest = 0.0
        self._running: dict[str, float] = {}

    def hear(self, line: str) -> None:
        """Take a line of the log."""
        now = time.monotonic()
        if line.startswith("starting delivery "):
            words = line.split(" ")
            self.deliveries += 1
            self.times.setdefault(words[4], now)
            self._running[words[2]] = now
        elif ended := re.match(r"delivery (\d+): (success|failure|deferral)", line):
            self.longest = max(self.longest, now - self._running.pop(f"{ended[1]}:", now))


def _no_change() -> None:
    """What a hog does between the messages that are sent before, and its own."""


@contextlib.contextmanager
def _strange_hosts(site: Site, kind: str) -> Iterator[Callable[[], None]]:
    """Let the hosts of `.example` be those of a kind; give what makes them hang after the messages before."""
    change: Callable[[], None] = _no_change
    with contextlib.ExitStack() as stack:
        sink = stack.enter_context(SmtpSink(keep=False))
        routes = f".test:127.0.0.1:{sink.port}\n"
        limits = [".example concurrency=20", ".test concurrency=20", f"127.0.0.1:{sink.port} concurrency=250"]
        if kind == DNS:
            dns = stack.enter_context(HostileDns(EXCHANGERS, LABELS))
            site.control("resolver", f"127.0.0.1:{dns.port}\n")
        else:
            if kind == ONCE_PROMPT:
                once = stack.enter_context(Sink())
                port = once.port

                def change() -> None:
                    once.hold_after = 0
            elif kind == DRIPS:
                port = stack.enter_context(Dripping()).port
                site.control("timeoutconnect", "2\n")
                site.control("timeoutremote", f"{JOB_SECONDS - 2}\n")
            else:
                port = stack.enter_context(Tarpit(room=1000)).port
            routes += f".example:127.0.0.1:{port}\n"
            limits.append(f"127.0.0.1:{port} concurrency=250")
        site.control("smtproutes", routes)
        # With a line of its own each domain is a destination, as with a host of its own.
        site.control("destinationlimits", "\n".join([*limits, ""]))
        yield change


def _users(site: Site, kind: str) -> None:
    """Let the addresses of the local hog do what they are for."""
    if kind == RING:
        forwards = "".join(f"&hog-{number}@{LOCAL}\n" for number in range(RING_FILES)).encode()
        for number in range(RING_FILES):
            site.mail.qmail(f".qmail-hog-{number}", forwards)
    elif kind == CHILDREN:
        # queue-local ends all of the session of a delivery whose process has been killed.
        loop = b"|i=0; while [ $i -lt %d ]; do sleep 60 & i=$((i+1)); done; kill -9 $PPID\n" % CHILDREN_EACH
        site.mail.qmail(".qmail-hog-default", loop)
    else:
        site.mail.qmail(".qmail-hog-default", b"|sleep 60\n")


def measure_beside(site: Site, kind: str, mail: Hog) -> Beside:
    """Send the mail of others while the hog's hangs or costs much."""
    with _strange_hosts(site, kind) as change:
        _users(site, kind)
        starts = Starts()
        with Suite(site.home, on_line=starts.hear) as suite:
            try:
                _send(site, "known", _alone(mail.known))
                until = time.monotonic() + DEADLINE
                while suite.count("^end msg .*") < len(mail.known) and time.monotonic() < until:
                    time.sleep(0.1)
                change()
                if mail.clients:
                    _send_by_smtp(site, mail)
                else:
                    _send(site, "hog", mail.mail)
                time.sleep(HUNG)
                letters = [Letter(f"o{at}", f"other{at}@me.example.org", [to]) for at, to in enumerate(mail.others)]
                queued = bulk(site.home, letters, pace=RATE)
                until = time.monotonic() + DEADLINE
                while time.monotonic() < until and any(str(each.message) not in starts.times for each in queued):
                    time.sleep(0.1)
                late = time.monotonic()
                delays = sorted(max(0.0, starts.times.get(str(each.message), late) - each.time) for each in queued)
                return Beside(delays, starts.deliveries, starts.longest)
            finally:
                suite.kill()


def _send(site: Site, name: str, mail: list[list[str]]) -> None:
    letters = [Letter(f"{name}{at}", f"{name}@me.example.org", to) for at, to in enumerate(mail)]
    bulk(site.home, letters, group=50)


def _send_by_smtp(site: Site, mail: Hog) -> None:
    for name, networks in ("xclients", "127.0.0.1"), ("relayclients", "192.0.2.0/24"):
        site.control(name, f"{networks}\n")
    site.control("smtpdlimits", "exempt 127.0.0.0/8\nexempt 192.0.2.0/24\n")
    with SmtpdDaemon(site.home) as daemon, ThreadPoolExecutor() as pool:

        def send(connection: int) -> None:
            with daemon.smtp() as client:
                client.ehlo()
                assert client.docmd("XCLIENT", mail.clients[connection])[0] == 220
                client.ehlo()
                for at in range(connection, len(mail.mail), len(mail.clients)):
                    client.sendmail(f"a{at}@s{at}.example", mail.mail[at], "Subject: x\r\n\r\ny\r\n")

        sent = [pool.submit(send, connection) for connection in range(len(mail.clients))]
        while not all(each.done() for each in sent):
            daemon.said(b"")  # Its log must be read, or it waits.
            time.sleep(0.05)
        for each in sent:
            each.result()
