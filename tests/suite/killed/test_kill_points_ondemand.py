"""Kills at system calls while mail is stored on demand, delivered, compacted, expired, deleted, returned or requeued:
of queue-ondemand's thread of the disk and of its loop, of queue-send while it hands over what is stored, and of all at
once.

The usual run has some points, the exhaustive one has all of them.
"""

import re
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from support.faults.kill.kill_runs import Story, figures, find_points, problems, tell_all
from support.faults.kill.killing import KEEPER, KEEPER_DISK, MAIN, Point
from support.faults.stored import (
    BOUNCE,
    DELETE,
    ExpiredMessage,
    OrderedByQueuectl,
    OrderedMail,
    RequeuedMail,
    SplitMessage,
    StoredBefore,
)
from support.plugins.saying import Say
from support.servers.smtp.sink import Sink

pytestmark = pytest.mark.one_way
GONE = [r'^unlink\(".*\.cluster"']
# What happens, by its name: the story, and the calls that show that it took the path that is to be tested.
STORIES: dict[str, tuple[Callable[..., Story], list[str]]] = {
    "split and stored": (
        SplitMessage,
        [r'^mkdir\(".*/ondemand', r'^link\(".*/mess/.*/ondemand/', r"^pwrite64\(", r"^fsync\(.*\.cluster>"],
    ),
    "delivered and compacted": (
        StoredBefore,
        [r'^pwrite64\(.*"D"', r'^rename\(".*\.new"', r'^unlink\(".*/ondemand/.*/mess/', *GONE, "^rmdir"],
    ),
    "expired": (ExpiredMessage, [r'^pwrite64\(.*"D"', *GONE]),
    "deleted": (partial(OrderedMail, DELETE), [r'^pwrite64\(.*"D"', *GONE]),
    "requeued": (RequeuedMail, [r'^pwrite64\(.*"D"', r'^unlink\(".*/order/', *GONE]),
    "returned": (partial(OrderedMail, BOUNCE), [r'^pwrite64\(.*"D"', *GONE]),
    "queuectl delete": (partial(OrderedByQueuectl, "delete"), [r'^unlink\(".*/order/', *GONE]),
    "queuectl bounce": (partial(OrderedByQueuectl, "bounce"), [r'^unlink\(".*/order/', *GONE]),
}
# The loop changes nothing on the disk: it starts queue-enqueue for bounces, and waits for its end.
BOUNCING = [r"^memfd_create\(", r"^(clone3?|vfork)\(", r"^wait4\("]
# queue-send removes a message of which recipients were stored.
ENDED = [r'^pwrite64\(.*/marks>, "QSM1']


@pytest.fixture(scope="module")
def sink() -> Iterator[Sink]:
    with Sink() as running:
        yield running


def points_of(sink: Sink, story: str, thread: str) -> list[Point]:
    """Return all points of a thread in a story."""
    make, shows = STORIES[story]
    points = find_points(partial(make, sink), sink, thread)
    # It may listen before strace is attached.
    points = [point for point in points if "/queue/intake" not in point.shown]
    for call in {KEEPER_DISK: shows, KEEPER: BOUNCING, MAIN: ENDED}[thread]:
        assert any(re.search(call, point.shown) for point in points), (call, points)
    return points


def chosen(points: list[Point], everybody: bool) -> list[Point]:
    """Return the points at which one daemon is killed, or all are, which can be done only after a call."""
    return [point._replace(everybody=True) for point in points if point.after] if everybody else points


def kill_at(sink: Sink, story: str, points: list[Point], say: Say) -> None:
    """Run a story once for each point, and check that nothing is lost and little is repeated."""
    assert points
    told = tell_all(partial(STORIES[story][0], sink), sink, [(point,) for point in points])

    assert not problems(told), "\n".join(problems(told))
    say(f"{story}, {points[0].thread}{', everybody' if points[0].everybody else ''}: {figures(told)}")


@pytest.mark.parametrize(
    ("story", "calls"),
    [
        ("split and stored", r"link\(.*/ondemand/|pwrite64\(.*cluster"),
        ("delivered and compacted", r'rename\(|unlink\(".*\.cluster"'),
        # How many names are removed before that of the order differs from run to run.
        ("requeued", r'pwrite64\(.*"D"'),
    ],
    ids=["stored", "delivered", "requeued"],
)
@pytest.mark.long
def test_a_kill_while_mail_is_stored_or_delivered_on_demand_loses_nothing(
    sink: Sink, story: str, calls: str, say: Say
) -> None:
    points = [point for point in points_of(sink, story, KEEPER_DISK) if re.match(calls, point.shown)]
    # The last one of each kind, before and after it.
    last = {(point.call, point.after): point for point in points}

    kill_at(sink, story, list(last.values()), say)


@pytest.mark.exhaustive
@pytest.mark.parametrize("everybody", [False, True], ids=["queue-ondemand", "everybody"])
@pytest.mark.parametrize("story", STORIES)
def test_a_kill_at_any_call_of_the_thread_of_the_disk_loses_nobody_and_repeats_each_once_at_most(
    sink: Sink, story: str, everybody: bool, say: Say
) -> None:
    kill_at(sink, story, chosen(points_of(sink, story, KEEPER_DISK), everybody), say)


@pytest.mark.exhaustive
@pytest.mark.parametrize("everybody", [False, True], ids=["queue-ondemand", "everybody"])
@pytest.mark.parametrize("story", ["delivered and compacted", "expired", "requeued", "returned"])
def test_a_kill_while_queue_ondemand_returns_mail_loses_nobody_and_repeats_a_bounce_once_at_most(
    sink: Sink, story: str, everybody: bool, say: Say
) -> None:
    kill_at(sink, story, chosen(points_of(sink, story, KEEPER), everybody), say)


@pytest.mark.exhaustive
@pytest.mark.parametrize("everybody", [False, True], ids=["queue-send", "everybody"])
def test_a_kill_of_queue_send_while_recipients_of_a_message_are_stored_loses_nobody(
    sink: Sink, everybody: bool, say: Say
) -> None:
    kill_at(sink, "split and stored", chosen(points_of(sink, "split and stored", MAIN), everybody), say)
