"""queuectl show --raw, long ids, and what is safe to print; transcripts/show.txt has the rest."""

import os
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_admin.printable import span, visible, word
from queue_wire.ids import pack_long_id
from support.processes.suite import program
from support.queues.listed_queue import BIRTH, Queue


def test_raw_is_the_message_byte_for_byte(queue: Queue) -> None:
    data = bytes(range(256)) * 9000 + b"no newline"
    message = queue.mess(data)
    words = [*program("queuectl"), "--home", queue.home.path, "show", "--raw", str(message)]
    assert subprocess.run(words, capture_output=True, check=True, timeout=60).stdout == data


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
