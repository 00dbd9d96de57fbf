"""The administrator's commands on messages that are delivered from their notices, with their deliveries in flight."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import pytest

from support.processes.suite import Suite, enqueue, wait_until
from support.send.control import long_id, order, queuectl, wait_for_backlog
from support.servers.smtp.sink import Sink
from support.site import Site

# Long enough that nothing is classified but what needs its files.
pytestmark = pytest.mark.home(classifyafter="600", destinationinitial="20")


class Running(NamedTuple):
    """A suite, and a message of two recipients that the sink holds."""

    site: Site
    suite: Suite
    sink: Sink
    message: int
    name: str

    def state(self) -> str:
        """Return the state that queuectl list shows, and the recipients done/left."""
        found = json.loads(order(self.site.home, "list", "--format", "json"))
        counts = found["unsorted" if found["state"] == "queued" else "remote"]
        return f"{found['state']} {counts['done']}/{counts['left']}"

    def shown(self) -> list[str]:
        return order(self.site.home, "show", self.name).split("\n")

    def end(self) -> None:
        """Let the host answer; wait until nothing is left of the message."""
        self.sink.release()
        self.suite.wait_for(f"^end msg {self.message}$")
        wait_until(lambda: self.site.files() == [], why="the files to go")


@contextmanager
def in_flight(site: Site) -> Iterator[Running]:
    with Sink() as sink:
        site.route(sink.port)
        sink.hold_after = 0
        with Suite(site.home) as suite:
            # Mail that comes before queue-send has told queue-todo to announce it is classified.
            wait_for_backlog(site.home)
            enqueue(site.home, b"a@me.example.org", [b"b@c.example", b"d@e.example"], b"Subject: x\n\ny\n")
            sink.wait_for(1)
            message = int(suite.wait_for("^new msg ").split()[-1])
            try:
                yield Running(site, suite, sink, message, long_id(site.home, message))
            finally:
                # A stop waits for what is in flight, also after a test that has failed.
                sink.release()


@pytest.fixture
def running(site: Site) -> Iterator[Running]:
    with in_flight(site) as found:
        yield found


def test_it_is_shown_as_queued_and_in_flight(running: Running) -> None:
    assert running.state() == "queued 0/2"
    assert any(line.startswith("now: remote: 2 recipients in flight to ") for line in running.shown())
    assert "recipients, not yet classified: 0 done, 2 left" in running.shown()
    stat = order(running.site.home, "stat").split("\n")
    assert {"queued: 1", "classified: 0", "with trouble: 0", "stray names: 0"} <= set(stat)
    assert "2/250 deliveries in flight" in order(running.site.home, "destinations")
    running.end()


def test_a_hold_lets_what_is_in_flight_end_and_is_durable_when_it_is_answered(running: Running) -> None:
    assert order(running.site.home, "hold", running.name) == "held 1 message"
    assert running.state() == "classified 0/2"
    assert "held: by the administrator" in running.shown()
    running.sink.release()
    running.suite.wait_for("^delivery 2: success: ")
    wait_until(lambda: running.state() == "classified 2/0", why="the marks of both recipients")
    assert order(running.site.home, "release", running.name) == "released 1 message"
    running.end()


def test_a_delete_ends_it_when_nothing_is_in_flight_any_more(running: Running) -> None:
    assert order(running.site.home, "delete", running.name) == "deleted 1 message"
    assert running.suite.count("^end msg ") == 0
    running.end()
    assert running.suite.count("^bounce msg ") == 0


def test_a_bounce_now_does_not_bounce_what_was_in_flight_and_was_delivered(running: Running) -> None:
    assert order(running.site.home, "bounce", running.name) == "bounced 1 message"
    running.end()
    assert running.suite.count("^delivery .*: success: ") == 2 and running.suite.count("^bounce msg ") == 0


def test_a_requeue_gives_it_a_new_birth(running: Running) -> None:
    news = order(running.site.home, "requeue", running.name).split("\n")
    assert news == [f"{running.name}: is {long_id(running.site.home, running.message)} now", "requeued 1 message"]
    running.end()


def test_a_flush_changes_nothing_of_it(running: Running) -> None:
    assert order(running.site.home, "flush", "--all") == "flushed 0 messages"
    assert running.state() == "queued 0/2"
    running.end()


def test_after_a_kill_an_order_that_was_answered_counts(site: Site) -> None:
    with in_flight(site) as running:
        order(site.home, "hold", running.name)
        running.suite.kill()
    with Suite(site.home) as suite:
        assert order(site.home, "flush", "--all") == "flushed 0 messages"
        assert order(site.home, "release", running.name) == "released 1 message"
        suite.wait_for("^starting delivery ")


def test_a_recipient_that_is_done_is_shown_so_and_a_selector_does_not_find_it(site: Site) -> None:
    with Sink() as hanging, Sink() as fast:
        site.route(fast.port, slow=hanging.port)
        hanging.hold_after = 0
        with Suite(site.home) as suite:
            wait_for_backlog(site.home)
            enqueue(site.home, b"a@me.example.org", [b"b@fast.example", b"d@slow.example"], b"Subject: x\n\ny\n")
            hanging.wait_for(1)
            suite.wait_for("^delivery .*: success: ")
            wait_until(lambda: "all 1 done, 1 left" in order(site.home, "list"), why="the mark")
            assert queuectl(site.home, "hold", "--domain", "fast.example").returncode == 1
            assert order(site.home, "hold", "--domain", "slow.example") == "held 1 message"
            assert "remote 1 done, 1 left" in order(site.home, "list")
            hanging.release()
            suite.wait_for("^delivery .*: success: ", times=2)
