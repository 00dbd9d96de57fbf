"""Ten minutes of SIGKILL at random moments, of two queues with all that a queue has: classes, mail on demand.

Each recipient of each message that was accepted gets it, or its sender a bounce, and in the end nothing is left.
"""

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from queue_base.home import Home
from queue_base.queue.layout import open_layout
from queue_clean.sweep import OLD, sweep
from support.faults.chaos import ALL, DAEMONS, LATEST, STRIKE, Supervisor
from support.local.good_mail import GoodMail
from support.plugins.saying import Say
from support.processes.ondemand_client import ask
from support.processes.suite import wait_until
from support.queues.home import make_queue
from support.queues.letters import Letter, added_lines, delivered_to, token_of
from support.send.feeding import Bulk
from support.servers.ports import free_port
from support.servers.smtp.sink import Sink, Taken
from support.site import LOCAL
from support.smtpd.odmr_host import fetch, make_provider
from support.smtpd.smtpd_daemon import SmtpdDaemon

pytestmark = [pytest.mark.exhaustive, pytest.mark.timeout(3600)]
QUEUES = ("a", "b")
SECONDS = 600.0
PACE = 15  # Messages a second for each queue and class.
BOUNCING = "bounces-"
ETRN, ATRN = "etrn.example", "customer.example"
NAMES = [*DAEMONS[:-1], "queue-ondemand", ALL]
Pair = tuple[str, str]


class Town:
    """The two queues, and where their mail goes to: a maildir, a sink, and the hosts of two domains on demand."""

    def __init__(self, mail: GoodMail, path: Path, chance: random.Random) -> None:
        self.mail = mail
        self.chance = chance
        for name in QUEUES:
            make_queue(Path(mail.home.path, name), 3)
        for kind in ("lock", "intake"):
            Path(mail.home.path, "run", kind).mkdir(parents=True)
        mail.control("queues", "".join(f"{name}\n" for name in QUEUES))
        make_provider(mail, path)
        self.port = free_port()
        mail.control("ondemand", f"{ETRN}:etrn probe 2s\n{ATRN}:atrn\nbranch.example:atrn\n")
        mail.control("smtproutes", f"{ETRN}:127.0.0.1:{self.port}\n:127.0.0.1:{mail.sink.port}\n")
        mail.control("smtpdlimits", "exempt 127.0.0.0/8\n")
        mail.control("processessmtpd", "2\n")
        mail.control("etrninterval", "1\n")
        self.home = Home(mail.home.path)
        self.fetched: list[Taken] = []
        self.possible: set[Pair] = set()
        self.promised: set[Pair] = set()
        self.killed: Counter[str] = Counter()
        # No more mail is injected; the hosts ask for none any more.
        self.fed, self.over = threading.Event(), threading.Event()
        self._count = 0

    def letters(self, count: int) -> list[Letter]:
        """Return new letters, each to some recipients everywhere, or to one who bounces."""
        made = []
        for _ in range(count):
            self._count += 1
            token = f"t{self._count}"
            if self.chance.random() < 0.05:
                made.append(Letter(token, f"{BOUNCING}{token}@{LOCAL}", [f"refused{token}@host.example"]))
                self.possible.add((token, "bounce"))
                continue
            hosts = (LOCAL, "host1.example", "host2.example", ETRN, ETRN, ATRN)
            places = self.chance.sample(hosts, self.chance.choice((1, 1, 1, 2, 3)))
            recipients = [f"{token}-{number}@{host}" for number, host in enumerate(places)]
            made.append(Letter(token, f"sender@{LOCAL}", recipients))
            self.possible |= {(token, recipient) for recipient in recipients}
        return made

    def feed(self) -> None:
        """Inject mail; some injectors are killed."""
        while not self.fed.is_set():
            works = []
            for place in ((queue, priority) for queue in QUEUES for priority in ("", "bulk")):
                letters = self.letters(PACE * 4)
                works.append((letters, Bulk(self.home, letters, self.chance.randint(1, 8), PACE, place)))
            if self.chance.random() < 0.3:
                self.fed.wait(self.chance.uniform(0.5, 3))
                self.chance.choice(works)[1].process.kill()
                self.killed["injector"] += 1
            for letters, work in works:
                queued = {each.token for each in work.wait()}
                for letter in letters:
                    if letter.token in queued and letter.sender.startswith(BOUNCING):
                        self.promised.add((letter.token, "bounce"))
                    elif letter.token in queued:
                        self.promised |= {(letter.token, recipient) for recipient in letter.recipients}

    def receive(self) -> None:
        """Be the host of the domain with `etrn`, which is there now and then, until all is over."""
        while not self.over.is_set():
            with Sink(self.port) as sink:
                self.over.wait(4)
                self.ask()
                self.over.wait(1)
            self.fetched += sink.taken
            self.over.wait(2)

    def ask(self) -> None:
        """Ask both queues for what is stored."""
        for name in QUEUES:
            # Its queue-ondemand may be killed meanwhile.
            with suppress(AssertionError, OSError):
                ask(self.home.choose(name), ETRN.encode())

    def fetch(self, smtpd: SmtpdDaemon) -> None:
        """Be the host of the domain with `atrn`, until all is over; sometimes a process of queue-smtpd is killed."""
        with Sink() as sink:
            while not self.over.wait(0.5):
                smtpd.said(b"")
                with suppress(Exception):
                    fetch(smtpd, sink)
                if self.chance.random() < 0.05:
                    children = psutil.Process(smtpd.process.pid).children()
                    self.chance.choice(children).kill()
                    self.killed["queue-smtpd"] += 1
        self.fetched += sink.taken

    def arrivals(self) -> Counter[Pair]:
        """Return how often each recipient got each message; fail where one is not whole."""
        found: Counter[Pair] = Counter()
        for message in self.mail.site.delivered():
            recipient = delivered_to(message)
            if recipient.startswith(BOUNCING):
                found[recipient.partition("@")[0].removeprefix(BOUNCING), "bounce"] += 1
                continue
            added_lines(message)
            found[token_of(message), recipient] += 1
        for taken in (*self.mail.sink.taken, *self.fetched):
            added_lines(taken.content)
            for address in taken.recipients:
                found[token_of(taken.content), address.decode()] += 1
        return found

    def left(self) -> Counter[str]:
        """Return how many files each directory of the queues has, but those that count for nothing."""
        found: Counter[str] = Counter()
        for name in QUEUES:
            top = Path(self.home.path, name)
            paths = [path.relative_to(top) for path in top.rglob("*") if not path.is_dir()]
            found.update(path.parts[0] for path in paths)
        return Counter({kind: found[kind] for kind in found if kind not in ("intake", "lock", "marks", "stamp")})

    def is_empty(self) -> bool:
        """Whether nothing waits in a queue, or is stored."""
        return not {"todo", "priority", "info", "ondemand"} & self.left().keys()


@contextmanager
def running(over: threading.Event, *works: threading.Thread) -> Iterator[None]:
    """Run threads, which an event ends."""
    for work in works:
        work.start()
    try:
        yield
    finally:
        over.set()
        for work in works:
            work.join(300)


def kill_at_random(town: Town, sets: dict[str, Supervisor], seconds: float) -> None:
    """Kill daemons, and whole sets, one after the other, of both queues."""
    chance, end = town.chance, time.monotonic() + seconds
    while time.monotonic() < end:
        name, daemon = chance.choice(QUEUES), chance.choice(NAMES)
        strike = chance.uniform(0, STRIKE) if chance.random() < 0.5 else None
        sets[name].kill(daemon, chance.uniform(0, LATEST * 4), strike)
        town.killed[daemon] += 1
        if daemon == ALL and chance.random() < 0.3:
            # A power cut without the loss of data: the other queue, too.
            for each in sets.values():
                each.current.kill()


def drain(town: Town, sets: dict[str, Supervisor]) -> None:
    """Have everything delivered."""
    end = time.monotonic() + 600
    while not town.is_empty():
        assert time.monotonic() < end, (town.left(), [run.lines()[-30:] for run in sets.values()])
        for each in sets.values():
            each.flush()
        town.ask()
        threading.Event().wait(0.5)


@pytest.mark.parametrize("seed", [1])
def test_what_two_queues_have_accepted_arrives_or_bounces_after_ten_minutes_of_kills(
    mail: GoodMail, tmp_path: Path, seed: int, say: Say
) -> None:
    town = Town(mail, tmp_path, random.Random(seed))
    feeding = threading.Thread(target=town.feed)
    with ExitStack() as stack:
        sets = {name: stack.enter_context(Supervisor(town.home, queue=name)) for name in QUEUES}
        smtpd = stack.enter_context(SmtpdDaemon(town.home, ["odmr"]))
        hosts = [threading.Thread(target=town.receive), threading.Thread(target=town.fetch, args=[smtpd])]
        for each in sets.values():
            wait_until(lambda each=each: each.is_up, why="the first start")  # type: ignore[misc]
        with running(town.over, *hosts):
            with running(town.fed, feeding):
                kill_at_random(town, sets, SECONDS)
            drain(town, sets)
        for each in sets.values():
            each.stop()
        lines = [line for each in sets.values() for line in each.lines()]
    assert [line for line in lines if "corrupt" in line or "Traceback" in line] == []
    found = town.arrivals()
    assert town.promised - found.keys() == set()
    assert found.keys() - town.possible == set()
    # A message of an injector that was killed is queued for all of its recipients, or for none.
    begun = {token for token, _ in found}
    assert {pair for pair in town.possible if pair[0] in begun} - found.keys() == set()
    left = town.left()
    assert left.keys() <= {"mess", "intd", "pid"}, left
    for name in QUEUES:
        for _ in sweep(open_layout(town.home.choose(name).queue), time.time() + 2 * OLD):
            pass
    assert not town.left()
    starts = sum(len(each.runs) for each in sets.values())
    repeats = sum(found.values()) - len(found)
    killed = ", ".join(f"{name} {times}" for name, times in town.killed.items())
    say(f"{len(town.promised)} promised, {len(found)} arrived, {repeats} repeats; {starts} starts; killed: {killed}")
