"""queue-send and a logger that does not read, is gone, or takes nothing: mail goes on and no line is lost."""

import os
import signal
from pathlib import Path

import pytest

from queue_base.home import Home
from queue_send.log import Log
from support.queued import classified_message
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
