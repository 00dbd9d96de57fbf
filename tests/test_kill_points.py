"""queue-send killed at each system call that changes the disk, in the life of a message that fails and of its bounce.

There is a run of the whole suite for each call of the loop and of the thread that waits for the disk, killed before
the call has an effect and right after it. strace counts the calls and kills.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.failing import FailingBounce, FailingMessage
from support.inflow import patched_programs
from support.kill_runs import figures, find_points, problems, tell, tell_all
from support.killing import MAIN, SYNC, Point
from support.saying import Say
from support.sink import Sink

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


@pytest.fixture(scope="module")
def sink() -> Iterator[Sink]:
    with Sink() as running:
        yield running


def delicate(point: Point) -> bool:
    """Return whether a point is for every test run: the disk is the same after a call as before the next one."""
    turning = "VFORK" in point.shown or point.call == "pwrite64" or re.match("unlink.*/bounce/", point.shown)
    return (not point.after or bool(turning)) and "O_RDONLY" not in point.shown


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.exhaustive)])
def test_a_kill_in_the_loop_loses_nothing_and_bounces_twice_only_between_the_injection_and_the_records_end(
    sink: Sink, every: bool, say: Say
) -> None:
    points = find_points(FailingMessage, sink, MAIN)
    calls = {(point.call, point.number) for point in points}
    assert {name for name, _ in calls} >= {"pwrite64", "utimensat", "memfd_create", "wait4", "unlink"}

    told = tell_all(FailingMessage, sink, [(point,) for point in points if every or delicate(point)])

    assert not problems(told), "\n".join(problems(told))
    twice = [each for each in told if each.bounces == 2]
    assert twice, "the window of INTERNALS.md was not hit"
    say(f"the loop, {len(calls)} calls: {figures(told)}; two bounces after {len(twice)} kills")


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.exhaustive)])
def test_a_kill_while_the_failures_are_written_loses_nothing_and_bounces_once(
    sink: Sink, every: bool, say: Say
) -> None:
    points = find_points(FailingMessage, sink, SYNC)
    assert {point.call for point in points} >= {"openat", "write", "fsync"}

    told = tell_all(FailingMessage, sink, [(point,) for point in points if every or delicate(point)])

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
