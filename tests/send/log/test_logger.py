"""queue-send and a logger that does not read, is gone, or takes nothing: mail goes on and no line is lost."""

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from queue_base.home import Home
from queue_send.log import Log
from support.queues.queued import classified_message
from support.send.scripted_send import ScriptedSend


def test_a_logger_that_does_not_read_stops_no_report_and_loses_no_line(home: Home) -> None:
    Path(home.control, "concurrencyremote").write_text("5000\n")
    count = 1000
    with ScriptedSend(home, ready=False) as send:
        send.remote.ready(5000)
        message = classified_message(home, remote=[b"%d@%d.example" % (number, number) for number in range(count)])
        send.todo.classified(message)
        jobs = [send.remote.job() for _ in range(count)]
        # 1,000 lines of 1,000 bytes: far more than the pipe holds, and nobody has read one yet.
        for job in jobs:
            send.remote.report(job, b"K" + b"x" * 2000)
        assert send.clean.removed() == message
        send.signal(signal.SIGTERM)
        assert send.wait() == 0
        assert send.found(r"starting delivery .*") == [
            f"starting delivery {number + 1}: msg {message} to remote {number}@{number}.example"
            for number in range(count)
        ]
        results = [line for line in send.lines if line.startswith("delivery ")]
        assert [int(line.split()[1][:-1]) for line in results] == list(range(1, count + 1))
        assert {len(line) for line in results} == {1000}


def test_a_logger_that_is_gone_does_not_stop_the_mail(home: Home) -> None:
    with ScriptedSend(home) as send:
        send.fence()
        os.close(send.stdout)
        send.stdout = os.open(os.devnull, os.O_RDONLY)
        message = classified_message(home, remote=[b"b@c"])
        send.todo.classified(message)
        send.remote.deliver(b"Kok")
        assert send.clean.removed() == message
        send.signal(signal.SIGTERM)
        assert send.wait(read_log=False) == 0


@pytest.fixture(params=["a full disk", "a logger that does not read"])
def stuck(request: pytest.FixtureRequest) -> Iterator[int]:
    """A stdout that takes nothing."""
    if request.param == "a full disk":
        ends = [os.open("/dev/full", os.O_WRONLY | os.O_CLOEXEC)]
    else:
        ends = list(os.pipe2(os.O_CLOEXEC))
        os.set_blocking(ends[1], False)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(ends[1], b"x" * 4096)
        os.set_blocking(ends[1], True)
    yield ends[-1]
    for end in ends:
        os.close(end)


def test_term_ends_it_though_nobody_takes_its_log_and_what_was_done_is_not_repeated(
    home: Home, monkeypatch: pytest.MonkeyPatch, stuck: int
) -> None:
    monkeypatch.setenv("QUEUE_LOG_WAIT", "0.5")
    message = classified_message(home, remote=[b"b@c", b"d@e"])
    with ScriptedSend(home, stdout=stuck) as send:
        send.todo.classified(message)
        first, second = send.remote.job(), send.remote.job()
        send.remote.report(first, b"Kok")
        send.signal(signal.SIGTERM)
        send.remote.report(second, b"Kok")
        assert send.wait(read_log=False) == 111
        assert b"bytes, and what follows, are lost" in send.stderr()
        assert send.clean.asked() == message


def test_a_stdout_that_takes_nothing_after_all_loses_no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    # Another process that shares stdout may have made it non-blocking.
    def refuse(descriptor: int, data: bytes) -> int:
        raise BlockingIOError

    reader, writer = os.pipe()
    log = Log(writer)
    log.put(b"status: one")
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", refuse)
        log.run({}, 0.0)
    log.put(b"status: two")
    log.finish()
    assert os.read(reader, 100) == b"status: one\nstatus: two\n"
    os.close(reader)
    os.close(writer)
