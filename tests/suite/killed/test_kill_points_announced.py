"""Kills at system calls while messages are delivered from their notices: of queue-send, queue-todo, queue-clean, and of
all at once.

One message is delivered to everybody and never classified; another one has to be classified, because a recipient
fails and one is deferred. The usual run has one point for each kind of call, the exhaustive one has all of them.
"""

import re
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from support.faults.delivering import DeliveredMessage
from support.faults.failing import FailingMessage
from support.faults.kill_runs import Story, figures, find_points, problems, tell_all
from support.faults.killing import CLEAN, MAIN, TODO, Point
from support.saying import Say
from support.servers.sink import Sink

AFTER = "60"  # classifyafter: nothing is classified because it was late.
EVERY = pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.exhaustive)])
# Calls of each thread that show that the messages went the way that is to be tested.
WAYS = {
    "delivered, queue-send": (MAIN, False, r"^pwrite64\(.*/marks>"),
    "delivered, queue-clean": (CLEAN, False, r"^pwrite64\(.*/marks>"),
    "classified, queue-send": (MAIN, True, r"^pwrite64\(.*/marks>"),
    "classified, queue-todo": (TODO, True, r'^unlink\(".*/todo/'),
}
WAY = pytest.mark.parametrize("way", WAYS)


@pytest.fixture(scope="module")
def sink() -> Iterator[Sink]:
    with Sink() as running:
        yield running


def story_of(sink: Sink, fails: bool) -> Callable[[str], Story]:
    return FailingMessage if fails else partial(DeliveredMessage, sink)


def points_of(sink: Sink, way: str) -> list[Point]:
    """Return all points of a thread in the life of a message."""
    thread, fails, shows = WAYS[way]
    points = find_points(story_of(sink, fails), sink, thread, classifyafter=AFTER)
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


@EVERY
@WAY
def test_a_kill_of_one_daemon_loses_nobody_and_repeats_each_recipient_once_at_most(
    sink: Sink, way: str, every: bool, say: Say
) -> None:
    points = points_of(sink, way)

    chosen = points if every else [point for point in one_of_each(points) if not point.after]
    told = tell_all(story_of(sink, WAYS[way][1]), sink, [(point,) for point in chosen], AFTER)

    assert not problems(told), "\n".join(problems(told))
    say(f"{way}: {figures(told)}")


@EVERY
@WAY
def test_a_kill_of_all_at_once_loses_nobody_and_repeats_each_recipient_once_at_most(
    sink: Sink, way: str, every: bool, say: Say
) -> None:
    after = [point._replace(everybody=True) for point in points_of(sink, way) if point.after]

    chosen = after if every else [point for point in one_of_each(after) if point.call in ("unlink", "pwrite64")]
    told = tell_all(story_of(sink, WAYS[way][1]), sink, [(point,) for point in chosen], AFTER)

    assert not problems(told), "\n".join(problems(told))
    say(f"{way}, everybody: {figures(told)}")
