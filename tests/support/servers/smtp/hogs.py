"""Mail that would take all places or all of the active set, and how long other mail beside it waits for its start."""

import contextlib
import time
from collections.abc import Iterator
from typing import NamedTuple

from support.processes.suite import Suite
from support.queues.letters import Letter
from support.send.feeding import bulk
from support.servers.smtp.sink import Tarpit
from support.servers.smtp.smtp_sink import SmtpSink
from support.site import LOCAL, Site

STRANGERS, ZONE, PROGRAMS = "strangers", "zone", "programs"
HUNG = 20.0  # Seconds after which the jobs of the hog count as slow, and others are measured.
DEADLINE = 30.0
RATE = 10.0  # Messages of others a second.


class Hog(NamedTuple):
    """Recipients of one sender's messages, those of others', and those of others' that get mail before."""

    recipients: list[str]
    others: list[str]
    known: list[str]


def hog(kind: str, messages: int, others: int) -> Hog:
    """Return the mail of a kind: `messages` that hang, and `others` beside them."""
    if kind == STRANGERS:
        prompt = [f"a@prompt{number % 3}.test" for number in range(others)]
        return Hog([f"a@d{number}.example" for number in range(messages)], prompt, prompt[:3])
    if kind == ZONE:
        fresh = [f"a@fresh{number}.test" for number in range(others)]
        return Hog([f"a@h{number}.evil.example" for number in range(messages)], fresh, [])
    users = [f"user{number}@{LOCAL}" for number in range(others)]
    return Hog([f"hog-{number}@{LOCAL}" for number in range(messages)], users, [])


class Starts:
    """Follows the log: when the first delivery to each recipient was started, per message."""

    def __init__(self) -> None:
        self.times: dict[str, float] = {}

    def hear(self, line: str) -> None:
        """Take a line of the log."""
        if line.startswith("starting delivery "):
            self.times.setdefault(line.split(" ")[4], time.monotonic())


@contextlib.contextmanager
def ports() -> Iterator[tuple[int, int]]:
    """Give the ports of a tarpit and of a prompt server."""
    with Tarpit(room=1000) as tarpit, SmtpSink(keep=False) as sink:
        yield tarpit.port, sink.port


def delays_beside(site: Site, mail: Hog) -> list[float]:
    """Return the seconds until the start of the messages of others, sorted, while the hog's hang."""
    with ports() as (tarpit, sink):
        site.control("smtproutes", f".example:127.0.0.1:{tarpit}\n.test:127.0.0.1:{sink}\n")
        # With a line of its own each domain is a destination, as with a host of its own.
        limits = [".example concurrency=20", ".test concurrency=20"]
        limits += [f"127.0.0.1:{port} concurrency=250" for port in (tarpit, sink)]
        site.control("destinationlimits", "\n".join([*limits, ""]))
        site.mail.qmail(".qmail-hog-default", b"|sleep 60\n")
        starts = Starts()
        with Suite(site.home, on_line=starts.hear) as suite:
            try:
                _send(site, "known", mail.known)
                until = time.monotonic() + DEADLINE
                while suite.count("end msg .*") < len(mail.known) and time.monotonic() < until:
                    time.sleep(0.1)
                _send(site, "hog", mail.recipients)
                time.sleep(HUNG)
                letters = [Letter(f"o{at}", f"other{at}@me.example.org", [to]) for at, to in enumerate(mail.others)]
                queued = bulk(site.home, letters, pace=RATE)
                until = time.monotonic() + DEADLINE
                while time.monotonic() < until and any(str(each.message) not in starts.times for each in queued):
                    time.sleep(0.1)
                late = time.monotonic()
                return sorted(max(0.0, starts.times.get(str(each.message), late) - each.time) for each in queued)
            finally:
                suite.kill()


def _send(site: Site, name: str, recipients: list[str]) -> None:
    letters = [Letter(f"{name}{at}", f"{name}@me.example.org", [to]) for at, to in enumerate(recipients)]
    bulk(site.home, letters, group=50)
