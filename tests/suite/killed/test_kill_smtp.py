"""queue-smtpd, queue-intake and the whole suite are killed at random while mail comes in by SMTP.

What got 250 is delivered. A message is in the queue twice only if its client had to send it again, because the reply to
the last dot was lost.
"""

import os
import queue
import random
import re
import signal
import smtplib
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from queue_base.home import Home
from support.faults.chaos import ALL, LATEST, Supervisor, drain, wait
from support.plugins.amount import amount
from support.plugins.saying import Say
from support.processes.suite import wait_until
from support.queues.letters import Letter, added_lines, delivered_to, letter_text, token_of
from support.servers.smtp.sink import Sink
from support.site import LOCAL, Site
from support.smtpd.smtpd_daemon import SmtpdDaemon

SECONDS = 60.0
CLIENTS = 4
PACE = 0.03
WORKER, PARENT = "a process of queue-smtpd", "queue-smtpd"
ROUNDS = [WORKER, "queue-intake", ALL, PARENT, WORKER, "queue-intake"] * amount(1, 4)
_ID = re.compile(rb" with ESMTP id (\S+);")

pytestmark = pytest.mark.home(concurrencyremote="40", relayclients="127.0.0.1", checkrcpt="0", processessmtpd="2")


class RestartedSmtpd:
    """queue-smtpd on a port of this host; killed and started again, it has another port."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._daemon = SmtpdDaemon(home)
        self._daemon.__enter__()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        # A pipe that nobody reads would stop it.
        self._reader = threading.Thread(target=self._read_log)
        self._reader.start()

    def _read_log(self) -> None:
        while not self._closed.wait(0.02):
            with self._lock:
                self._daemon.said(b"")

    @property
    def port(self) -> int:
        """Where it listens now, or did."""
        return self._daemon.ports[0]

    def workers(self) -> list[psutil.Process]:
        """Return the processes that serve."""
        found: list[psutil.Process] = psutil.Process(self._daemon.process.pid).children()
        return found

    def kill(self, name: str, number: int) -> None:
        """Kill one of its processes, which it starts again by itself, or its first one, which is started again here."""
        if name == WORKER:
            victim = self.workers()[number]
            victim.kill()
            wait_until(lambda: len(now := self.workers()) == 2 and victim not in now, SECONDS, "a new process")
            return
        old = self.workers()
        os.kill(self._daemon.process.pid, signal.SIGKILL)
        with self._lock:
            self._daemon.__exit__(None, None, None)
            self._daemon = SmtpdDaemon(self._home)
            self._daemon.__enter__()
        # They end by themselves.
        psutil.wait_procs(old, SECONDS)
        assert not any(each.is_running() for each in old)

    def close(self) -> None:
        """Stop it."""
        self._daemon.process.send_signal(signal.SIGTERM)
        self._daemon.process.wait(SECONDS)
        self._closed.set()
        self._reader.join()
        self._daemon.__exit__(None, None, None)


class Clients:
    """Clients that hand in letters, each again and again until it gets 250. `unanswered`: lost replies, by token."""

    def __init__(self, smtpd: RestartedSmtpd, letters: list[Letter]) -> None:
        self.unanswered: Counter[str] = Counter()
        self._smtpd = smtpd
        self._left: queue.SimpleQueue[Letter] = queue.SimpleQueue()
        for letter in letters:
            self._left.put(letter)
        self._threads = [threading.Thread(target=self._work) for _ in range(CLIENTS)]
        for thread in self._threads:
            thread.start()

    @property
    def at_work(self) -> bool:
        """Whether letters are left."""
        return not self._left.empty()

    def wait(self) -> None:
        """Return when all letters have been taken."""
        for thread in self._threads:
            thread.join(300)
            assert not thread.is_alive()

    def _work(self) -> None:
        while True:
            try:
                letter = self._left.get_nowait()
            except queue.Empty:
                return
            # Not so fast that all is over before the last kill.
            wait(PACE)
            while not self._hand_in(letter):
                wait(PACE)

    def _hand_in(self, letter: Letter) -> bool:
        sent = False
        try:
            with smtplib.SMTP("127.0.0.1", self._smtpd.port, "client.example", timeout=SECONDS) as client:
                client.ehlo()
                codes = [client.mail(letter.sender)[0], *(client.rcpt(each)[0] for each in letter.recipients)]
                if set(codes) != {250} or client.docmd("DATA")[0] != 354:
                    return False
                sent = True
                client.send(re.sub(rb"(?m)^\.", b"..", letter_text(letter.token)).replace(b"\n", b"\r\n") + b".\r\n")
                code, said = client.getreply()
                # A temporary failure says that the message may be in the queue all the same.
                assert code == 250 or code // 100 == 4, said
                self.unanswered[letter.token] += code != 250
                return code == 250
        except (OSError, smtplib.SMTPException):
            self.unanswered[letter.token] += sent
            return False


@contextmanager
def restarted_smtpd(home: Home) -> Iterator[RestartedSmtpd]:
    smtpd = RestartedSmtpd(home)
    try:
        yield smtpd
    finally:
        smtpd.close()


@pytest.mark.long
def test_what_got_250_is_delivered_and_comes_twice_only_where_a_reply_was_lost(site: Site, say: Say) -> None:
    chance = random.Random(3)
    letters = [
        Letter(f"t{number}", f"sender@{LOCAL}", [f"t{number}@{LOCAL}", f"t{number}@host{number % 3}.example"])
        for number in range(80 * len(ROUNDS))
    ]
    with Sink() as sink:
        site.route(sink.port)
        with Supervisor(site.home) as supervisor:
            wait_until(lambda: Path(site.home.queue, "intake", "socket").exists(), SECONDS, "queue-intake")
            with restarted_smtpd(site.home) as smtpd:
                clients = Clients(smtpd, letters)
                for name in ROUNDS:
                    if name in (WORKER, PARENT):
                        wait(chance.uniform(0, LATEST))
                        smtpd.kill(name, chance.randrange(2))
                    else:
                        supervisor.kill(name, chance.uniform(0, LATEST), None)
                    assert clients.at_work
                clients.wait()
            drain(supervisor, site.is_empty)
            supervisor.stop()
            assert [line for line in supervisor.lines() if "corrupt" in line or "Traceback" in line] == []
        arrived = [(delivered_to(each), each) for each in site.delivered()]
        arrived += [(address.decode(), each.content) for each in sink.taken for address in each.recipients]
    ids = defaultdict[str, set[bytes]](set)
    for _, message in arrived:
        ids[token_of(message)].update(_ID.findall(b"\n".join(added_lines(message))))
    assert {(token_of(message), recipient) for recipient, message in arrived} == {
        (letter.token, recipient) for letter in letters for recipient in letter.recipients
    }
    lost = clients.unanswered
    assert [(token, found, lost[token]) for token, found in ids.items() if len(found) > 1 + lost[token]] == []
    copies = sum(len(found) - 1 for found in ids.values())
    say(f"{len(letters)} messages by SMTP, {len(ROUNDS)} kills: {lost.total()} replies lost, {copies} messages twice")
