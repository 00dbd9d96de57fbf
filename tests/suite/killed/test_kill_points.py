"""queue-send killed at each system call that changes the disk, in the life of a message that fails and of its bounce.

There is a run of the whole suite for each call of the loop and of the thread that waits for the disk, killed before
the call has an effect and right after it. strace counts the calls and kills.
"""

import os
import re
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from support.faults.failing import FailingBounce, FailingMessage
from support.faults.kill import kill_runs, killing
from support.faults.kill.kill_runs import Story, Told, figures, find_points, problems, tell, tell_all
from support.faults.kill.killing import MAIN, SYNC, TODO, Point
from support.faults.ordered import BEFORE_ORDER, Ordered
from support.plugins.saying import Say
from support.processes.suite import Suite, wait_until
from support.queues.inflow import patched_programs
from support.servers.smtp.sink import Sink

CLASSIC = "0"  # classifyafter; test_kill_points_announced.py is about the other way.
# A queue-enqueue that says only when another one runs that its mail is queued. {} is a directory.
SLOW_TO_END = """
import time
real = main
def main(argv):
    open(f"{}/{{os.getpid()}}", "w").close()
    code = real(argv)
    for _ in range(3000):
        if len(os.listdir("{}")) > 1:
            break
        time.sleep(0.01)
    return code
"""
# On a busy machine the local delivery of a message may end long after its remote one.
SLOW_LOCAL = """
import time
import queue_local.main as local
real = local.deliver
def slow(*arguments, **named):
    time.sleep(0.5)
    return real(*arguments, **named)
local.deliver = slow
"""


@pytest.fixture(scope="module")
def sink() -> Iterator[Sink]:
    with Sink() as running:
        yield running


def delicate(points: list[Point]) -> list[Point]:
    """Return the points for every test run: the last before each kind of call, and after those that decide most.

    Calls that change something are of one kind in each directory. The disk is the same after a call as before the next.
    """
    found: dict[tuple[str, str, bool], Point] = {}
    for point in points:
        turning = "VFORK" in point.shown or point.call == "pwrite64" or re.match("unlink.*/bounce/", point.shown)
        if "O_RDONLY" not in point.shown and (turning or not point.after):
            place = re.search(r"/queue/(\w+)", point.shown)
            found[point.call, place[1] if place else "", point.after] = point
    return list(found.values())


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.exhaustive)])
@pytest.mark.long
def test_a_kill_in_the_loop_loses_nothing_and_bounces_twice_only_between_the_injection_and_the_records_end(
    sink: Sink, every: bool, say: Say
) -> None:
    points = find_points(FailingMessage, sink, MAIN, classifyafter=CLASSIC)
    calls = {(point.call, point.number) for point in points}
    assert {name for name, _ in calls} >= {"pwrite64", "utimensat", "memfd_create", "wait4", "unlink"}

    told = tell_all(FailingMessage, sink, [(point,) for point in (points if every else delicate(points))], CLASSIC)

    assert not problems(told), "\n".join(problems(told))
    twice = [each for each in told if each.bounces == 2]
    assert twice, "the window of docs/design/durability.md was not hit"
    say(f"the loop, {len(calls)} calls: {figures(told)}; two bounces after {len(twice)} kills")


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.exhaustive)])
@pytest.mark.long
def test_a_kill_while_the_failures_are_written_loses_nothing_and_bounces_once(
    sink: Sink, every: bool, say: Say
) -> None:
    points = find_points(FailingMessage, sink, SYNC, classifyafter=CLASSIC)
    assert {point.call for point in points} >= {"openat", "write", "fsync"}

    told = tell_all(FailingMessage, sink, [(point,) for point in (points if every else delicate(points))], CLASSIC)

    assert not problems(told), "\n".join(problems(told))
    say(f"the thread that waits for the disk: {figures(told)}")


def test_a_kill_while_a_bounce_and_the_bounce_of_that_one_are_on_their_way_sends_each_once_more(
    sink: Sink, tmp_path: Path
) -> None:
    running = tmp_path / "running"
    running.mkdir()
    slow = patched_programs(tmp_path, queue_enqueue=SLOW_TO_END.format(running, running))

    told = tell(FailingBounce, sink, (Point(MAIN, "wait4", 1, False),), slow)

    assert not told.wrong
    # The bounce's failure is told twice, and that of its repetition once.
    assert (told.kills, told.in_window, told.bounces) == (1, 2, 3)


@pytest.mark.parametrize("slow", [False, True], ids=["the deferral last", "the deferral first"])
@pytest.mark.parametrize("command", ["delete", "bounce"])
def test_the_points_of_an_order_are_what_comes_after_it_whichever_delivery_ends_first(
    sink: Sink, tmp_path: Path, command: str, slow: bool
) -> None:
    programs = patched_programs(tmp_path, queue_local=SLOW_LOCAL if slow else "")
    points = find_points(partial(Ordered, command), sink, MAIN, since=BEFORE_ORDER, programs=programs)
    # The loop changes nothing for a deletion; the thread of the disk, and queue-clean, do.
    assert bool(points) == (command == "bounce")
    assert not [point for point in points if point.call in ("pwrite64", "utimensat") and point.number == 1]


def test_a_first_kill_that_was_not_reached_is_tried_again_before_points_are_looked_for_behind_it(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, kills = Point(MAIN, "unlink", 4, True), iter([0, 0, 1])

    def tell_it(make: Callable[[str], Story], sink: Sink, points: tuple[Point, ...], programs: Path, _: str) -> Told:
        lines = ['unlink("/q/lock/control") = 0', 'unlink("/q/bounce/7") = 0']
        return Told(points, [lines, lines], next(kills), 0, 0, [])

    monkeypatch.setattr(kill_runs, "tell", tell_it)
    points = find_points(FailingMessage, sink, MAIN, before=(first,))
    assert [(point.number, point.after) for point in points] == [(2, False), (2, True)] and next(kills, None) is None


def test_a_suite_that_ends_while_its_thread_is_looked_for_fails_with_its_log_and_leaves_no_pipe(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[Suite] = []

    def look(suite: Suite, thread: str) -> int:
        looked.append(suite)
        todo = suite.daemon("queue-todo")
        os.kill(todo, signal.SIGKILL)
        tasks = Path(f"/proc/{todo}/task")
        wait_until(lambda: not tasks.exists(), why="the end of queue-todo")
        return len(list(tasks.iterdir()))

    monkeypatch.setattr(killing, "_task", look)
    with pytest.raises(AssertionError, match=r"/task'; the log ends:\n(?s:.*)lost queue-todo connection"):
        tell(FailingMessage, sink, (Point(TODO, "unlink", 1, False),))
    stream = looked[0].process.stdout
    assert stream is not None and stream.closed
