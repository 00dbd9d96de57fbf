"""Rare exit codes of queue-enqueue: 55 for a queue with a wrong layout, 81 for a bug."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from queue_base.home import Home
from support.inject.injectors import enqueue, inject, is_empty, run
from support.processes.suite import program

ENVELOPE = b"Fa@example.org\0Tb@example.net\0\0"
WITH_A_BUG = """
import os, sys
import queue_inject.enqueue as program
program.read_envelope = lambda source: [].pop()
os._exit(program.main(sys.argv))
"""


def remove_bucket(home: Home, kind: str) -> None:
    Path(home.queue, kind, "1").rmdir()


def remove_buckets(home: Home, kind: str) -> None:
    for bucket in Path(home.queue, kind).iterdir():
        bucket.rmdir()


def add_bucket(home: Home, kind: str) -> None:
    Path(home.queue, kind, "3").mkdir()


def remove(home: Home, kind: str) -> None:
    remove_buckets(home, kind)
    Path(home.queue, kind).rmdir()


@pytest.mark.parametrize(
    ("kind", "spoil"),
    [
        ("mess", remove_bucket),
        ("mess", remove_buckets),
        ("info", add_bucket),
        ("todo", remove_bucket),
        ("intd", remove),
    ],
)
def test_a_queue_whose_directories_do_not_fit_together_is_55(home: Home, kind: str, spoil: object) -> None:
    assert callable(spoil)
    spoil(home, kind)
    outcome = enqueue(home, b"x", ENVELOPE)
    assert outcome.code == 55, outcome
    assert outcome.error.startswith(b"queue-enqueue: fatal: unable to use " + os.fsencode(f"{home.queue}/"))


def test_a_queue_whose_layout_cannot_be_read_is_55(home: Home) -> None:
    remove(home, "mess")
    Path(home.queue, "mess").touch()
    outcome = enqueue(home, b"x", ENVELOPE)
    assert outcome.code == 55 and b"unable to read" in outcome.error
    assert inject(home, "b@example.net", message=b"\nx").code == 111


@pytest.mark.parametrize("word", ["--foo", "--home"])
def test_an_option_that_is_none_is_55(word: str) -> None:
    assert run([*program("queue-enqueue"), word]).code == 55


def test_a_bug_is_81_with_its_traceback_and_leaves_nothing(home: Home) -> None:
    words = [sys.executable, "-c", WITH_A_BUG, "--home", home.path]
    with open(os.devnull) as envelope:
        done = subprocess.run(words, input=b"x", stdout=envelope, stderr=subprocess.PIPE, check=False, timeout=60)
    assert done.returncode == 81
    assert b"IndexError" in done.stderr
    assert done.stderr.splitlines()[-1].startswith(b"queue-enqueue: fatal: unable to take the message: this is a bug")
    assert is_empty(home)


@pytest.mark.parametrize("number", [0, 1])
def test_a_descriptor_that_is_open_for_writing_alone_is_54_at_once(home: Home, number: int) -> None:
    # As in `queue-enqueue </dev/null | cat`: nothing would ever come from it.
    reader, writer = os.pipe()
    with open(os.devnull) as empty:
        descriptors = {0: empty.fileno(), 1: empty.fileno(), number: writer}
        done = subprocess.run(
            [*program("queue-enqueue"), "--home", home.path],
            stdin=descriptors[0], stdout=descriptors[1], stderr=subprocess.PIPE, check=False, timeout=30,
        )  # fmt: skip
    os.close(reader)
    os.close(writer)
    assert done.returncode == 54
    assert b"unable to use descriptor %d: bad file descriptor" % number in done.stderr
    assert is_empty(home)
