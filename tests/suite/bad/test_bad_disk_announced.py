"""The disk refuses a call of one daemon while messages are delivered from their notices: nobody is lost, mail goes on.

strace makes every call of a name fail in one daemon for a while. Then the suite is killed, and started on a good disk.
"""

import re
from collections import Counter
from collections.abc import Iterator

import pytest

from queue_base.queue.layout import open_layout
from queue_base.queue.marks_file import LeftMarks
from support.faults.trouble import refusing
from support.local.good_mail import GoodMail
from support.processes.suite import Suite, enqueue, wait_until
from support.queues.letters import letter_text, token_of
from support.send.control import order

pytestmark = pytest.mark.one_way
_BEGUN = re.compile(r"starting delivery (\d+): msg \d+ to \w+ somebody@")
# Calls of each daemon on the way of a message that is delivered, and of one that has to be classified, because a
# recipient fails. What a write to a file gives is EFBIG in any case: strace would refuse those to pipes, too.
CALLS = {
    "queue-send": ("pwrite64",),
    "queue-todo": ("openat", "newfstatat", "write", "fsync", "unlink"),
    "queue-clean": ("openat", "write", "pwrite64", "fsync", "unlink"),
}
ERRORS = ("EIO", "ENOSPC", "EROFS")
# While these fail nothing new is announced.
STOPS = {("queue-todo", "openat"), ("queue-todo", "newfstatat")}


def cases() -> Iterator[object]:
    """Yield each call with one of the errors for every test run, and with the others."""
    pairs = [(daemon, call) for daemon, calls in CALLS.items() for call in calls]
    for place, (daemon, call) in enumerate(pairs):
        for number, error in enumerate(ERRORS if call != "write" else ("EFBIG",)):
            usual = number == place % len(ERRORS) or call == "write"
            marks = [] if usual else [pytest.mark.exhaustive]
            yield pytest.param(daemon, call, error, marks=marks, id=f"{daemon}, {call}, {error}")


def copies(mail: GoodMail) -> Counter[str]:
    """Return how often each message came to its two recipients."""
    here = Counter(token_of(message) for message in mail.site.delivered_to("somebody@me.example.org"))
    there = Counter(token_of(taken.content) for taken in mail.sink.taken)
    return here + there


def reported(suite: Suite) -> int:
    """Return how many deliveries to the two recipients of the messages are in the log as done."""
    begun = [_BEGUN.match(line) for line in list(suite.lines)]
    return sum(suite.count(f"^delivery {found[1]}: success: ") for found in begun if found)


@pytest.mark.parametrize(("daemon", "call", "error"), list(cases()))
def test_a_disk_that_refuses_a_call_loses_nobody_and_repeats_nobody(
    mail: GoodMail, daemon: str, call: str, error: str
) -> None:
    mail.site.control("classifyafter", "60\n")
    tokens = ["first"]
    with Suite(mail.home) as suite:
        mail.check_alive(suite, "before")
        # Else a kill might come between a delivery and its mark, which repeats it.
        wait_until(lambda: reported(suite) == 2, why="the reports of both deliveries")
        order(mail.home, "destinations")
        pid = suite.process.pid if daemon == "queue-send" else suite.daemon(daemon)
        with refusing(pid, call, error):
            mail.send("first")
            done = enqueue(mail.home, b"joe@me.example.org", [b"refused@remote.example"], letter_text("refused"))
            assert done.returncode == 0
            if (daemon, call) in STOPS:
                suite.wait_for("warning: queue-todo: ")
                # Nothing is delivered yet: on a good disk there would be a bounce, which a kill may repeat.
                suite.kill()
            else:
                mail.check("first")
                mail.send("second")
                tokens.append("second")
                mail.check("second")
                suite.wait_for("^delivery .*: failure: ")
        if (daemon, call) not in STOPS:
            wait_until(lambda: reported(suite) == 2 * len(tokens) + 2, why="the reports of all deliveries")
            order(mail.home, "destinations")  # queue-send answers after it has made the marks.
            if daemon != "queue-send":
                # A queue-send that cannot mark in any way has warned that a kill repeats.
                suite.kill()
    with Suite(mail.home) as suite:
        for token in tokens:
            mail.check(token)
        wait_until(lambda: mail.site.delivered_to("joe@me.example.org"), why="the bounce")
        mail.check_alive(suite, "after")
        wait_until(mail.site.is_empty, why="an empty queue")
        assert suite.stop() == 0
        assert [line for line in suite.lines if "corrupt" in line or "Traceback" in line] == []
    assert set(copies(mail).values()) == {2}, copies(mail)
    bounces = mail.site.delivered_to("joe@me.example.org")
    # A kill between a bounce and the end of its message repeats the bounce.
    assert len(bounces) == 1 or (len(bounces) == 2 and daemon != "queue-send")
    assert all(bounce.count(b"\n<refused@remote.example>:\n") == 1 for bounce in bounces)
    assert len(LeftMarks(open_layout(mail.home.queue))) == 0
    # What queue-clean could not finish, and could not list, is for the sweep.
    assert set(mail.site.kinds()) <= ({"mess"} if daemon == "queue-clean" else set())
