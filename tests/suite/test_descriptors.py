"""No daemon keeps a descriptor of what is over: a thousand of each kind of event leave as many open as before."""

import os
import re
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from queue_base.home import Home
from queue_base.queue.layout import open_layout
from queue_base.queue.marks_file import MarksFile
from queue_wire.admin.socket import TOTALS, Request
from queue_wire.files.marks import DoneMarks, EnvelopeIdentity
from queue_wire.pipes.qmtp import SOCKET
from support.intake.intake_daemon import Client as IntakeClient
from support.intake.intake_daemon import qmtp
from support.local.good_mail import GoodMail
from support.processes.ondemand_client import ask
from support.processes.suite import Suite, wait_until
from support.queues.letters import Letter, letter_text
from support.send.control import Client, queuectl
from support.send.feeding import bulk
from support.smtpd.smtpd_daemon import SmtpdDaemon

pytestmark = pytest.mark.long
TIMES = 1000
KEPT = 40  # Idle connections, and directories that stay open for a second.
SENDER = "joe@me.example.org"


def open_files(pid: int) -> list[str]:
    """Return what the descriptors of a process are, without numbers of pipes and sockets."""
    found = []
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            found.append(re.sub(r"\d+", "N", os.readlink(f"/proc/{pid}/fd/{name}")))
        except FileNotFoundError:
            continue
    return sorted(found)


class Watched:
    """The daemons of a suite that runs, whose descriptors are counted."""

    def __init__(self, mail: GoodMail, suite: Suite) -> None:
        self.mail = mail
        self.home: Home = mail.home
        self.suite = suite
        self._count = 0

    def pids(self) -> dict[str, int]:
        daemons = ("queue-todo", "queue-clean", "queue-local", "queue-remote", "queue-pickup", "queue-intake")
        return {"queue-send": self.suite.process.pid} | {name: self.suite.daemon(name) for name in daemons}

    def letters(self, name: str, domain: str, times: int) -> None:
        self._count += 1
        names = [f"{name}{self._count}x{number}" for number in range(times)]
        bulk(self.home, [Letter(each, SENDER, [f"{each}@{domain}"]) for each in names], group=50)

    def settle(self) -> None:
        """Wait until nothing is in flight, and nothing waits in todo/."""
        todo = Path(self.home.queue, "todo")
        wait_until(lambda: not any(each.is_file() for each in todo.rglob("*")), why="an empty todo/")
        wait_until(self._is_idle, why="the end of the deliveries")

    def _is_idle(self) -> bool:
        last = next(line for line in reversed(list(self.suite.lines)) if line.startswith("status: "))
        return re.match(r"status: local 0/\d+ remote 0/\d+$", last) is not None


@pytest.fixture
def watched(mail: GoodMail) -> Iterator[Watched]:
    mail.site.control("retryschedule", "1d\n")
    mail.site.control("destinationcohorts", "1000\n")
    with Suite(mail.home) as suite:
        yield Watched(mail, suite)


def deliver(watched: Watched, times: int) -> None:
    watched.letters("good", "remote.example", times // 2)
    watched.letters("good", "me.example.org", times // 2)


def defer(watched: Watched, times: int) -> None:
    watched.letters("never", "remote.example", times)


def bounce(watched: Watched, times: int) -> None:
    watched.letters("refused", "remote.example", times)


def hold(watched: Watched, times: int) -> None:
    """Hold, release, flush, requeue and delete what waits."""
    watched.letters("never", "remote.example", times)
    for command in ("hold", "release", "flush", "requeue", "hold", "delete"):
        watched.settle()
        assert queuectl(watched.home, command, "--all", "--yes").returncode in (0, 111)  # A bounce may be on its way.


def connect_orders(watched: Watched, times: int) -> None:
    for number in range(times):
        with Client(watched.home) as client:
            client.send(Request(TOTALS, b"", []))
            if number % 2:
                client.socket.sendall(b"3:bad,")
            assert client.reply() is not None


def connect_intake(watched: Watched, times: int) -> None:
    for number in range(times):
        if number % 3 == 0:
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(f"{watched.home.queue}/{SOCKET}")
                continue
        with IntakeClient(watched.home) as client:
            message = qmtp(letter_text(f"intake{number}"), b"ann@me.example.org", [b"bob@me.example.org"])
            client.send(message[: len(message) // 2] if number % 3 == 1 else message)
            if number % 3 == 2:
                assert client.answer().startswith(b"K")


def reread(watched: Watched, times: int) -> None:
    """HUP, one after the other, so that each counts."""
    for number in range(times // 10):
        watched.mail.site.control("queuelifetime", f"{100_000 + number}\n")
        watched.suite.signal(signal.SIGHUP)
        queuectl(watched.home, "config", "set", "concurrencyremote", str(20 + number % 2))


EVENTS = (deliver, defer, bounce, hold, connect_orders, connect_intake, reread)


def grown(watched: Watched, before: dict[str, list[str]]) -> dict[str, list[str]]:
    """Return what the daemons have open that have more open than before, but for what they keep for a while."""
    now = {name: open_files(pid) for name, pid in watched.pids().items()}
    return {name: found for name, found in now.items() if len(found) > len(before[name]) + KEPT}


@pytest.mark.parametrize("event", EVENTS)
def test_a_thousand_events_leave_no_descriptor_open(watched: Watched, event: Callable[[Watched, int], None]) -> None:
    for each in (deliver, bounce, event):
        each(watched, 100)
    watched.settle()
    before = {name: open_files(pid) for name, pid in watched.pids().items()}
    event(watched, TIMES)
    watched.settle()
    wait_until(lambda: not grown(watched, before), 20, f"{grown(watched, before)} to be closed")


def test_a_thousand_events_of_stored_mail_leave_queue_ondemand_no_descriptor(customer: GoodMail) -> None:
    domain, stored = "customer.example", r"^delivery \d+: success: stored_for_customer\.example"
    with Suite(customer.home) as suite:
        watched, count = Watched(customer, suite), 0

        def work(times: int) -> None:
            nonlocal count
            for commands in (["hold", "release", "flush", "delete"], ["bounce"], ["requeue"]):
                watched.letters("never", domain, times // 4)
                count += times // 4
                suite.wait_for(stored, times=count)
                watched.settle()
                for command in commands:
                    assert queuectl(customer.home, command, "--domain", domain, "--yes").returncode == 0
                # What is requeued is stored again.
                count += times // 4 if commands == ["requeue"] else 0
            for _ in range(times):
                ask(customer.home, domain.encode())
            suite.wait_for(stored, times=count)
            assert queuectl(customer.home, "delete", "--domain", domain, "--yes").returncode == 0

        def opened() -> list[str]:
            return open_files(suite.daemon("queue-ondemand"))

        work(40)
        before = opened()
        work(TIMES)
        wait_until(lambda: len(opened()) <= len(before) + 5, 30, f"{opened()} to be closed")


def test_marks_of_an_earlier_run_leave_no_descriptor_open(mail: GoodMail) -> None:
    layout = open_layout(mail.home.queue)
    counts = []
    for with_marks in (False, True):
        if with_marks:
            file = MarksFile(layout)
            for number in range(1, TIMES):
                slot = file.take()
                assert slot is not None
                file.write(slot, DoneMarks(EnvelopeIdentity(number, 1_600_000_000_000_000, 21, 7), 0b1))
            file.close()
        with Suite(mail.home) as suite:
            mail.check_alive(suite, f"alive{with_marks}")
            watched = Watched(mail, suite)
            watched.settle()
            counts.append({name: open_files(pid) for name, pid in watched.pids().items()})
            assert suite.stop() == 0
    having = [name for name in counts[1] for path in counts[1][name] if path.endswith("/queue/marks")]
    assert having == ["queue-send"]


def test_a_thousand_connections_leave_queue_smtpd_no_descriptor(mail: GoodMail) -> None:
    with Suite(mail.home), SmtpdDaemon(mail.home) as smtpd:

        def connect(times: int) -> None:
            for number in range(times):
                with smtpd.connect() as client:
                    if number % 2:
                        client.sendall(b"EHLO a.example\r\nMAIL FROM:<a@b.example>\r\nRCPT TO:<x@me.example.org>\r\n")

        def count() -> int:
            return len(open_files(smtpd.process.pid))

        connect(20)
        before = count()
        connect(TIMES)
        wait_until(lambda: count() <= before + 5, 30, "the connections to be closed")
