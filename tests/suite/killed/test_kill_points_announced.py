"""Kills at system calls while messages are delivered from their notices: of queue-send, queue-todo, queue-clean, and of
all at once.

One message is delivered to everybody and never classified; another one has to be classified, because a recipient
fails and one is deferred; a third one, because the suite is stopped. The usual run has one point for each kind of call,
the exhaustive one has all of them.
"""

import re
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from support.faults.delivering import BulkMessage, DeliveredMessage, StoppedMessage
from support.faults.failing import FailingBulk, FailingMessage
from support.faults.kill.kill_runs import Story, figures, find_points, problems, tell_all
from support.faults.kill.killing import CLEAN, MAIN, TODO, Point
from support.plugins.saying import Say
from support.servers.smtp.sink import Sink

pytestmark = pytest.mark.one_way
AFTER = "60"  # classifyafter: nothing is classified because it was late.
RECORD = r'^pwrite64\(.*/marks>, "QSM1'
CLEARED = r'^pwrite64\(.*/marks>, "\\0'
# The thread, the message, and a call that shows that it took the path that is to be tested.
PATHS = {
    "delivered, queue-send": (MAIN, DeliveredMessage, RECORD),
    "delivered, queue-clean": (CLEAN, DeliveredMessage, CLEARED),
    "classified, queue-send": (MAIN, FailingMessage, RECORD),
    "classified, queue-todo": (TODO, FailingMessage, r'^unlink\(".*/todo/'),
    "stopped, queue-send": (MAIN, StoppedMessage, CLEARED),
    "stopped, queue-todo": (TODO, StoppedMessage, r'^unlink\(".*/todo/'),
    "bulk, queue-send": (MAIN, BulkMessage, RECORD),
    "bulk, queue-todo": (TODO, BulkMessage, r'^open.*".*/priority/bulk/'),
    "bulk, queue-clean": (CLEAN, BulkMessage, r'^unlink\(".*/priority/bulk/'),
    "bulk, classified, queue-todo": (TODO, FailingBulk, r'^unlink\(".*/priority/bulk/'),
    "stopped, queue-clean": (CLEAN, StoppedMessage, r'^unlink\(".*/info/'),
}


def some_or_every(*usual: str) -> pytest.MarkDecorator:
    """Have a test run with some points of these paths, and in the exhaustive run with every point of all paths too."""
    rest = [pytest.param(path, False, marks=pytest.mark.exhaustive) for path in PATHS if path not in usual]
    every = [pytest.param(path, True, marks=pytest.mark.exhaustive) for path in PATHS]
    return pytest.mark.parametrize(("path", "every"), [*((path, False) for path in usual), *rest, *every])


@pytest.fixture(scope="module")
def sink() -> Iterator[Sink]:
    with Sink() as running:
        yield running


def story_of(sink: Sink, path: str) -> Callable[[str], Story]:
    story: Callable[..., Story] = PATHS[path][1]
    return partial(story, sink) if story in (DeliveredMessage, BulkMessage) else story


def points_of(sink: Sink, path: str) -> list[Point]:
    """Return all points of a thread in the life of a message."""
    thread, _, shows = PATHS[path]
    points = find_points(story_of(sink, path), sink, thread, classifyafter=AFTER)
    assert any(re.search(shows, point.shown) for point in points), points
    return points


def one_of_each(points: list[Point]) -> list[Point]:
    """Return the last of the points of each kind: of each call, and for those that change names each directory."""
    found: dict[tuple[str, str, bool], Point] = {}
    for point in points:
        place = re.search(r"/queue/(\w+)", point.shown)
        turning = point.call in ("unlink", "pwrite64", "fsync")
        if turning or not point.after:
            found[point.call, place[1] if place and turning else "", point.after] = point
    return list(found.values())


@some_or_every("delivered, queue-send", "delivered, queue-clean", "classified, queue-todo")
@pytest.mark.long
def test_a_kill_of_one_daemon_loses_nobody_and_repeats_each_recipient_once_at_most(
    sink: Sink, path: str, every: bool, say: Say
) -> None:
    points = points_of(sink, path)

    chosen = points if every else [point for point in one_of_each(points) if not point.after]
    told = tell_all(story_of(sink, path), sink, [(point,) for point in chosen], AFTER)

    assert not problems(told), "\n".join(problems(told))
    say(f"{path}: {figures(told)}")


@some_or_every("delivered, queue-send", "classified, queue-todo")
def test_a_kill_of_all_at_once_loses_nobody_and_repeats_each_recipient_once_at_most(
    sink: Sink, path: str, every: bool, say: Say
) -> None:
    after = [point._replace(everybody=True) for point in points_of(sink, path) if point.after]

    chosen = after if every else [point for point in one_of_each(after) if point.call in ("unlink", "pwrite64")]
    told = tell_all(story_of(sink, path), sink, [(point,) for point in chosen], AFTER)

    assert not problems(told), "\n".join(problems(told))
    say(f"{path}, everybody: {figures(told)}")


# queue-todo takes over the marks as soon as it runs, before strace can be attached to it. What each of its changes
# leaves is in tests/suite/crash/test_crash_model_stop.py.
@pytest.mark.exhaustive
@pytest.mark.parametrize("thread", [MAIN, CLEAN])
def test_a_second_kill_in_the_run_that_takes_over_the_marks_of_the_first_loses_nobody(
    sink: Sink, thread: str, say: Say
) -> None:
    path = "delivered, queue-send"
    marked = (point for point in points_of(sink, path) if re.search(RECORD, point.shown))
    first = next(point for point in marked if point.after)
    points = find_points(story_of(sink, path), sink, thread, before=(first,), classifyafter=AFTER)
    assert points

    told = tell_all(story_of(sink, path), sink, [(first, point) for point in points], AFTER)

    assert not problems(told), "\n".join(problems(told))
    say(f"{thread}, second kill: {figures(told)}")
