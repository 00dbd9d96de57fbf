"""More kills at system calls: of queue-clean, while a bounce bounces, during an order, and in the run after a kill."""

import re
from collections.abc import Iterator
from functools import partial

import pytest

from support.faults.failing import FailingBounce, FailingMessage
from support.faults.kill.kill_runs import figures, find_points, problems, tell_all
from support.faults.kill.killing import CLEAN, MAIN, SYNC, Point
from support.faults.ordered import BEFORE_ORDER, Ordered
from support.servers.smtp.sink import Sink

pytestmark = pytest.mark.exhaustive

# A first kill in the life of the failing message: its thread, what its call looks like, and whether it is after that.
FIRST = {
    "with a failure written and no recipient marked": (SYNC, r"^fsync\(.*/queue/bounce>", True),
    "with its recipients done": (MAIN, r"^unlink\(.*/remote/.* = 0", True),
    "with its bounce on the way": (MAIN, r"^\w+\(.*CLONE_VFORK", True),
    "with its bounce queued": (MAIN, r"^unlink\(.*/bounce/", False),
}


@pytest.fixture(scope="module")
def sink() -> Iterator[Sink]:
    with Sink() as running:
        yield running


@pytest.mark.parametrize("part", range(2))
def test_a_kill_of_queue_clean_leaves_nothing_behind_and_repeats_nothing(sink: Sink, part: int) -> None:
    points = find_points(FailingMessage, sink, CLEAN)
    assert {point.call for point in points} >= {"write", "unlink", "fsync"}

    told = tell_all(FailingMessage, sink, [(point,) for point in points[part::2]])

    print(figures(told))
    assert not problems(told), "\n".join(problems(told))
    assert {each.bounces for each in told} == {1}


@pytest.mark.parametrize("thread", [MAIN, SYNC])
def test_a_kill_while_a_bounce_bounces_loses_nothing_either(sink: Sink, thread: str) -> None:
    points = find_points(FailingBounce, sink, thread)
    assert points

    told = tell_all(FailingBounce, sink, [(point,) for point in points])

    print(figures(told))
    assert not problems(told), "\n".join(problems(told))


@pytest.mark.parametrize("command", ["delete", "bounce", "requeue"])
@pytest.mark.parametrize("thread", [MAIN, SYNC])
def test_an_order_that_a_kill_interrupts_is_carried_out_once(sink: Sink, command: str, thread: str) -> None:
    make = partial(Ordered, command)
    # What the loop has done before the order came is no part of it.
    points = find_points(make, sink, thread, since=BEFORE_ORDER if thread == MAIN else ())
    # What deletion changes is changed by the thread, and by queue-clean.
    assert bool(points) == (thread == SYNC or command != "delete")

    told = tell_all(make, sink, [(point,) for point in points])

    print(figures(told))
    assert not problems(told), "\n".join(problems(told))


@pytest.mark.parametrize("when", FIRST)
def test_a_second_kill_in_the_run_after_the_first_loses_nothing_either(sink: Sink, when: str) -> None:
    thread, call, after = FIRST[when]

    def is_first(point: Point) -> bool:
        return point.after == after and bool(re.search(call, point.shown))

    first = next(filter(is_first, find_points(FailingMessage, sink, thread)))
    points = find_points(FailingMessage, sink, MAIN, before=(first,))
    assert points

    told = tell_all(FailingMessage, sink, [(first, point) for point in points])

    print(figures(told))
    assert not problems(told), "\n".join(problems(told))
