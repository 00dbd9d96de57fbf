"""The process of a delivery, whatever happens in it: its end, its time limit, its descriptors, its report."""

import os
import signal
import time
from pathlib import Path

import pytest

from queue_base.errors import Permanent
from queue_local.deliveries import Deliveries
from queue_local.result import TEXT_MAX, Outcome
from queue_wire.pipes.job import Job
from support.local.deliveries import JOB, SECONDS, finish, outcome_of, run


def test_an_unexpected_error_defers_with_its_reason(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "message").touch()
    letter, text = run(lambda message: str(1 // message), tmp_path / "message")
    assert letter == b"Z"
    assert text == b"Internal error: ZeroDivisionError: integer division or modulo by zero. (#4.3.0)\n"
    assert "queue-local: alert: internal error in a delivery: ZeroDivisionError" in capfd.readouterr().err


def test_a_process_that_dies_by_a_signal_defers(tmp_path: Path) -> None:
    def work(message: int) -> str:
        os.kill(os.getpid(), signal.SIGKILL)
        return ""

    (tmp_path / "message").touch()
    assert run(work, tmp_path / "message") == (b"Z", b"Delivery process ended by signal 9. (#4.3.0)\n")


def test_a_process_that_just_ends_defers(tmp_path: Path) -> None:
    (tmp_path / "message").touch()
    verdict = run(lambda message: os._exit(3), tmp_path / "message")
    assert verdict == (b"Z", b"Delivery process ended without a word, exit code 3. (#4.3.0)\n")


def test_term_for_the_group_of_queue_local_as_a_delivery_is_forked_does_not_end_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = os.setsid

    def setsid() -> None:
        os.kill(os.getpid(), signal.SIGTERM)  # As kill(-PGID): the sender is not queue-local.
        before()

    monkeypatch.setattr(os, "setsid", setsid)
    (tmp_path / "message").touch()
    assert run(lambda message: "did 1+0+0", tmp_path / "message") == (b"K", b"did 1+0+0\n")


def test_a_delivery_that_is_told_to_end_as_it_is_forked_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = os.setsid

    def setsid() -> None:
        while signal.SIGTERM not in signal.sigpending():
            time.sleep(0.01)
        before()

    monkeypatch.setattr(os, "setsid", setsid)
    message = tmp_path / "message"
    message.touch()
    deliveries = Deliveries(1)
    with message.open("rb") as file:
        deliveries.start(JOB, outcome_of(lambda message: "did 1+0+0"), file.fileno(), SECONDS)
    deliveries.finish(0)
    (ended,) = finish(deliveries)
    assert (ended.letter, ended.text) == (b"Z", b"Delivery process was told to end. (#4.3.0)\n")


def test_a_delivery_over_its_time_defers_after_cleaning_up(tmp_path: Path) -> None:
    message, trace = tmp_path / "message", tmp_path / "cleaned"
    message.touch()

    def work(message: int) -> str:
        try:
            signal.pause()
        finally:
            trace.touch()
        return ""

    assert run(work, message, seconds=1) == (b"Z", b"Timeout on delivery. (#4.3.0)\n")
    assert trace.exists()


def test_a_delivery_that_cannot_be_interrupted_is_killed(tmp_path: Path) -> None:
    def work(message: int) -> str:
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
        signal.pause()
        return ""

    (tmp_path / "message").touch()
    verdict = run(work, tmp_path / "message", seconds=1, grace=0.1)
    assert verdict == (b"Z", b"Delivery process ended by signal 9. (#4.3.0)\n")


def test_of_a_long_reason_the_beginning_and_the_end_are_kept(tmp_path: Path) -> None:
    def work(message: int) -> str:
        raise Permanent("b" + "x" * 100_000 + "e")

    (tmp_path / "message").touch()
    letter, text = run(work, tmp_path / "message")
    assert letter == b"D" and len(text) == TEXT_MAX
    assert text.startswith(b"bx") and b"x\n[...]\nx" in text and text.endswith(b"xe\n")


def test_a_delivery_holds_no_descriptor_but_its_own(tmp_path: Path) -> None:
    held = [os.open("/dev/null", os.O_RDONLY) for _ in range(40)]

    def work(message: int) -> str:
        links = [(int(path.name), path) for path in Path("/proc/self/fd").iterdir() if path.exists()]
        names = " ".join(str(path.readlink()) for number, path in sorted(links) if number < 2)
        return f"{names} {sorted(number for number, _ in links)}"

    (tmp_path / "message").touch()
    letter, text = run(work, tmp_path / "message")
    for descriptor in held:
        os.close(descriptor)
    assert (letter, text) == (b"K", f"{tmp_path}/message /dev/null [0, 1, 2, 3]\n".encode())


def test_each_of_many_deliveries_has_its_own_report(tmp_path: Path) -> None:
    (tmp_path / "message").touch()
    deliveries = Deliveries(40)
    with (tmp_path / "message").open("rb") as file:
        for number in range(40):
            job = Job(number, JOB.path, b"", b"x@y", [b"x@y"])
            text = f"text {number}"
            deliveries.start(job, lambda message, text=text: Outcome(text), file.fileno(), SECONDS)  # type: ignore[misc]
    assert (len(deliveries), deliveries.room) == (40, 0)
    ends = {ended.job.number: (ended.letter, ended.text) for ended in finish(deliveries)}
    assert ends == {number: (b"K", b"text %d\n" % number) for number in range(40)}
