"""queue-send's log on a stdout that fails: what a full disk refuses is kept, what nobody reads is dropped."""

import os
import select
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from queue_send import log as module
from queue_send.log import Log

LINES = [b"line %d " % number + b"x" * 200 for number in range(300)]


@pytest.fixture
def stdout() -> Iterator[int]:
    """A descriptor that refuses every write as a full disk does."""
    descriptor = os.open("/dev/full", os.O_WRONLY | os.O_CLOEXEC)
    yield descriptor
    os.close(descriptor)


def filled(descriptor: int, exit_wait: float = module.EXIT_WAIT) -> Log:
    """Return a log with LINES that has had one turn."""
    log = Log(descriptor, exit_wait)
    for line in LINES:
        log.put(line)
    log.run({}, 0.0)
    return log


def make_room(descriptor: int, path: Path) -> None:
    """Put a file that takes writes in the place of the full one."""
    new = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC)
    os.dup2(new, descriptor, inheritable=False)
    os.close(new)


def write_all(log: Log) -> None:
    """Give the log turns until it waits for nothing."""
    end = time.monotonic() + 60
    while (wait := log.prepare(select.poll(), 0.0)) < 3600 or log.full:
        assert time.monotonic() < end
        select.select([], [], [], wait)
        log.run({}, 0.0)
    for _ in LINES:
        log.run({}, 0.0)


def test_lines_that_a_full_disk_refuses_are_written_once_it_has_room(
    stdout: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RETRY", 0.1)
    log = filled(stdout)
    make_room(stdout, tmp_path / "log")
    write_all(log)
    assert (tmp_path / "log").read_bytes() == b"".join(line + b"\n" for line in LINES)


def test_a_full_disk_does_not_keep_the_loop_busy(stdout: int) -> None:
    log = filled(stdout)
    poll = select.poll()
    assert 0 < log.prepare(poll, 0.0) <= module.RETRY
    assert poll.poll(0) == []


def test_a_full_disk_stops_new_deliveries_when_too_many_lines_are_held(stdout: int) -> None:
    log = filled(stdout)
    assert not log.full
    for _ in range(5):
        for line in LINES:
            log.put(line)
        log.run({}, 0.0)
    assert log.full


def test_a_full_disk_is_told_on_stderr_once(
    stdout: int, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RETRY", 0.1)
    log = filled(stdout)
    end = time.monotonic() + 60
    while log.prepare(select.poll(), 0.0) > 0:
        assert time.monotonic() < end
    log.run({}, 0.0)
    assert capfd.readouterr().err == (
        "queue-send: alert: unable to write the log: no space left on device; lines are kept, mail may wait\n"
    )


def test_the_end_does_not_wait_for_ever_for_a_full_disk(stdout: int, capfd: pytest.CaptureFixture[str]) -> None:
    filled(stdout, 0.2).finish()
    assert "its last" in capfd.readouterr().err


def test_the_end_does_not_wait_for_ever_for_a_logger_that_does_not_read(
    capfd: pytest.CaptureFixture[str],
) -> None:
    reader, writer = os.pipe()
    log = filled(writer, 0.2)
    for line in LINES:
        log.put(line)
    log.finish()
    assert log.given_up and "its last" in capfd.readouterr().err
    log.put(b"status: exiting")
    assert log.unwritten == 0 and not log.full and log.has_written(log.position)
    os.close(reader)
    os.close(writer)


def test_a_logger_that_takes_a_little_now_and_then_loses_no_line() -> None:
    reader, writer = os.pipe()
    log = filled(writer, 0.3)
    for line in LINES * 2:
        log.put(line)
    end, taken = time.monotonic() + 1.0, b""
    while time.monotonic() < end:
        log.limit_wait()
        taken += os.read(reader, 4096)
        log.run({}, 0.0)
        time.sleep(0.05)
    assert not log.given_up and log.unwritten
    assert (b"".join(line + b"\n" for line in LINES) * 3).startswith(taken)
    os.close(reader)
    os.close(writer)


def test_lines_for_a_logger_that_is_gone_are_dropped() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    log = filled(writer)
    log.finish()
    assert not log.full and log.prepare(select.poll(), 0.0) == 3600.0
    os.close(writer)
