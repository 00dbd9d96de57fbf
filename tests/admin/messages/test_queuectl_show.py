"""queuectl show: one message, whole, safe to print; a long id never shows a later message."""

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_admin.printable import span, visible, word
from queue_wire.failures import pack_failure
from queue_wire.ids import pack_long_id
from support.processes.suite import program
from support.queues.listed_queue import BIRTH, SOON, Queue


@pytest.fixture
def queue(tmp_path: Path) -> Queue:
    return Queue(tmp_path / "home")


def test_everything_about_a_message_is_shown(queue: Queue, capsys: pytest.CaptureFixture[str]) -> None:
    message = queue.classified(b"a@b", b"Dx@y\0Tz@y\0", b"Tr@s\0Dgone@s\0", SOON)
    failed = pack_failure(b"gone@s", b"550 no such user\nhere")
    queue.put(queue.layout.bounce(message), failed + b"<torn@s>:\nhalf")
    queue.put(queue.layout.hashed("hold", message), b"why not\n")
    assert queue.run("show", str(message)) == 0
    found = capsys.readouterr().out.splitlines()
    bucket = message % 23
    files = " ".join(f"{kind}/{bucket}/{message}" for kind in ("mess", "info", "local", "remote"))
    assert found[0] == f"message: {pack_long_id(message, BIRTH)}"
    assert found[1] == "state: classified"
    assert found[2].startswith("birth: 2023-11-14T22:13:20Z, ")
    assert found[3:] == [
        "bytes: 18",
        f"files: {files} bounce/{message}",
        "sender: <a@b>",
        "held: why not",
        "now: queue-send does not run; nothing is tried",
        "local: 1 done, 1 left; next attempt 2096-10-02T07:06:40Z",
        "  done <x@y>",
        "  pending <z@y>",
        "remote: 1 done, 1 left; next attempt 2096-10-02T07:06:40Z",
        "  pending <r@s>",
        "  done <gone@s>",
        "failed: <gone@s>: 550 no such user / here",
        "header:",
        "  Subject: x",
    ]


def test_a_message_not_yet_classified_shows_its_envelope(queue: Queue, capsys: pytest.CaptureFixture[str]) -> None:
    message = queue.queued(b"", (b"c@d", b"e@f"))
    assert queue.run("show", pack_long_id(message, BIRTH)) == 0
    found = capsys.readouterr().out.splitlines()
    assert {"state: queued", "injected by uid: 1", "sender: <>", "  pending <c@d>", "  pending <e@f>"} <= set(found)


@pytest.mark.parametrize("data", [b"", b"\nbody", b"A: 1\nB: 2", b"A: \x1b[2J\xc3\xa9\xff\r\n\tfolded\n\nbody"])
def test_the_header_ends_at_the_empty_line_and_is_safe_to_print(
    queue: Queue, capsys: pytest.CaptureFixture[str], data: bytes
) -> None:
    message = queue.mess(data)
    assert queue.run("show", str(message)) == 0
    shown = capsys.readouterr().out.split("header:\n")[1]
    assert shown == {
        b"A: 1\nB: 2": "  A: 1\n  B: 2\n",
        b"A: \x1b[2J\xc3\xa9\xff\r\n\tfolded\n\nbody": "  A: \\x1b[2Jé\\xff\\r\n   folded\n",
    }.get(data, "")


def test_raw_is_the_message_byte_for_byte(queue: Queue) -> None:
    data = bytes(range(256)) * 9000 + b"no newline"
    message = queue.mess(data)
    words = [*program("queuectl"), "--home", queue.home.path, "show", "--raw", str(message)]
    assert subprocess.run(words, capture_output=True, check=True, timeout=60).stdout == data


def test_a_long_id_of_an_earlier_message_is_no_such_message(queue: Queue, capfd: pytest.CaptureFixture[str]) -> None:
    message = queue.queued()
    old = pack_long_id(message, BIRTH - 1)
    assert queue.run("show", old) == 1
    shown = capfd.readouterr()
    assert shown.out == ""
    assert shown.err == (
        f"queuectl: fatal: unable to find message {old}: no such message"
        f" (inode reused by {pack_long_id(message, BIRTH)})\n"
    )


def test_the_long_id_is_the_same_before_and_after_classification(
    queue: Queue, capsys: pytest.CaptureFixture[str]
) -> None:
    message = queue.queued()
    queue.put(queue.layout.hashed("info", message), b"Fa@b\0")
    os.utime(queue.layout.mess(message), ns=(BIRTH * 1000 + 999, BIRTH * 1000 + 999))
    assert queue.run("show", pack_long_id(message, BIRTH)) == 0
    os.unlink(queue.layout.todo(message))
    assert queue.run("show", pack_long_id(message, BIRTH)) == 0
    capsys.readouterr()


@pytest.mark.parametrize(
    ("name", "text", "code"),
    [("12345", "no such message", 1), ("x", "not a message id", 100), ("5-", "INODE-BIRTH", 100)],
)
def test_what_is_not_there_is_exit_1_and_what_is_no_id_100(
    queue: Queue, capfd: pytest.CaptureFixture[str], name: str, text: str, code: int
) -> None:
    assert queue.run("show", name) == code
    assert text in capfd.readouterr().err


def test_a_corrupt_message_shows_why_and_what_can_be_read(queue: Queue, capsys: pytest.CaptureFixture[str]) -> None:
    message = queue.queued()
    queue.put(queue.layout.todo(message), b"u1\0p2\0Fa@b\0Xc@d\0")
    queue.put(queue.layout.hashed("corrupt", message), b"envelope: unknown record\n")
    assert queue.run("show", str(message)) == 0
    found = capsys.readouterr().out
    assert "corrupt: envelope: unknown record\n" in found
    assert f"unreadable: todo/{message % 23}/{message}: envelope: unknown record" in found
    assert "  Subject: x\n" in found


@given(st.binary())
def test_what_is_printed_never_holds_a_control_character(data: bytes) -> None:
    assert visible(data).isprintable()
    assert word(data).isprintable() and " " not in word(data)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-5, "0s"), (59.9, "59s"), (60, "1m"), (3599, "59m"), (3660, "1h01m"), (86400, "1d0h"), (90061, "1d1h")],
)
def test_a_length_of_time_has_its_two_largest_units(seconds: float, text: str) -> None:
    assert span(seconds) == text
