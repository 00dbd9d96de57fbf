"""When queue-todo slows and refuses injectors, on a clock of the test's own."""

import shutil
from pathlib import Path

import pytest

from queue_base.home import Home
from queue_base.queue.inflow import refuse_mark, slow_mark
from queue_base.queue.layout import open_layout
from queue_todo.backpressure import REFUSE_AFTER, SLOW_AFTER, Backpressure
from queue_todo.pending import Pending
from support.queues.home import make_home
from support.queues.queued import queue_message

STEP = 1.0


class World:
    """A Backpressure and its clock; `arrival` is that of the message that is next."""

    def __init__(self, home: Home, now: float = 1000.0) -> None:
        self.home = home
        self.now = now
        self.lines: list[str] = []
        self.backpressure = Backpressure(home)

    def pass_time(self, seconds: float, arrival: float | None, *, worked: bool = True, behind: float = -1) -> str:
        """Let seconds pass, judged once a second; with `behind` the next message is always so old. Return the level."""
        end = self.now + seconds
        while self.now < end:
            self.now += STEP
            self.backpressure.update(self.now, 7, self.now - behind if behind >= 0 else arrival, worked)
            self.lines += [line.decode() for line in self.backpressure.take_lines()]
        return self.level

    @property
    def level(self) -> str:
        """What an injector sees."""
        slow, refused = slow_mark(self.home).holds(), refuse_mark(self.home).holds()
        assert slow or not refused
        return "refused" if refused else "slow" if slow else "free"


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(make_home(tmp_path / "home", split=3))


def test_what_is_classified_in_time_slows_nobody(world: World) -> None:
    assert world.pass_time(1000, None) == "free"
    assert world.pass_time(1000, None, behind=SLOW_AFTER - 1) == "free"
    assert world.lines == []


def test_each_limit_is_told_once_and_ends_at_its_half(world: World) -> None:
    world.pass_time(10, None)
    assert world.pass_time(SLOW_AFTER + 2, world.now) == "slow"
    assert world.pass_time(300, None, behind=SLOW_AFTER / 2 + 1) == "slow"
    assert world.pass_time(REFUSE_AFTER + 2, world.now - SLOW_AFTER) == "refused"
    assert world.pass_time(100, None, behind=REFUSE_AFTER / 2 + 1) == "refused"
    assert world.pass_time(1, None, behind=REFUSE_AFTER / 2 - 1) == "slow"
    assert world.pass_time(1, None, behind=SLOW_AFTER / 2 - 1) == "free"
    assert [line.split(":")[0] for line in world.lines] == [
        f"inflow {word}" for word in ("slow", "refused", "slow", "free")
    ]
    assert world.lines[0] == f"inflow slow: 7 messages wait in todo, the next one for {SLOW_AFTER + 1:.0f} s"


def test_what_was_there_at_the_start_slows_and_refuses_nobody_but_what_came_later_does(world: World) -> None:
    start = world.now
    assert world.pass_time(20 * REFUSE_AFTER, start) == "slow"
    # All that is done; those that came meanwhile have waited long, but count from now.
    assert world.pass_time(REFUSE_AFTER - 1, start + 30) == "slow"
    assert world.pass_time(3, start + 30) == "refused"


def test_while_nothing_is_classified_injectors_are_slowed_but_not_refused(world: World) -> None:
    world.pass_time(10, None)
    stuck = world.now
    assert world.pass_time(20 * REFUSE_AFTER, stuck, worked=False) == "slow"
    # It goes on: all of that is like what is found at a start.
    assert world.pass_time(2 * REFUSE_AFTER, stuck + 30) == "slow"
    assert world.pass_time(1, None) == "free"


def test_injectors_that_were_refused_are_let_in_slowly_once_nothing_is_classified(world: World) -> None:
    world.pass_time(10, None)
    arrival = world.now
    assert world.pass_time(REFUSE_AFTER + 2, arrival) == "refused"
    assert world.pass_time(REFUSE_AFTER + 2, arrival, worked=False) == "slow"


def test_a_long_idle_time_makes_a_burst_no_start(world: World) -> None:
    world.pass_time(1, None)
    world.now += 100 * REFUSE_AFTER
    # Its messages arrive before any of them is classified.
    world.pass_time(1, world.now, worked=False)
    assert world.pass_time(REFUSE_AFTER + 2, world.now) == "refused"


def test_a_burst_after_a_long_idle_time_that_is_not_classified_for_long_is_like_what_is_found_at_a_start(
    world: World,
) -> None:
    world.pass_time(1, None)
    world.now += 100 * REFUSE_AFTER
    arrival = world.now
    assert world.pass_time(REFUSE_AFTER + 2, arrival, worked=False) == "slow"
    assert world.pass_time(REFUSE_AFTER + 2, arrival) == "slow"


def test_a_message_that_the_disk_refuses_does_not_count_as_waiting(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", split=3)
    message = queue_message(home, [b"b@example.net"])
    pending = Pending(open_layout(home.queue))
    pending.run(1000.0)
    assert pending.arrival == 1000.0
    assert pending.take(10) == [message]
    pending.defer(message, 1000.0)
    pending.run(1010.0)
    assert pending.arrival is None
    # It waits anew when its turn comes again.
    pending.run(1040.0)
    assert pending.arrival == 1040.0


def test_a_mark_that_cannot_be_made_is_one_warning(world: World) -> None:
    world.pass_time(1, None)
    shutil.rmtree(Path(world.home.queue, "lock"))
    world.pass_time(30, world.now)
    assert sum("warning: queue-todo: unable to " in line for line in world.lines) == 1


def test_the_end_of_queue_todo_lets_injectors_go_on(world: World) -> None:
    world.pass_time(1, None)
    assert world.pass_time(10, world.now) == "slow"
    world.backpressure.end()
    assert world.level == "free"
