"""A batch ends at the first temporary failure, unless a filter decides about each message by itself."""

import errno
import os
import shlex
from pathlib import Path
from typing import Any

import pytest

from queue_base.errors import REFUSED
from queue_base.home import Home
from queue_base.queue.layout import open_layout
from queue_base.queue.writer import QueueWriter, Writer
from queue_inject.batch.injector import BatchInjector, Result
from queue_inject.batch.pieces import EndOfMessage
from queue_inject.filter import FilterWriter
from support.inject.injectors import queued, states
from support.processes.suite import program
from support.queues.home import make_home

PERMANENT_CODE = 31


def judging(home: Home, place: Path, codes: dict[int, int]) -> FilterWriter:
    """Return a writer with a filter that refuses some messages: `codes` has its exit codes by their numbers."""
    judge = place / "filter"
    cases = "".join(f"*'message {number - 1}') exit {code};; " for number, code in codes.items())
    queue = shlex.join([*program("queue-enqueue"), "--home", home.path])
    judge.write_text(
        f"#!/bin/sh\ntext=$(cat)\ncase $text in {cases}esac\nprintf '%s\\n' \"$text\" | {queue}\n"
    )
    judge.chmod(0o755)
    return FilterWriter(home, "QUEUE_ENQUEUE", str(judge))


def inject(writer: Writer, count: int) -> tuple[BatchInjector, list[str]]:
    injector = BatchInjector(writer, None, 0)
    results: list[Result] = []
    for number in range(count):
        results += injector.take(b"message %d\n" % number)
        results += injector.take(EndOfMessage(b"a@b", [b"c@d"]))
    results += injector.commit()
    return injector, list(map(str, results))


def test_a_filter_that_refuses_one_message_leaves_the_others_alone(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home")

    injector, lines = inject(judging(home, tmp_path, {2: PERMANENT_CODE, 4: REFUSED}), 5)

    assert [line.split()[0] for line in lines] == ["ok", "failed", "ok", "failed", "ok"]
    assert lines[1].startswith("failed 2: ") and " it exited 31: " in lines[1]
    assert lines[3].startswith("failed 4: ") and " it exited 71: " in lines[3]
    assert (injector.worst, injector.failed, injector.done) == (111, 2, 3)
    assert states(home) == {4: 3}


def test_trouble_of_the_queue_itself_ends_the_batch_with_what_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(handle: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    home = make_home(tmp_path / "home")
    injector = BatchInjector(QueueWriter(home, open_layout(home.queue), 7), None, 0)
    lines: list[str] = []
    for number in range(5):
        if number == 2:
            monkeypatch.setattr(os, "fsync", refuse)
        assert injector.take(b"message %d\n" % number) == []
        assert injector.take(EndOfMessage(b"a@b", [b"c@d"])) == []
        lines += map(str, injector.commit())
        if injector.stopped is not None:
            break

    assert injector.stopped is not None and "--skip 2 takes what is left" in str(injector.stopped)
    assert injector.stopped.exit_code == 111 and [line.split()[0] for line in lines] == ["ok", "ok", "failed"]
    assert sorted(each.message for each in queued(home)) == [b"message 0\n", b"message 1\n"]


def test_a_result_is_one_line_whatever_the_reason_holds() -> None:
    assert str(Result(3, None, ValueError("a\r\nb"))) == "failed 3: a  b"


def test_a_failure_for_good_counts_as_done(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home")

    injector, _ = inject(judging(home, tmp_path, {5: PERMANENT_CODE}), 5)

    assert (injector.worst, injector.failed, injector.done) == (100, 1, 5)


def test_each_group_is_admitted_once_also_after_a_pause_of_the_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = make_home(tmp_path / "home")
    admitted = []
    real = os.stat

    def look(path: str, **more: Any) -> os.stat_result:
        if path == f"{home.queue}/lock/slow":
            admitted.append(len(queued(home)))
        return real(path, **more)

    injector = BatchInjector(QueueWriter(home, open_layout(home.queue), 7), None, 0)
    monkeypatch.setattr(os, "stat", look)
    for _ in range(3):
        for number in range(2):
            injector.take(b"message %d\n" % number)
            injector.take(EndOfMessage(b"a@b", [b"c@d"]))
        injector.commit()

    assert admitted == [0, 2, 4]
