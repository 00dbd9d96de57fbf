"""A delivery's process that is killed from outside, or stopped: a deferral, and its program does not outlive it."""

import os
import select
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from queue_local import deliveries as module
from queue_local.deliveries import Deliveries, Ended
from queue_local.result import FORWARD_MAX, Outcome
from queue_local.shell_command import run_program
from support.local.deliveries import JOB, finish, outcome_of, run
from support.processes.programs import ENVIRONMENT, Stopwatch, lives, pid_in, program, wait_for_end
from support.processes.suite import wait_until


def start(directory: Path, work: Callable[[int], str | Outcome], *, seconds: int = 60, grace: float = 30) -> Deliveries:
    """Start a delivery of a file in the directory."""
    deliveries = Deliveries(1, grace)
    (directory / "message").touch()
    with (directory / "message").open("rb") as file:
        deliveries.start(JOB, outcome_of(work), file.fileno(), seconds)
    return deliveries


def hanging(directory: Path) -> bytes:
    """Return a command that writes the delivery's pid, its own, and that of a child in another group; and hangs."""
    files = [os.fsencode(directory / name) for name in ("delivery", "shell", "child")]
    return b"echo $PPID >%s; echo $$ >%s; set -m; sleep 1000 & echo $! >%s; wait" % tuple(files)


def take(deliveries: Deliveries) -> list[Ended]:
    """Have one turn, which does not wait; return the deliveries that have ended."""
    poll = select.poll()
    deliveries.prepare(poll)
    return deliveries.run({descriptor for descriptor, _ in poll.poll(0)})


def end(deliveries: Deliveries) -> Ended:
    return finish(deliveries)[0]


def test_a_delivery_that_is_killed_is_a_deferral_and_takes_its_program_with_it(tmp_path: Path) -> None:
    deliveries = start(tmp_path, program(hanging(tmp_path)))
    pids = [pid_in(tmp_path / name) for name in ("delivery", "shell", "child")]
    os.kill(pids[0], signal.SIGKILL)
    ended = end(deliveries)
    assert (ended.letter, ended.text) == (b"Z", b"Delivery process ended by signal 9. (#4.3.0)\n")
    for pid in pids:
        wait_for_end(pid)


def test_a_delivery_that_is_told_to_end_kills_its_program_and_cleans_up(tmp_path: Path) -> None:
    def work(message: int) -> str:
        try:
            run_program(hanging(tmp_path), ENVIRONMENT, message, 60)
        finally:
            (tmp_path / "cleaned").touch()
        return ""

    deliveries = start(tmp_path, work)
    pids = [pid_in(tmp_path / name) for name in ("delivery", "shell", "child")]
    os.kill(pids[0], signal.SIGTERM)
    ended = end(deliveries)
    assert ended.letter == b"Z" and ended.text.startswith(b"Delivery process was told to end: killed echo ")
    assert (tmp_path / "cleaned").exists()
    for pid in pids:
        wait_for_end(pid)


@pytest.mark.parametrize("why", [signal.SIGTERM, signal.SIGALRM])
def test_a_delivery_that_is_interrupted_while_its_program_starts_lets_the_program_clean_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: signal.Signals
) -> None:
    (tmp_path / "message").touch()
    spawn = os.posix_spawn

    def spawn_and_interrupt(*words: Any, **options: Any) -> int:
        pid = spawn(*words, **options)
        pid_in(tmp_path / "started")  # It handles TERM from here on.
        os.kill(os.getpid(), why)
        return pid

    monkeypatch.setattr(os, "posix_spawn", spawn_and_interrupt)
    script = "trap 'touch %(it)s/cleaned; exit 1' TERM; echo $$ >%(it)s/started; while :; do sleep 0.01; done"
    letter, text = run(program(os.fsencode(script % {"it": tmp_path})), tmp_path / "message")
    assert letter == b"Z" and b": killed trap " in text
    assert (tmp_path / "cleaned").exists()
    wait_for_end(pid_in(tmp_path / "started"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_signals_that_queue_local_ignores_count_for_a_delivery(tmp_path: Path, number: signal.Signals) -> None:
    before = signal.signal(number, signal.SIG_IGN)
    try:
        deliveries = start(tmp_path, program(hanging(tmp_path)))
    finally:
        signal.signal(number, before)
    pids = [pid_in(tmp_path / name) for name in ("delivery", "shell", "child")]
    os.kill(pids[0], number)
    assert end(deliveries).text == b"Delivery process ended by signal %d. (#4.3.0)\n" % number
    for pid in pids:
        wait_for_end(pid)


def test_signals_that_are_blocked_when_it_starts_end_a_delivery_all_the_same(tmp_path: Path) -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM, signal.SIGTERM})
    try:
        deliveries = start(tmp_path, program(b"exec sleep 1000"), seconds=3)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    assert end(deliveries).text == b"Timeout on delivery: killed exec sleep 1000. (#4.3.0)\n"


def test_a_delivery_that_its_program_stops_is_killed_in_the_end_with_the_program(tmp_path: Path) -> None:
    watch = Stopwatch()
    deliveries = start(tmp_path, program(b"kill -STOP $PPID; " + hanging(tmp_path)), seconds=3, grace=0.5)
    pids = [pid_in(tmp_path / name) for name in ("delivery", "shell", "child")]
    assert end(deliveries).text == b"Delivery process ended by signal 9. (#4.3.0)\n"
    assert watch.seconds < 30
    for pid in pids:
        wait_for_end(pid)


def test_other_deliveries_go_on_while_a_session_with_many_processes_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_end, real = tmp_path / "may-end", module.end_session

    def end_slowly(leader: int) -> None:
        wait_until(may_end.exists, 30, "the end of another delivery")
        real(leader)

    monkeypatch.setattr(module, "end_session", end_slowly)
    (tmp_path / "message").touch()
    deliveries = Deliveries(2)
    with (tmp_path / "message").open("rb") as file:
        deliveries.start(JOB, outcome_of(program(hanging(tmp_path))), file.fileno(), 60)
        pids = [pid_in(tmp_path / name) for name in ("delivery", "shell", "child")]
        os.kill(pids[0], signal.SIGKILL)
        wait_until(lambda: not take(deliveries) and bool(deliveries._killed), 30, "the end of its process")
        deliveries.start(JOB, lambda _: Outcome("fine"), file.fileno(), 60)
    ended: list[Ended] = []

    def has_ended() -> bool:
        ended.extend(take(deliveries))
        return bool(ended)

    wait_until(has_ended, 30, "the end of the second delivery")
    assert [(each.letter, each.text) for each in ended] == [(b"K", b"fine\n")] and len(deliveries) == 1
    may_end.touch()
    assert end(deliveries).text == b"Delivery process ended by signal 9. (#4.3.0)\n"
    for pid in pids:
        wait_for_end(pid)


def test_the_end_of_one_delivery_s_session_spares_the_others(tmp_path: Path) -> None:
    (tmp_path / "message").touch()
    deliveries = Deliveries(2)
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        work = outcome_of(program(hanging(tmp_path / name)))
        with (tmp_path / "message").open("rb") as file:
            deliveries.start(JOB, work, file.fileno(), 60)
    first, second = (pid_in(tmp_path / name / "delivery") for name in ("one", "two"))
    child = pid_in(tmp_path / "two/child")
    os.kill(first, signal.SIGKILL)
    ended: list[Ended] = []
    while not ended:
        poll = select.poll()
        deliveries.prepare(poll)
        ended = deliveries.run({descriptor for descriptor, _ in poll.poll(30_000)})
    assert len(deliveries) == 1 and lives(second) and lives(child)
    os.kill(second, signal.SIGKILL)
    assert end(deliveries).letter == b"Z"


@pytest.mark.parametrize("noise", [b"did 1+0+0\n", b"3:did,x", b"\xff" * 100, b"5:did,", b"0:,0:,"])
def test_noise_on_a_delivery_s_pipe_is_a_deferral(tmp_path: Path, noise: bytes) -> None:
    def work(message: int) -> str:
        os.write(3, noise)
        os._exit(0)

    (tmp_path / "message").touch()
    verdict = run(work, tmp_path / "message")
    assert verdict == (b"Z", b"Delivery process said what cannot be understood. (#4.3.5)\n")


def test_noise_without_end_on_a_delivery_s_pipe_ends_it(tmp_path: Path) -> None:
    def work(message: int) -> str:
        while True:
            os.write(3, b"x" * FORWARD_MAX)

    (tmp_path / "message").touch()
    assert run(work, tmp_path / "message") == (b"Z", b"Delivery process ended by signal 9. (#4.3.0)\n")
