"""A backlog of bulk mail does not delay normal mail, keeps its class over restarts and kills, and is all delivered."""

import json
import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from queue_base.queue.layout import CLASS_BIT, open_layout
from queue_base.queue.writer import QueueDraft, QueueWriter
from queue_wire.files.envelope import unpack_whole_info
from support.faults.kill.killing import drive
from support.plugins.amount import amount
from support.plugins.saying import Say
from support.processes.suite import Suite, wait_until
from support.send.control import order
from support.send.timed_suite import TimedSuite
from support.servers.smtp.sink import Sink
from support.site import Site, mail_site
from support.smtpd.smtpd_daemon import SmtpdDaemon

BACKLOG = amount(1500, 50_000)
LIMIT = 1.0  # Seconds from the end of a normal injection to the start of its delivery.
GROUP = 250


@pytest.fixture
def site() -> Iterator[Site]:
    with mail_site() as found:
        yield found


def queue_mail(site: Site, count: int, domain: str, priority: str = "") -> list[int]:
    """Queue messages to one recipient each; return their numbers."""
    writer = QueueWriter(site.home, open_layout(site.home.queue), os.getuid())
    writer.priority = priority
    found = []
    for begin in range(0, count, GROUP):
        drafts = []
        for number in range(begin, min(begin + GROUP, count)):
            draft = writer.begin()
            draft.write(b"Subject: %s\n\n%d\n" % (priority.encode(), number))
            draft.finish(b"a@me.example.org", [b"r%d@d%d.%s" % (number, number % 50, domain.encode())])
            drafts.append(draft)
        writer.commit(drafts)
        found += [draft.message for draft in drafts if isinstance(draft, QueueDraft)]
    return found


def trees(site: Site) -> list[str]:
    """Return the files in the trees of the classes."""
    return sorted(str(path) for path in Path(site.home.queue, "priority").glob("*/*/*"))


def started(suite: Suite, numbers: list[int]) -> list[int]:
    """Return at which places of all first deliveries those of these messages were started."""
    order = [int(number) for number in re.findall(r"starting delivery \d+: msg (\d+) to", "\n".join(suite.lines))]
    return sorted(order.index(number) for number in numbers)


def test_normal_mail_that_waits_behind_a_backlog_is_started_first(site: Site) -> None:
    with Sink() as sink:
        site.route(sink.port)
        # Where places are free, bulk need not wait until a normal message is loaded.
        site.control("concurrencyremote", "2")
        queue_mail(site, 600, "bulk.example", "bulk")
        normal = queue_mail(site, 8, "normal.example")
        with Suite(site.home) as suite:
            suite.wait_for(r"end msg \d+", times=608)
            # One of ten is bulk, and some of it may have been announced with the first group.
            places = started(suite, normal)
            assert places[-1] < 60, places
            wait_until(lambda: not trees(site) and not site.kinds()["mess"], why="the removals")
    assert len(sink.taken) == 608


def test_a_normal_message_is_started_at_once_while_a_backlog_is_delivered(site: Site, say: Say) -> None:
    with Sink() as sink:
        site.route(sink.port)
        queue_mail(site, BACKLOG, "bulk.example", "bulk")
        with TimedSuite(site.home) as suite:
            suite.wait_for(r"starting delivery \d+: msg", times=100)
            (normal,) = queue_mail(site, 1, "normal.example")
            queued = time.monotonic()
            suite.wait_for(rf"starting delivery \d+: msg {normal} ")
            sink.wait_for(BACKLOG + 1, deadline=240.0)
            told = suite.first_times(rf"starting delivery \d+: msg ({normal}) to .*")
            place = started(suite, [normal])[0]
    waited = next(iter(told.values())) - queued
    say(f"{BACKLOG} bulk messages: a normal one was started {waited:.3f} s after it was queued, as number {place}")
    # Behind what was announced or queued before, and not behind the backlog.
    assert place < BACKLOG - 100
    assert waited < LIMIT or place < 1000
    assert len(sink.taken) == BACKLOG + 1


def test_a_deferred_message_has_its_class_after_a_restart(site: Site) -> None:
    site.route(1)  # Nobody listens there.
    (message,) = queue_mail(site, 1, "bulk.example", "bulk")
    layout = open_layout(site.home.queue)
    info = Path(layout.hashed("info", message))
    for _ in range(2):
        with Suite(site.home) as suite:
            wait_until(info.exists, why="the classification")
            wait_until(lambda: not trees(site), why="the removal from the tree")
            found = info.stat()
            assert unpack_whole_info(info.read_bytes())[:2] == (b"a@me.example.org", "bulk")
            assert stat.S_IMODE(found.st_mode) == 0o600 | CLASS_BIT
            assert suite.stop() == 0
    with Sink() as sink:
        site.route(sink.port)
        os.utime(layout.hashed("remote", message), (1, 1))
        with Suite(site.home) as suite:
            suite.wait_for(rf"end msg {message}")
    assert len(sink.taken) == 1


@pytest.mark.parametrize("classifyafter", ["0", "1"])
def test_a_kill_loses_no_bulk_mail_and_repeats_none_that_is_in_the_log(site: Site, classifyafter: str) -> None:
    site.control("classifyafter", f"{classifyafter}\n")
    with Sink() as sink:
        site.route(sink.port)
        queue_mail(site, 300, "bulk.example", "bulk")
        with Suite(site.home) as suite:
            suite.wait_for(r"delivery \d+: success", times=20)
            suite.kill()
            done = suite.count(r"^delivery \d+: success")
        with Suite(site.home) as suite:
            wait_until(lambda: not trees(site) and site.is_empty(), why="the rest of the mail")
            rest = suite.count(r"^delivery \d+: success")
            assert suite.stop() == 0
    taken = {recipient for each in sink.taken for recipient in each.recipients}
    assert len(taken) == 300
    assert rest <= 300 - done + 50, "what was in flight may be repeated, and the rest not"


def test_a_class_that_is_made_while_the_suite_runs_is_found(site: Site) -> None:
    with Sink() as sink:
        site.route(sink.port)
        with Suite(site.home) as suite:
            queue_mail(site, 3, "first.example")
            suite.wait_for(r"end msg \d+", times=3)
            for times, priority in enumerate(("bulk", "bulk"), 1):
                queue_mail(site, 40, "bulk.example", priority)
                suite.wait_for(r"end msg \d+", times=3 + 40 * times)
    assert len(sink.taken) == 83


def test_mail_of_a_listener_with_a_class_has_that_class_until_it_is_delivered(site: Site) -> None:
    site.control("rcpthosts", "remote.example\n")
    site.control("relayclients", "127.0.0.1\n")
    with ExitStack() as stack:
        sink = stack.enter_context(Sink())
        site.route(sink.port)
        suite = stack.enter_context(Suite(site.home))
        smtpd = stack.enter_context(SmtpdDaemon(site.home, ("mx", "mx priority=bulk")))
        for listener, sender in enumerate(("normal@a.example", "bulk@a.example")):
            with smtpd.smtp(listener) as client:
                client.sendmail(sender, ["soon@remote.example"], "Subject: x\r\n\r\n")
        # The host takes it at the third attempt.
        suite.wait_for(": deferral: ", times=2)

        found = [json.loads(line) for line in order(site.home, "list", "--format", "json").splitlines()]
        assert {each["sender"]: each["priority"] for each in found} == {
            "normal@a.example": None, "bulk@a.example": "bulk",
        }  # fmt: skip
        drive(suite, lambda: len(sink.taken) == 2)
        suite.wait_for("^end msg ", times=2)
        wait_until(lambda: not site.kinds()["mess"], why="the removals")
