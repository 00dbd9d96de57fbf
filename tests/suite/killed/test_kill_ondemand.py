"""kill -9 of the whole suite while mail is stored and delivered on demand: nothing is lost, and little is repeated."""

import os
import threading
from collections import Counter

import pytest

from support.local.good_mail import GoodMail
from support.processes.ondemand_client import ask
from support.processes.suite import Suite, enqueue, wait_until
from support.queues.letters import letter_text, token_of
from support.servers.smtp.sink import Sink

MESSAGES = 4


class Killer:
    """Tells when a suite has logged so many lines that begin with `ondemand`."""

    def __init__(self, lines: int) -> None:
        self.reached = threading.Event()
        self._left = lines

    def hear(self, line: str) -> None:
        self._left -= line.startswith("ondemand ")
        if self._left <= 0:
            self.reached.set()


def send(mail: GoodMail, name: str) -> list[str]:
    tokens = [f"{name}-{number}" for number in range(MESSAGES)]
    for token in tokens:
        done = enqueue(mail.home, b"joe@me.example.org", [b"ann@customer.example"], letter_text(token))
        assert done.returncode == 0, done.stderr
    return tokens


def store_and_kill(mail: GoodMail, name: str, lines: int) -> list[str]:
    """Send messages while the host is down, and kill the suite at a line of the log."""
    killer = Killer(lines)
    with Suite(mail.home, on_line=killer.hear) as suite:
        tokens = send(mail, name)
        assert killer.reached.wait(60)
        suite.kill()
    return tokens


def deliver_and_kill(mail: GoodMail, lines: int) -> None:
    """Have what is stored delivered, and kill the suite at a line of the log, or at the end of the run."""
    killer = Killer(lines)
    with Suite(mail.home, on_line=killer.hear) as suite:
        ask(mail.home, b"customer.example")
        wait_until(lambda: killer.reached.is_set() or suite.count("^ondemand .* ended: "), why="the line")
        suite.kill()


def deliver_rest(mail: GoodMail) -> None:
    """Deliver what is left, in the queue and in the store."""
    with Suite(mail.home):
        wait_until(mail.site.is_empty, why="an empty queue")
        ask(mail.home, b"customer.example")
        wait_until(lambda: not os.listdir(f"{mail.home.queue}/ondemand"), why="an empty store")


@pytest.mark.parametrize("lines", [2, *[pytest.param(each, marks=pytest.mark.exhaustive) for each in (1, 3, 4, 5, 6)]])
def test_a_kill_while_mail_is_stored_or_delivered_loses_nothing(customer: GoodMail, port: int, lines: int) -> None:
    tokens = store_and_kill(customer, "a", min(lines, MESSAGES))
    with Sink(port) as sink:
        deliver_and_kill(customer, lines)
        deliver_rest(customer)
        came = Counter(token_of(taken.content) for taken in sink.taken)

    assert set(came) == set(tokens)
    # One repeat of what was in flight at each kill: a verdict, or a mark, that was not written.
    assert sum(came.values()) <= len(tokens) + 2 * MESSAGES
