"""Classification and delivery do not hold each other up, whichever of them is stuck or has thousands to do."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.feeding import bulk
from support.letters import Letter
from support.sink import Sink, Tarpit
from support.site import Site, mail_site
from support.timed_suite import TimedSuite

BURST = 5000
# Injections in a second. An injector of ours can be faster than queue-todo on a busy machine of two cores; then the
# delay would say how long the line in front of queue-todo is, not whether a delivery holds it up.
PACE = 500
HANGING = 20
LIMIT = 0.1  # Seconds from the end of an injection to the `new msg` line.


@pytest.fixture
def site() -> Iterator[Site]:
    with mail_site() as found:
        yield found


def letters(name: str, count: int, domain: str) -> list[Letter]:
    """Return letters to one recipient each."""
    return [Letter(f"{name}{number}", "sender@me.example.org", [f"{name}{number}@{domain}"]) for number in range(count)]


def waiting(site: Site) -> int:
    """Return how many messages wait in todo/."""
    return sum(len(names) for _, _, names in os.walk(Path(site.home.queue, "todo")))


def test_a_burst_of_5000_messages_is_classified_within_100_ms_each_while_every_delivery_hangs(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    site.control("concurrencyremote", f"{HANGING}\n")
    tarpit = Tarpit()
    site.route(tarpit.port)
    with TimedSuite(site.home) as suite, tarpit:
        bulk(site.home, letters("stuck", HANGING, "tarpit.example"))
        suite.wait_for(rf"status: local 0/\d+ remote {HANGING}/{HANGING}")
        queued = bulk(site.home, letters("burst", BURST, "tarpit.example"), pace=PACE)
        suite.wait_for(r"new msg \d+", times=HANGING + BURST)
        told = suite.first_times(r"new msg (\d+)")
        # Nothing has ended, and nothing could start: every delivery hung all the time.
        assert suite.count(r"^delivery \d+: ") == 0
        assert suite.count(r"starting delivery") == HANGING
        assert site.kinds()["info"] == HANGING + BURST
        assert waiting(site) == 0
    delays = sorted(told[each.message] - each.time for each in queued)
    median, most_of_all, worst = delays[BURST // 2], delays[BURST * 95 // 100], delays[-1]
    with capsys.disabled():
        print(
            f"\n{BURST} messages at {PACE}/s while {HANGING} deliveries hang: classified after "
            f"{median * 1000:.1f} ms (median), {most_of_all * 1000:.1f} ms (95 %), {worst * 1000:.1f} ms (worst)"
        )
    assert median < LIMIT
    assert most_of_all < LIMIT


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


def test_deliveries_start_and_finish_while_5000_messages_wait_in_todo_and_while_they_are_classified(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    count = 500
    # No deliveries yet, so that there are classified messages to deliver.
    limit = site.control("concurrencyremote", "0\n")
    sink = Sink()
    site.route(sink.port)
    with sink, TimedSuite(site.home) as suite:
        bulk(site.home, letters("alone", count, "fast.example"))
        suite.wait_for(r"new msg", times=count)
        alone = deliver(suite, sink, count, limit)
        bulk(site.home, letters("beside", count, "fast.example"))
        suite.wait_for(r"new msg", times=2 * count)
        todo = suite.daemon("queue-todo")
        os.kill(todo, signal.SIGSTOP)
        bulk(site.home, letters("burst", BURST, "fast.example"))
        assert waiting(site) == BURST
        beside = deliver(suite, sink, count, limit)
        assert waiting(site) == BURST
        limit.write_text("20\n")
        suite.signal(signal.SIGHUP)
        suite.wait_for(r"status: local 0/\d+ remote 0/20", times=1 + suite.count(r"remote 0/20$"))
        os.kill(todo, signal.SIGCONT)
        suite.wait_for(r"new msg", times=2 * count + BURST)
        lines = list(suite.lines)
    last_new = max(number for number, line in enumerate(lines) if line.startswith("new msg"))
    meanwhile = sum(1 for line in lines[:last_new] if line.startswith("delivery ")) - 2 * count
    with capsys.disabled():
        print(
            f"\n{count} deliveries: {alone:.2f} s with todo/ empty, {beside:.2f} s with {BURST} messages in todo/; "
            f"{meanwhile} deliveries ended while those were classified"
        )
    assert meanwhile > 0
    # The two are the same but for the noise of a busy machine.
    assert beside < 4 * alone + 2
