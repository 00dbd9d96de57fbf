"""Classification and delivery do not hold each other up, whichever of them is stuck or has thousands to do."""

import os
import signal
import time
from pathlib import Path

import pytest

from support.plugins.amount import amount
from support.plugins.saying import Say
from support.processes.suite import wait_until
from support.queues.letters import Letter
from support.send.control import order
from support.send.feeding import bulk
from support.send.timed_suite import TimedSuite
from support.servers.smtp.sink import Sink, Tarpit
from support.site import Site

BURST = amount(2500, 5000)
# Injections in a second. An injector of ours can be faster than queue-todo on a busy machine of two cores; then the
# delay would say how long the line in front of queue-todo is, not whether a delivery holds it up.
PACE = 500
PLACES = 32
HANGING = 20  # Fewer than the two thirds that mail of one submitter may take for hosts of which nothing is known.
# Seconds from the end of an injection to the `new msg` line, at most. The deliveries hang for longer than the test.
LIMIT = 5.0


def letters(name: str, count: int, domain: str) -> list[Letter]:
    """Return letters to one recipient each."""
    return [Letter(f"{name}{number}", "sender@me.example.org", [f"{name}{number}@{domain}"]) for number in range(count)]


def waiting(site: Site) -> int:
    """Return how many messages wait in todo/."""
    return sum(len(names) for _, _, names in os.walk(Path(site.home.queue, "todo")))


@pytest.mark.alone
def test_a_burst_is_classified_at_its_pace_while_every_delivery_hangs(site: Site, say: Say) -> None:
    for name in ("concurrencyremote", "destinationinitial"):
        site.control(name, f"{PLACES}\n")
    tarpit = Tarpit()
    site.route(tarpit.port)
    with TimedSuite(site.home) as suite, tarpit:
        bulk(site.home, letters("stuck", HANGING, "tarpit.example"))
        suite.wait_for(rf"status: local 0/\d+ remote {HANGING}/{PLACES}")
        queued = bulk(site.home, letters("burst", BURST, "tarpit.example"), pace=PACE)
        suite.wait_for(r"new msg \d+", times=HANGING + BURST)
        told = suite.first_times(r"new msg (\d+)")
        # Nothing has ended, and nothing could start: every delivery hung all the time.
        assert suite.count(r"^delivery \d+: ") == 0
        assert suite.count(r"starting delivery") == HANGING
        # With `classifyafter`, those that were announced and not started are classified a second later.
        wait_until(lambda: site.kinds()["info"] >= BURST, why="all messages classified that are not in flight")
        wait_until(lambda: waiting(site) + site.kinds()["info"] == HANGING + BURST, why="the removals from todo/")
    delays = sorted(told[each.message] - each.time for each in queued)
    median, worst = delays[BURST // 2], delays[-1]
    say(
        f"{BURST} messages at {PACE}/s while {HANGING} deliveries hang: classified after "
        f"{median * 1000:.1f} ms (median), {worst * 1000:.1f} ms (worst)"
    )
    assert worst < LIMIT


def deliver(suite: TimedSuite, sink: Sink, count: int, limit: Path) -> float:
    """Let `count` classified messages go at once; return how many seconds it took until all were delivered."""
    before, ended, closed = len(sink.taken), suite.count(r"end msg \d+"), suite.count(r"remote 0/0$")
    limit.write_text("20\n")
    begin = time.monotonic()
    suite.signal(signal.SIGHUP)
    sink.wait_for(before + count)
    suite.wait_for(r"end msg \d+", times=ended + count)
    seconds = time.monotonic() - begin
    limit.write_text("0\n")
    suite.signal(signal.SIGHUP)
    suite.wait_for(r"remote 0/0$", times=closed + 1)
    return seconds


@pytest.mark.alone
def test_deliveries_start_and_finish_while_thousands_of_messages_wait_in_todo_and_while_they_are_classified(
    site: Site, say: Say
) -> None:
    count = 500
    # No deliveries yet, so that there are classified messages to deliver.
    limit = site.control("concurrencyremote", "0\n")
    # The same window from the first delivery on, so that the two runs are alike.
    site.control("destinationinitial", "20\n")
    sink = Sink()
    site.route(sink.port)
    with sink, TimedSuite(site.home) as suite:
        bulk(site.home, letters("alone", count, "fast.example"))
        suite.wait_for(r"new msg", times=count)
        alone = deliver(suite, sink, count, limit)
        bulk(site.home, letters("beside", count, "fast.example"))
        suite.wait_for(r"new msg", times=2 * count)
        # queue-todo announces a message after its lines are in the log.
        known = f"remote: 0/20000 messages active, {count} waiting"
        wait_until(lambda: known in order(site.home, "destinations"), why="all messages announced")
        wait_until(lambda: waiting(site) == 0, why="all messages classified")
        todo = suite.daemon("queue-todo")
        os.kill(todo, signal.SIGSTOP)
        bulk(site.home, letters("burst", BURST, "fast.example"))
        assert waiting(site) == BURST
        beside = deliver(suite, sink, count, limit)
        assert waiting(site) == BURST
        told = suite.count(r"remote 0/20$")
        limit.write_text("20\n")
        suite.signal(signal.SIGHUP)
        suite.wait_for(r"status: local 0/\d+ remote 0/20", times=told + 1)
        os.kill(todo, signal.SIGCONT)
        suite.wait_for(r"new msg", times=2 * count + BURST)
        heard = list(suite.heard)
    news = [moment for moment, line in heard if line.startswith("new msg")]
    first, last = news[2 * count], news[-1]
    meanwhile = sum(1 for moment, line in heard if line.startswith("delivery ") and first < moment < last)
    usual, busy = count / alone, meanwhile / (last - first)
    say(
        f"{count} deliveries: {alone:.2f} s with todo/ empty, {beside:.2f} s with {BURST} messages in todo/; "
        f"{busy:.0f} deliveries/s in the {last - first:.2f} s in which those were classified, else {usual:.0f}/s"
    )
    # The two are the same but for the noise of a busy machine. If queue-send waited for queue-todo, which is stopped,
    # the second would not end.
    assert beside < 3 * alone + 1
    # The processes share what cores there are, so the rate falls; if queue-send waited for queue-todo it would be 0.
    assert busy > usual / 5
