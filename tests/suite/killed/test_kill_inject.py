"""Injectors killed at each of their system calls: what was reported as queued arrives once and whole; all else at most.

Beside those in the queue owner's name there are those of a user who may not write to the queue, and those that have a
program in queue-enqueue's place. All kills of a test are in one home, where the suite is started afterwards.
"""

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from queue_base.home import Home
from support.faults.kill.kill_calls import EVERY, Point, at_each, own_points, run
from support.faults.kill.kill_world import RECIPIENT, SENDER, World, kill_world, text_of
from support.faults.nameless import REFUSED
from support.inject.injectors import USER, as_user
from support.plugins.saying import Say
from support.processes.forked import BIN
from support.processes.suite import program
from support.queues.inflow import patched_programs

Command = tuple[list[str], dict[str, str]]


def injecting(home: Home, place: Path, programs: Path = BIN) -> Command:
    return [*program("queue-inject", programs), "--home", home.path, "-a", "-f", SENDER, RECIPIENT], {}


def injecting_with_names(home: Home, place: Path) -> Command:
    return injecting(home, place, patched_programs(place, queue_inject=REFUSED))


def enqueueing(home: Home, place: Path) -> Command:
    envelope = place / "envelope"
    envelope.write_bytes(f"F{SENDER}\0T{RECIPIENT}\0\0".encode())
    command = [*program("queue-enqueue"), "--home", home.path]
    return ["sh", "-c", f"exec {shlex.join(command)} 1<{envelope}"], {}


def sending(home: Home, place: Path) -> Command:
    return [*program("sendmail"), "--home", home.path, "-i", "-f", SENDER, RECIPIENT], {}


def dropping(home: Home, place: Path) -> Command:
    return [*as_user(USER, "queue_inject.main"), "--home", home.path, "-a", "-f", SENDER, RECIPIENT], {}


def filtering(home: Home, place: Path) -> Command:
    named = place / "filter"
    named.write_text(f"#!/bin/sh\nexec {shlex.join(program('queue-enqueue'))}\n")
    named.chmod(0o755)
    return injecting(home, place)[0], {"QUEUE_ENQUEUE": str(named)}


KINDS: dict[str, Callable[[Home, Path], Command]] = {
    "queue-inject": injecting,
    "queue-inject, where all files have names": injecting_with_names,
    "queue-enqueue": enqueueing,
    "sendmail": sending,
    "queue-inject of a user": dropping,
    "queue-inject with a filter": filtering,
}

# Of these the usual run has one point of so many: their calls on the disk are those of queue-inject.
FEWER = {
    "queue-inject, where all files have names": 2,
    "queue-enqueue": 2,
    "sendmail": 2,
    "queue-inject with a filter": 3,
}


def inject(world: World, command: Command, trace: Path, token: str, point: Point | None) -> tuple[list[str], bool]:
    """Run an injector, which queues the message or is killed; return its calls, and whether it was killed."""
    words, environment = command
    ended = run(words, point, trace, text_of(token), **environment)
    assert ended.killed == (ended.code != 0), f"{point}: exit code {ended.code}, {ended.calls[-1:]}"
    world.expect(token, int(not ended.killed), 1, f"killed {point}" if ended.killed else "reported")
    return ended.calls, ended.killed


@EVERY
@pytest.mark.parametrize("kind", KINDS)
def test_an_injector_that_is_killed_leaves_a_whole_message_or_none(
    tmp_path: Path, kind: str, every: bool, say: Say
) -> None:
    with kill_world() as world:
        command = KINDS[kind](world.home, tmp_path)
        # Once more than needed, since the first run may compile something.
        inject(world, command, tmp_path / "trace", "first", None)
        points = own_points(inject(world, command, tmp_path / "trace", "second", None)[0], every)
        points = points if every else points[:: FEWER.get(kind, 1)]

        def kill(number: int, point: Point) -> tuple[bool, list[str]]:
            return inject(world, command, tmp_path / f"trace{number}", f"kill{number}", point)[1], []

        wrong = at_each(points, kill) + world.finish()
        assert not wrong, "\n".join(wrong)
        # What is not reported is there all the same where the kill came late, and not where it came early.
        assert 0 < world.surplus < len(points)
        say(f"{kind}: {len(points)} kills, {world.surplus} messages queued all the same")
