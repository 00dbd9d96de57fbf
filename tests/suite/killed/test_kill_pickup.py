"""queue-pickup killed at each of its system calls: what users left in maildrop/ is queued once or twice, whole."""

import subprocess
from collections import Counter
from pathlib import Path

import pytest

from queue_base.home import Home
from queue_wire.files.maildrop import pack_header
from support.faults.kill.kill_calls import (
    EVERY,
    Ended,
    Point,
    at_each,
    own_points,
    read_end,
    steady_environment,
    traced,
)
from support.faults.kill.kill_world import odd_files, sweep_all, text_of
from support.inject.injectors import PickupDaemon, queued, shared_home, states
from support.inject.maildrop import ENVELOPE, maildrop, put
from support.plugins.saying import Say
from support.processes.suite import program, wait_until
from support.send.control import files

# How many lines each message has: the small ones share a commit; what is over 4 MB is copied a piece at a time.
SIZES = {"three small ones": (1200, 10, 20), "a large one beside a small one": (80_000, 10)}


def leave_all(home: Home, sizes: tuple[int, ...]) -> set[bytes]:
    """Put messages of these sizes in maildrop/; return them."""
    messages = [text_of(f"left{lines}", lines) for lines in sizes]
    for number, message in enumerate(messages):
        put(home, pack_header(len(message)) + message + ENVELOPE, f"mail.{number:032x}")
    return set(messages)


def pick_up(home: Home, point: Point | None, trace: Path) -> Ended:
    """Run queue-pickup until it is killed at a point or maildrop/ is empty."""
    words = [*traced(point, trace), *program("queue-pickup"), "--home", home.path]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=steady_environment()
    ) as process:
        assert process.stdin and process.stdout
        wait_until(lambda: process.poll() is not None or not maildrop(home), 60, "an empty maildrop/")
        process.stdin.close()
        output = process.stdout.read()
        ended = read_end(process.wait(60), output, trace)
    assert ended.killed == (ended.code != 0) and output == b"", ended
    return ended


def judge(home: Home, messages: set[bytes]) -> list[str]:
    """Return what is wrong after everything was taken, and swept."""
    found = Counter(each.message for each in queued(home))
    wrong = odd_files(home)
    wrong += [f"half a message, {len(message)} bytes" for message in found.keys() - messages]
    wrong += [f"{found[message]} copies" for message in messages if found[message] not in (1, 2)]
    sweep_all(home)
    left = [name for name in files(home) if not name.startswith(("mess/", "todo/"))]
    return wrong + left + ["not swept"] * (set(states(home)) != {4})


@EVERY
@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES.keys())
def test_a_kill_of_queue_pickup_loses_no_message_and_queues_none_that_is_half(
    tmp_path: Path, sizes: tuple[int, ...], every: bool, say: Say
) -> None:
    repeats = []

    def kill(number: int, point: Point) -> tuple[bool, list[str]]:
        with shared_home() as home:
            messages = leave_all(home, sizes)
            killed = pick_up(home, point, tmp_path / f"trace{number}").killed
            with PickupDaemon(home):
                wait_until(lambda: not maildrop(home), why="an empty maildrop/")
            repeats.append(len(queued(home)) - len(messages))
            return killed, judge(home, messages)

    def find_points() -> list[Point]:
        with shared_home() as home:
            leave_all(home, sizes)
            points = own_points(pick_up(home, None, tmp_path / "trace").calls, every)
            return points if every else points[::6]

    find_points()
    points = find_points()
    wrong = at_each(points, kill)
    assert not wrong, "\n".join(wrong)
    assert 0 in repeats and max(repeats) > 0
    say(f"queue-pickup: {len(points)} kills, {sum(repeats)} messages queued twice")
