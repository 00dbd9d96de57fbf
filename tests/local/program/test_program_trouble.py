"""Programs that misbehave: none holds a delivery up beyond its time, and what is killed is killed whole."""

import os
import signal
from pathlib import Path

import pytest

from support.processes.programs import Stopwatch, kill_left, lives, pid_in, run_command, wait_for_end

# The time of a program that has something to do in it, also where a shell takes a second to start; in seconds.
ENOUGH = 3.0
# How long a delivery may take that must not wait for something that lasts far longer.
SOON = 30.0


def test_output_without_end_is_ended_by_the_time_limit(tmp_path: Path) -> None:
    watch = Stopwatch()
    ended = run_command(b"exec yes", tmp_path, seconds=ENOUGH)
    assert ended.letter == b"Z" and watch.seconds < SOON
    assert ended.text.startswith(b"Timeout on program: killed exec yes. (#4.3.0)\ny\ny\n")
    assert ended.text.endswith(b"y\ny\n") and len(ended.text) < 3000


def test_a_program_that_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    command = b"echo before; sleep 1000 & echo $! >child; echo $$ >self; wait"
    ended = run_command(b"cd %s; " % os.fsencode(tmp_path) + command, tmp_path, seconds=ENOUGH)
    assert ended.letter == b"Z" and ended.text.endswith(b"... (#4.3.0)\nbefore\n")
    wait_for_end(pid_in(tmp_path / "child"))
    wait_for_end(pid_in(tmp_path / "self"))


def test_the_time_of_the_whole_delivery_ends_a_program_as_well(tmp_path: Path) -> None:
    command = b"echo $$ >%s; sleep 1000; :" % os.fsencode(tmp_path / "self")
    ended = run_command(command, tmp_path, limit=int(ENOUGH))
    assert ended.letter == b"Z" and ended.text.startswith(b"Timeout on delivery: killed echo $$ >")
    wait_for_end(pid_in(tmp_path / "self"))


def test_a_program_may_clean_up_when_its_time_is_over(tmp_path: Path) -> None:
    command = b"trap 'echo cleaned; exit 0' TERM; while :; do sleep 0.05; done"
    ended = run_command(command, tmp_path, seconds=0.5)
    # It got its chance; that it ends well then is no success.
    assert ended.letter == b"Z" and b"Timeout on program" in ended.text


def test_a_program_that_ignores_term_is_killed(tmp_path: Path) -> None:
    watch = Stopwatch()
    file = tmp_path / "self"
    command = b"trap '' TERM; echo $$ >%s; while :; do sleep 0.1; done" % os.fsencode(file)
    assert run_command(command, tmp_path, seconds=ENOUGH).letter == b"Z"
    assert watch.seconds < SOON
    wait_for_end(pid_in(file))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_a_program_killed_by_a_signal_defers(tmp_path: Path, number: signal.Signals) -> None:
    ended = run_command(b"echo said; kill -%d $$" % number, tmp_path)
    assert ended.letter == b"Z"
    expected = b"Aack, child crashed: signal %d killed echo said; kill -%d $$. (#4.3.0)\nsaid\n"
    assert ended.text == expected % (number, number)


@pytest.mark.parametrize("how", [b"%s & echo done", b"setsid %s & echo done", b"(%s &); echo done"])
def test_what_a_program_leaves_behind_with_its_output_open_is_not_waited_for(tmp_path: Path, how: bytes) -> None:
    watch = Stopwatch()
    left = b"sh -c 'echo $$ >%s; exec sleep 1000'" % os.fsencode(tmp_path / "left")
    assert run_command(how % left, tmp_path).text == b"0:done\n"
    assert watch.seconds < SOON
    # It ended well, so what it started lives on, as under qmail.
    pid = pid_in(tmp_path / "left")
    assert lives(pid)
    kill_left(pid)


def test_what_a_program_leaves_behind_that_writes_without_end_is_not_waited_for(tmp_path: Path) -> None:
    ended = run_command(b"yes & echo $! >%s; sleep 0.2; exit 3" % os.fsencode(tmp_path / "left"), tmp_path)
    assert (ended.letter, ended.text[:4]) == (b"K", b"3:y\n")
    # Nobody reads it any more.
    wait_for_end(pid_in(tmp_path / "left"))


def test_a_program_that_makes_a_session_of_its_own_cannot_hold_a_delivery_up(tmp_path: Path) -> None:
    watch = Stopwatch()
    # `setsid` forks where it leads a group; `--wait` waits for what is then out of reach of the group's signals.
    inner = b"trap \"\" TERM; echo $$ >%s; exec sleep 1000" % os.fsencode(tmp_path / "far")
    ended = run_command(b"trap '' TERM; setsid --wait sh -c '%s'; :" % inner, tmp_path, seconds=ENOUGH)
    assert ended.letter == b"Z" and watch.seconds < SOON
    kill_left(pid_in(tmp_path / "far"))


def test_what_is_in_another_group_of_the_session_is_killed_as_well(tmp_path: Path) -> None:
    # `set -m` gives each background command a group of its own.
    command = b"set -m; sh -c 'echo $$ >%s; exec sleep 1000' & sleep 1000" % os.fsencode(tmp_path / "far")
    assert run_command(command, tmp_path, seconds=ENOUGH).letter == b"Z"
    wait_for_end(pid_in(tmp_path / "far"))


def test_a_program_that_stops_itself_is_ended(tmp_path: Path) -> None:
    command = b"echo $$ >%s; kill -STOP $$; echo went on" % os.fsencode(tmp_path / "self")
    assert b"went on" not in run_command(command, tmp_path, seconds=ENOUGH).text
    wait_for_end(pid_in(tmp_path / "self"))
