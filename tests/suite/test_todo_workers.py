"""The suite with several workers of queue-todo: control/todoworkers, what queuectl shows, and the death of one."""

import os
import signal
import subprocess
from collections import Counter

import psutil
import pytest

from support.local.good_mail import GoodMail
from support.processes.suite import Suite, enqueue, program, wait_until
from support.queues.letters import letter_text, token_of

COUNT = 20


def send_many(mail: GoodMail, name: str) -> list[str]:
    """Queue messages for a local user; return their tokens."""
    tokens = [f"{name}-{number}" for number in range(COUNT)]
    for token in tokens:
        done = enqueue(mail.home, b"joe@me.example.org", [b"somebody@me.example.org"], letter_text(token))
        assert done.returncode == 0, done.stderr
    return tokens


def delivered(mail: GoodMail) -> Counter[str]:
    return Counter(token_of(message) for message in mail.site.delivered())


# Delivered from the notice; and classified before delivery.
@pytest.mark.parametrize("classifyafter", ["60", "0"])
def test_a_suite_with_three_workers_delivers_each_message_once_and_stops(mail: GoodMail, classifyafter: str) -> None:
    mail.control("todoworkers", "3\n")
    mail.control("classifyafter", f"{classifyafter}\n")
    with Suite(mail.home) as suite:
        parent = psutil.Process(suite.daemons("queue-todo")[0])
        wait_until(lambda: len(parent.children()) == 3, why="three workers")
        tokens = send_many(mail, "mail")
        suite.wait_for("^end msg ", times=COUNT)
        shown = subprocess.run(
            [*program("queuectl"), "--home", mail.home.path, "stat"], capture_output=True, text=True, check=True
        ).stdout
        pids = {int(line.split()[2].rstrip(",")) for line in shown.splitlines() if line.startswith("queue-todo: pid ")}
        assert pids == {parent.pid, *(child.pid for child in parent.children())}
        assert suite.stop() == 0
    assert delivered(mail) == Counter(tokens)


def test_the_death_of_a_worker_ends_the_suite_and_the_next_run_delivers_what_is_left(mail: GoodMail) -> None:
    mail.control("todoworkers", "2\n")
    with Suite(mail.home) as suite:
        parent = psutil.Process(suite.daemons("queue-todo")[0])
        wait_until(lambda: len(parent.children()) == 2, why="two workers")
        tokens = send_many(mail, "before")
        os.kill(parent.children()[1].pid, signal.SIGKILL)
        suite.wait_for(r"alert: queue-todo: worker \d of 2 has ended \(signal 9\); all daemons are started again")
        suite.wait_for(r"alert: oh no! lost queue-todo connection! dying\.\.\.")
        assert suite.process.wait(60) == 111
    with Suite(mail.home):
        wait_until(mail.site.is_empty, why="an empty queue")
    found = delivered(mail)
    assert set(found) == set(tokens) and max(found.values()) <= 2


def test_a_wrong_number_is_an_alert_and_one_process_classifies(mail: GoodMail) -> None:
    path = mail.control("todoworkers", "17\n")
    with Suite(mail.home) as suite:
        suite.wait_for(rf"alert: unable to parse {path} line 1: not a number from 1 to 16: '17'; the default")
        mail.check_alive(suite, "default")
        assert not psutil.Process(suite.daemon("queue-todo")).children()
