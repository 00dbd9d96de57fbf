"""A batch ends at the first temporary failure, unless a filter decides about each message by itself."""

import errno
import os
import re
import shlex
import socket
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_base.accounts import queue_owner
from queue_base.errors import REFUSED
from queue_base.home import Home
from queue_base.queue.layout import open_layout
from queue_base.queue.spreading import KEPT_MAX, open_spread
from queue_base.queue.writer import QueueWriter, Writer
from queue_inject.batch.done_messages import DoneMessages, unpack_done
from queue_inject.batch.injector import BatchInjector, Result
from queue_inject.batch.pieces import EndOfMessage
from queue_inject.drop import DropWriter
from queue_inject.filter import FilterWriter
from queue_inject.hand_in import IntakeWriter
from queue_wire.pipes.framing import pack_netstring
from support.inject.injectors import queued, states
from support.intake.scripted_intake import server
from support.processes.suite import program
from support.queues.home import make_home, make_several

PERMANENT_CODE = 31


def judging(home: Home, place: Path, codes: dict[int, int]) -> FilterWriter:
    """Return a writer with a filter that refuses some messages: `codes` has its exit codes by their numbers."""
    judge = place / "filter"
    cases = "".join(f"*'message {number - 1}') exit {code};; " for number, code in codes.items())
    queue = shlex.join([*program("queue-enqueue"), "--home", home.path])
    judge.write_text(f"#!/bin/sh\ntext=$(cat)\ncase $text in {cases}esac\nprintf '%s\\n' \"$text\" | {queue}\n")
    judge.chmod(0o755)
    return FilterWriter(home, "QUEUE_ENQUEUE", str(judge))


def take(injector: BatchInjector, count: int, large: int = -1) -> list[Result]:
    """Have a batch of so many messages injected in one group; return the results. One message may be large."""
    results: list[Result] = []
    for number in range(count):
        results += injector.take(b"message %d\n" % number)
        if number == large:
            results += injector.take(b"x" * KEPT_MAX)
        results += injector.take(EndOfMessage(b"a@b", [b"c@d"]))
    return results + injector.commit()


def inject(writer: Writer, count: int) -> tuple[BatchInjector, list[str]]:
    injector = BatchInjector(writer, None, DoneMessages())
    return injector, list(map(str, take(injector, count)))


def left_of(injector: BatchInjector) -> DoneMessages:
    """Return what --skip is to have, from the text of a batch that ended early, as a script reads it."""
    found = re.search(r"--skip (\S+) takes what is left", str(injector.stopped))
    assert found is not None, injector.stopped
    done = unpack_done(found[1])
    assert done is not None
    return done


def test_a_filter_that_refuses_one_message_leaves_the_others_alone(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home")

    injector, lines = inject(judging(home, tmp_path, {2: PERMANENT_CODE, 4: REFUSED}), 5)

    assert [line.split()[0] for line in lines] == ["ok", "failed", "ok", "failed", "ok"]
    assert lines[1].startswith("failed 2: ") and " it exited 31: " in lines[1]
    assert lines[3].startswith("failed 4: ") and " it exited 71: " in lines[3]
    assert (injector.worst, injector.failed, str(injector.done)) == (111, 2, "3,5")
    assert states(home) == {4: 3}


def test_trouble_of_the_queue_itself_ends_the_batch_with_what_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(handle: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    home = make_home(tmp_path / "home")
    injector = BatchInjector(QueueWriter(home, open_layout(home.queue), 7), None, DoneMessages())
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

    assert (injector.worst, injector.failed, str(injector.done)) == (100, 1, "5")


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

    injector = BatchInjector(QueueWriter(home, open_layout(home.queue), 7), None, DoneMessages())
    monkeypatch.setattr(os, "stat", look)
    for _ in range(3):
        for number in range(2):
            injector.take(b"message %d\n" % number)
            injector.take(EndOfMessage(b"a@b", [b"c@d"]))
        injector.commit()

    assert admitted == [0, 2, 4]


def test_what_one_queue_took_after_a_failure_of_the_other_is_named_and_not_queued_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = make_several(tmp_path / "home", "a", "b")
    real = os.fsync

    def fail(handle: int) -> None:
        if os.readlink(f"/proc/self/fd/{handle}").startswith(home.queues["a"] + "/"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(handle)

    monkeypatch.setattr(os, "fsync", fail)
    writer = open_spread(home, queue_owner(home), os.getuid())
    monkeypatch.setattr(writer, "_turn", 0)
    injector = BatchInjector(writer, None, DoneMessages())
    # The fourth message is in queue a, and too large to be moved to the other one.
    results = take(injector, 8, large=3)
    monkeypatch.setattr(os, "fsync", real)

    assert [result.number for result in results if result.exit_code] == [4]
    done = left_of(injector)
    assert str(done) == "3,5-8"
    again = BatchInjector(open_spread(home, queue_owner(home), os.getuid()), None, done)
    assert [result.number for result in take(again, 8, large=3)] == [4] and str(again.done) == "8"
    found = sorted(each.message.split(b"\n")[0] for one in home.each() for each in queued(one))
    assert found == [b"message %d" % number for number in range(8)]


def test_what_goes_to_maildrop_behind_a_message_of_which_nobody_knows_is_named_and_not_queued_again(
    tmp_path: Path,
) -> None:
    home = make_home(tmp_path / "home")
    injector = BatchInjector(IntakeWriter(home, DropWriter(home)), None, DoneMessages())

    def serve(connection: socket.socket) -> None:
        data = b""
        while data.count(b"message") < 2 or not data.endswith(b",,"):
            data += connection.recv(60)
        connection.sendall(pack_netstring(b"Kok 1 qp 2 457-abc"))

    def dropped() -> list[bytes]:
        drops = [path.read_bytes() for path in Path(home.queue, "maildrop").iterdir()]
        return sorted(drop.split(b"\n")[1] for drop in drops)

    with server(home, serve):
        results = take(injector, 6)

    # The kernel says that the end was not read, so all before it may have been; the last one was not.
    assert [result.number for result in results if result.exit_code] == [2, 3, 4, 5]
    assert dropped() == [b"message 5"]
    done = left_of(injector)
    assert str(done) == "1,6"
    again = BatchInjector(IntakeWriter(home, DropWriter(home)), None, done)
    assert [result.number for result in take(again, 6)] == [2, 3, 4, 5] and str(again.done) == "6"
    assert dropped() == [b"message %d" % number for number in range(1, 6)]


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(0, 5)), max_size=12), st.integers(0, 5))
def test_done_messages_are_those_that_were_added_and_their_text_names_them(
    ranges: list[tuple[int, int]], first: int
) -> None:
    done, expected = DoneMessages(first), set(range(first + 1))
    for low, more in ranges:
        done.add(low, low + more)
        expected.update(range(low, low + more + 1))
        again = unpack_done(str(done))
        assert again is not None and str(again) == str(done)
        assert {number for number in range(50) if number in again} == expected


@pytest.mark.parametrize("text", ["", "x", "-1", "1,", "1,0", "1,5-3", "1-2", "1,2-", "\u0661", "1" * 19, "1,,2", " 1"])
def test_what_names_no_messages_is_refused(text: str) -> None:
    assert unpack_done(text) is None
