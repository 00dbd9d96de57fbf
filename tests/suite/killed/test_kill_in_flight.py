"""Daemons killed, and suites stopped, in the middle of many deliveries: nobody is lost, and an original qmail would
find a good queue that owes everybody who has no mail yet.

Both ways of a message are tried: classified before it is delivered (`classifyafter` 0), and delivered from the notice.
"""

import os
import re
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from queue_admin.home.adoption import undo
from support.faults.kill.killing import settle
from support.faults.original_qmail import owed_by_qmail
from support.inject.qmail_queue import qmail_accounts
from support.plugins.saying import Say
from support.processes.suite import Suite, wait_until
from support.queues.letters import Letter, token_of
from support.send.control import order
from support.send.feeding import bulk
from support.servers.smtp.sink import Sink
from support.site import Site
from support.tools import need

FEW, MANY = 150, 1000
# Messages that the host answers before the rest hangs.
ENDED = 40
DAEMONS = ("queue-send", "queue-todo", "queue-clean", "queue-remote")
# Calls at which a daemon is killed. What else it calls changes nothing.
CALLS = ("openat", "write", "pwrite64", "unlink", "fsync", "link", "rename", "utimensat", "sendto", "read")
NUMBERS = (1, 2, 3, 5, 8, 13, 21, 55, 144, 377, 987)
Found = Counter[tuple[str, str]]

# Places: destinations of which nothing is known may take three quarters of them.
PLACES = str(2 * MANY)

pytestmark = [
    pytest.mark.home(
        concurrencyremote=PLACES, destinationconcurrency=PLACES, destinationinitial=PLACES, retryjitter="0"
    ),
    pytest.mark.parametrize(
        "classifyafter",
        [pytest.param("0", marks=pytest.mark.exhaustive), "1"],
        ids=["classified first", "from the notice"],
    ),
]
COUNT = pytest.mark.parametrize("count", [FEW, pytest.param(MANY, marks=pytest.mark.exhaustive)])


def letters_of(count: int) -> list[Letter]:
    """Return letters with one recipient each, and every tenth with two at different hosts."""
    return [
        Letter(
            f"t{number}",
            "sender@me.example.org",
            [f"t{number}-{each}@host{each}.example" for each in range(2 if number % 10 == 0 else 1)],
        )
        for number in range(count)
    ]


def pairs_of(letters: list[Letter]) -> set[tuple[str, str]]:
    return {(letter.token, recipient) for letter in letters for recipient in letter.recipients}


def arrived(sink: Sink) -> Found:
    """Return how often the sink has each (token, recipient)."""
    return Counter((token_of(taken.content), each.decode()) for taken in sink.taken for each in taken.recipients)


def answered(sink: Sink) -> set[tuple[str, str]]:
    """Return the recipients of the messages that the sink has answered while it held the others."""
    return {(token_of(taken.content), each.decode()) for taken in sink.taken[:ENDED] for each in taken.recipients}


@contextmanager
def in_flight(site: Site, sink: Sink, count: int, classifyafter: str) -> Iterator[tuple[Suite, list[Letter]]]:
    """Give a suite that has delivered ENDED recipients and logged that, and has all others in flight."""
    site.control("classifyafter", classifyafter)
    site.route(sink.port)
    letters = letters_of(count)
    sink.hold_after = ENDED
    # Else the next envelope may go to a connection whose answer is held, and its message does not arrive.
    sink.pipelining = False
    suite = Suite(site.home)
    try:
        suite.wait_for("status: local 0/")
        bulk(site.home, letters, group=50)
        wait_until(lambda: len(arrived(sink)) == len(pairs_of(letters)), 120, "all to be in flight")
        wait_until(lambda: suite.count(": success: ") == len(answered(sink)), 60, "the log of those that have ended")
        yield suite, letters
    finally:
        suite.kill()
        settle(suite)


def end(site: Site, sink: Sink, letters: list[Letter], most: int) -> Found:
    """Start the suite until the queue is empty; check that everybody has every message, at most `most` times."""
    sink.release()
    with Suite(site.home) as suite:
        drain_one(suite, site)
        assert suite.stop() == 0
        assert [line for line in suite.lines if "corrupt" in line or "Traceback" in line] == []
    found = arrived(sink)
    assert found.keys() == pairs_of(letters)
    assert max(found.values()) <= most, found.most_common(3)
    wait_until(lambda: not set(site.kinds()) - {"pid"}, 60, f"no file of a message: {site.files()[:5]}")
    return found


def drain_one(suite: Suite, site: Site) -> None:
    def flushed() -> bool:
        suite.signal(signal.SIGALRM)
        return site.is_empty()

    wait_until(flushed, 300, "an empty queue")


def statuses(suite: Suite) -> list[str]:
    return [line for line in suite.lines if line.startswith("status: ")]


def repeats(found: Found) -> int:
    return sum(found.values()) - len(found)


@COUNT
def test_an_original_qmail_takes_over_a_queue_that_was_stopped_in_the_middle_of_deliveries(
    site: Site, count: int, classifyafter: str
) -> None:
    with Sink() as sink:
        with in_flight(site, sink, count, classifyafter) as (suite, letters):
            suite.signal(signal.SIGTERM)
            suite.wait_for("status: .*exitasap")
            sink.release()
            assert suite.process.wait(120) == 0
        assert owed_by_qmail(site.home) == Counter()
        assert repeats(end(site, sink, letters, most=1)) == 0


@COUNT
def test_an_original_qmail_finds_exactly_those_whose_delivery_a_stop_has_not_let_begin(
    site: Site, count: int, classifyafter: str
) -> None:
    places = count // 3
    site.control("classifyafter", classifyafter)
    site.control("concurrencyremote", str(places))
    # Of one recipient, who takes one place.
    letters = [each for each in letters_of(2 * count) if len(each.recipients) == 1][:count]
    with Sink() as sink:
        site.route(sink.port)
        sink.hold_after = ENDED
        sink.pipelining = False
        with Suite(site.home) as suite:
            bulk(site.home, letters, group=50)
            wait_until(lambda: suite.count(": success: ") == ENDED, 60, "the log of those that have ended")
            # One submitter leaves an eighth of them at most.
            busy = re.compile(rf" remote (\d+)/{places}$")
            wait_until(
                lambda: (found := busy.search(statuses(suite)[-1])) and int(found[1]) >= places * 7 // 8, 60,
                "nearly all places to be taken",
            )  # fmt: skip
            suite.signal(signal.SIGTERM)
            suite.wait_for("status: .*exitasap")
            sink.release()
            assert suite.process.wait(120) == 0
        begun = arrived(sink).keys()
        owed = owed_by_qmail(site.home)
        assert owed.keys() == pairs_of(letters) - begun
        assert set(owed.values()) == {1}
        assert repeats(end(site, sink, letters, most=1)) == 0


@COUNT
def test_an_original_qmail_takes_over_mail_of_a_lower_class_after_a_stop_and_undo(
    site: Site, count: int, classifyafter: str
) -> None:
    site.control("classifyafter", classifyafter)
    site.control("priorityrules", "sender:sender@me.example.org:bulk\n")
    # Some is deferred, and so classified; the rest comes while the suite does not run.
    deferred = [each._replace(recipients=[f"never-{to}" for to in each.recipients]) for each in letters_of(count)]
    waiting = [each._replace(token=f"w{each.token}") for each in letters_of(count)]
    with Sink() as sink:
        site.route(sink.port)
        with Suite(site.home) as suite:
            bulk(site.home, deferred, group=50)
            suite.wait_for(": deferral: ", times=len(pairs_of(deferred)))
            assert suite.stop() == 0
    bulk(site.home, waiting, group=50)
    assert site.kinds()["priority"] == count
    classified = [path.read_bytes() for path in Path(site.home.queue, "info").glob("*/*")]
    assert len(classified) == count and all(b"\0Pbulk\0" in data for data in classified)
    assert owed_by_qmail(site.home).keys() == pairs_of(deferred)

    undo(site.home, qmail_accounts(), todo="flat")

    owed = owed_by_qmail(site.home)
    assert owed.keys() == pairs_of(deferred) | pairs_of(waiting)
    assert set(owed.values()) == {1}


@COUNT
def test_a_kill_during_a_stop_leaves_an_original_qmail_nobody_who_is_marked(
    site: Site, count: int, classifyafter: str, say: Say
) -> None:
    """A supervisor kills a suite that does not stop, because hosts hang."""
    with Sink() as sink:
        with in_flight(site, sink, count, classifyafter) as (suite, letters):
            suite.signal(signal.SIGTERM)
            suite.wait_for("status: .*exitasap")
            marked = answered(sink)
            wait_until(lambda: not set(site.kinds()) & {"todo"}, 60, "the classification of all that is in flight")
            suite.kill()
        owed = owed_by_qmail(site.home)
        assert owed.keys() & marked == set()
        assert owed.keys() == pairs_of(letters) - marked
        assert set(owed.values()) == {1}
        found = end(site, sink, letters, most=2)
        assert repeats(found) == len(owed)
        say(f"{len(owed)} of {len(found)} recipients repeated, which were in flight")


@COUNT
def test_an_original_qmail_takes_over_after_sigkill_and_repeats_each_recipient_once_at_most(
    site: Site, count: int, classifyafter: str
) -> None:
    with Sink() as sink:
        with in_flight(site, sink, count, classifyafter) as (suite, letters):
            suite.kill()
        owed = owed_by_qmail(site.home)
        assert set(owed.values()) <= {1}
        missing = pairs_of(letters) - arrived(sink).keys()
        assert missing <= owed.keys() <= pairs_of(letters)


@COUNT
def test_after_sigkill_what_was_logged_as_delivered_is_not_delivered_again(
    site: Site, count: int, classifyafter: str, say: Say
) -> None:
    with Sink() as sink:
        with in_flight(site, sink, count, classifyafter) as (suite, letters):
            known = answered(sink)
            # Their marks come right after their lines in the log: a queue-send that answers has made them.
            order(site.home, "flush", "--all")
            suite.kill()
        found = end(site, sink, letters, most=2)
    assert [pair for pair in known if found[pair] > 1] == []
    say(f"{repeats(found)} of {len(found)} recipients repeated, {len(found) - len(known)} were in flight")


@pytest.mark.parametrize("daemon", ["queue-todo", "queue-clean"])
@COUNT
def test_the_loss_of_a_daemon_that_delivers_nothing_repeats_nothing_in_the_middle_of_deliveries(
    site: Site, count: int, classifyafter: str, daemon: str
) -> None:
    with Sink() as sink:
        with in_flight(site, sink, count, classifyafter) as (suite, letters):
            os.kill(suite.daemon(daemon), signal.SIGKILL)
            suite.wait_for("alert: oh no! lost")
            sink.release()
            assert suite.process.wait(120) == 111
        assert repeats(end(site, sink, letters, most=1)) == 0


@pytest.mark.exhaustive
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("daemon", DAEMONS)
def test_a_kill_at_a_call_of_a_daemon_with_many_deliveries_in_flight_loses_nobody(
    site: Site, classifyafter: str, daemon: str, call: str, say: Say
) -> None:
    """The daemon is killed at the first, the second, ... of its calls of a name, in one start after the other."""
    site.control("classifyafter", classifyafter)
    letters = letters_of(MANY)
    kills = 0
    with Sink() as sink:
        site.route(sink.port)
        for at, number in enumerate(NUMBERS):
            share = letters[at * MANY // len(NUMBERS) : (at + 1) * MANY // len(NUMBERS)]
            kills += killed_at(site, share, daemon, call, number)
        found = end(site, sink, letters, most=1 + kills)
    say(f"{daemon}, {call}: {kills} kills, {repeats(found)} of {len(found)} recipients repeated")


def killed_at(site: Site, letters: list[Letter], daemon: str, call: str, number: int) -> bool:
    """Put letters in while strace waits for a daemon's call, to kill it; return whether it was reached."""
    suite = Suite(site.home)
    try:
        suite.wait_for("status: local 0/")
        pid = suite.process.pid if daemon == "queue-send" else suite.daemon(daemon)
        fault = ["-e", f"trace={call}", "-e", f"inject={call}:signal=KILL:when={number}"]
        tracer = subprocess.Popen(
            [need("strace"), "-f", "-q", "-o", "/dev/null", *fault, "-p", str(pid)], stderr=subprocess.DEVNULL
        )
        try:
            bulk(site.home, letters, group=20)
            wait_until(lambda: suite.process.poll() is not None or site.is_empty(), 120, "a kill or the end")
            return suite.process.poll() is not None
        finally:
            tracer.kill()
            tracer.wait(60)
    finally:
        suite.kill()
        settle(suite)
