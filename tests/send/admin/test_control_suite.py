"""The administrator's commands on the whole suite: messages that queue-todo has yet to read, and ends on the disk."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from queue_base.home import Home
from queue_base.queue.layout import open_layout
from support.processes.suite import Suite, enqueue, wait_until
from support.queues.queued import put_mess, put_todo, queue_message
from support.send.control import files, long_id, order

# Nobody listens on port 1: everything remote is deferred.
pytestmark = pytest.mark.home(smtproutes=":127.0.0.1:1")


@pytest.fixture
def suite(home: Home) -> Iterator[Suite]:
    with Suite(home) as running:
        yield running


def deferred(home: Home, suite: Suite, recipient: bytes = b"b@c.example") -> int:
    """Inject a message and wait until it is deferred; return its id."""
    done = suite.count("^new msg ")
    assert enqueue(home, b"a@example.org", [recipient], b"Subject: x\n\ny\n").returncode == 0
    line = suite.wait_for("^new msg ", done + 1)
    suite.wait_for("^delivery .*: deferral: ", done + 1)
    return int(line.split()[-1])


def test_a_message_that_is_held_before_it_is_classified_is_not_tried(home: Home) -> None:
    message = queue_message(home, [b"b@c.example"])
    name = long_id(home, message)
    assert order(home, "hold", name) == "held 1 message"
    with Suite(home) as suite:
        suite.wait_for(f"^info msg {message}: ")
        assert long_id(home, message) == name
        assert order(home, "flush", "--all") == "flushed 0 messages"
        assert order(home, "release", name) == "released 1 message"
        suite.wait_for(f"^starting delivery 1: msg {message} ")
        release = next(at for at, line in enumerate(suite.lines) if line == f"release msg {message}")
        start = next(at for at, line in enumerate(suite.lines) if line.startswith("starting delivery 1:"))
        assert release < start


def test_a_deleted_message_leaves_no_file_and_no_bounce(home: Home, suite: Suite) -> None:
    message = deferred(home, suite)
    name = long_id(home, message)
    order(home, "hold", name)
    assert order(home, "delete", name) == "deleted 1 message"
    suite.wait_for(f"^end msg {message}$")
    wait_until(lambda: files(home) == [], why="the files to go")
    assert suite.count("^bounce msg ") == 0


def test_a_bounce_now_is_a_message_to_the_sender(home: Home, suite: Suite) -> None:
    message = deferred(home, suite)
    assert order(home, "bounce", "--domain", "c.example") == "bounced 1 message"
    qp = suite.wait_for(f"^bounce msg {message} qp ").split()[-1]
    suite.wait_for(f"^info msg .* from <> qp {qp} uid ")
    suite.wait_for(f"^end msg {message}$")
    assert any(re.search("The_administrator_has_asked", line) for line in suite.lines)


def test_a_corrupt_queued_message_is_read_again_after_release_and_can_be_deleted(home: Home, suite: Suite) -> None:
    layout = open_layout(home.queue)
    for command in ("release", "delete"):
        message = put_mess(layout)
        put_todo(layout, message, b"garbage\0")
        suite.wait_for(f"^alert: .*msg {message} cannot be read")
        name = long_id(home, message)
        if command == "release":
            Path(layout.todo(message)).write_bytes(b"u1\0p2\0Fa@example.org\0Tb@c.example\0")
            assert order(home, "release", name) == "released 1 message"
            suite.wait_for(f"^info msg {message}: ")
            assert order(home, "delete", long_id(home, message)) == "deleted 1 message"
        else:
            assert order(home, "delete", name) == "deleted 1 message"
        suite.wait_for(f"^end msg {message}$")
        wait_until(lambda: files(home) == [], why="the files to go")


def test_thousands_of_messages_are_held_and_released(home: Home, suite: Suite) -> None:
    messages = [queue_message(home, [b"b@c.example"]) for _ in range(1050)]
    assert order(home, "hold", "--all") == "held 1050 messages"
    assert order(home, "hold", "--all") == "held 0 messages"
    assert len(list(Path(home.queue, "hold").rglob("*/*"))) == len(messages)
    assert order(home, "release", "--sender", "a@example.org") == "released 1050 messages"
    assert order(home, "delete", "--all") == "deleted 1050 messages"
    wait_until(lambda: files(home) == [], deadline=60, why="the files to go")


def test_requeue_makes_a_deferred_message_start_again(home: Home, suite: Suite) -> None:
    message = deferred(home, suite)
    news = order(home, "requeue", "--all").split("\n")
    assert news == [news[0], "requeued 1 message"]
    assert news[0].endswith(f"is {long_id(home, message)} now")
    suite.wait_for("^starting delivery 2: ")
