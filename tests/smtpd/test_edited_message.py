"""Messages that filters look at: their text in memory or in a file, their headers and how they are changed."""

import os
import time
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_smtpd.milter import message_spool
from queue_smtpd.milter.edited_message import (
    HEADER_MAX,
    EditedMessage,
    Found,
    Steps,
    field_name,
    find_header_fault,
    parse_header,
)
from queue_smtpd.milter.message_spool import PIECE, MessageSpool, SpoolMemory
from queue_smtpd.milter.milter_client import HeaderEdit

RECEIVED = b"Received: from x\n  by y\n"


def run_steps(steps: Steps[Found]) -> Found:
    """Do all the work of some steps; return what they return."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: Found = end.value
            return found


def spooled(text: bytes, memory: SpoolMemory | None = None) -> MessageSpool:
    spool = MessageSpool(memory or SpoolMemory())
    spool.add(text)
    return spool


def edited(spool: MessageSpool) -> EditedMessage:
    return EditedMessage(RECEIVED, run_steps(parse_header(spool.head(HEADER_MAX))), spool)


@given(st.binary(max_size=200), st.lists(st.integers(0, 200)))
def test_a_message_that_is_not_changed_is_the_same(text: bytes, cuts: list[int]) -> None:
    spool = MessageSpool(SpoolMemory())
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    for begin, end in pairwise(places):
        spool.add(text[begin:end])
    message = edited(spool)
    assert b"".join(message.pieces()) == RECEIVED + text
    raw = b"".join(message.fields)
    assert raw + message.header.separator + b"".join(message.body_pieces()) == text


def test_a_large_text_is_in_a_file_without_a_name_and_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    memory = SpoolMemory()
    spool = MessageSpool(memory)
    piece = bytes(range(1, 200)) * 200
    for _ in range(20):
        spool.add(piece)
    assert spool.size == 20 * len(piece) > message_spool.KEPT and memory.used == 0
    pieces = list(spool.pieces(3))
    assert b"".join(pieces) == (piece * 20)[3:] and max(map(len, pieces)) <= PIECE
    assert spool.head(5) == piece[:5] and not os.listdir(tmp_path)
    spool.close()


def test_small_texts_are_in_memory_until_all_have_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_spool, "ALL_KEPT", 100)
    memory = SpoolMemory()
    first, second = spooled(b"x" * 80, memory), spooled(b"y" * 30, memory)
    assert memory.used == 80
    assert [b"".join(each.pieces()) for each in (first, second)] == [b"x" * 80, b"y" * 30]
    first.close()
    second.close()
    assert memory.used == 0


def test_a_disk_that_is_full_and_a_text_that_is_too_large_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    large = MessageSpool(SpoolMemory(), 10)
    large.add(b"x" * 11)
    assert (large.failed, large.why) == (True, "it is too large")
    monkeypatch.setattr("tempfile.tempdir", "/proc/none")
    monkeypatch.setattr(message_spool, "KEPT", 5)
    memory = SpoolMemory()
    spool = spooled(b"12345", memory)
    spool.add(b"6")
    assert (spool.failed, spool.why) == (True, "no such file or directory") and memory.used == 0
    spool.add(b"7")


def test_a_message_leaves_room_on_the_disk_for_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    disk = os.statvfs(tmp_path)
    monkeypatch.setattr(message_spool, "FREE_MIN", disk.f_blocks * disk.f_frsize)
    spool = spooled(b"x" * message_spool.KEPT)
    assert not spool.failed
    spool.add(b"x")
    assert (spool.failed, spool.why) == (True, "no space left on device")


EDITS = st.builds(
    HeaderEdit,
    st.sampled_from([b"A", b"B", b"Received"]),
    st.binary(max_size=12).map(lambda data: data.replace(b"\0", b"")),
    st.none() | st.integers(0, 5),
    st.booleans(),
)


@given(st.lists(EDITS, max_size=6))
def test_whatever_is_changed_the_header_stays_one_and_the_body_the_same(edits: list[HeaderEdit]) -> None:
    message = edited(spooled(b"A: 1\nB: 2\n 3\n\nbody\n\nX: y\n"))
    run_steps(message.edit_header(edits))
    found = run_steps(parse_header(b"".join(message.pieces())))
    assert found.separator == b"\n"
    assert {field_name(field) for field in found.fields} <= {b"A", b"B", b"Received"}
    assert RECEIVED in found.fields
    assert b"".join(message.pieces())[found.body :] == b"body\n\nX: y\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"A: 1", b"A: 1\nX: y\n\n"),
        (b"A: 1\nno field\n", b"A: 1\nX: y\n\nno field\n"),
        (b" body\n", b"X: y\n\n body\n"),
    ],
)
def test_a_new_field_is_one_also_where_the_header_has_no_end(text: bytes, expected: bytes) -> None:
    message = edited(spooled(text))
    run_steps(message.edit_header([HeaderEdit(b"X", b" y")]))
    assert b"".join(message.pieces()) == RECEIVED + expected


def test_a_header_of_many_lines_is_parsed_and_changed_in_one_pass() -> None:
    def seconds(count: int) -> float:
        begun = time.process_time()
        parsed = run_steps(parse_header(b"A: 1\n" + b" x\n" * count))
        assert len(parsed.fields) == 1 and len(parsed.fields[0]) == 5 + 3 * count
        message = edited(spooled(b"A: 1\n" * (count // 100) + b"B: 2\n" * (count // 5)))
        edits = [HeaderEdit(b"a", b"", number, True) for number in range(count // 100, 0, -1)]
        run_steps(message.edit_header(edits))
        assert len(list(message.fields)) == count // 5
        return time.process_time() - begun

    small = min(seconds(20_000) for _ in range(3))
    assert seconds(160_000) < 24 * small


def longest(steps: Steps[Found]) -> tuple[Found, float]:
    """Return what some steps return, and the seconds of the longest one."""
    seconds = 0.0
    while True:
        begun = time.thread_time()
        try:
            next(steps)
        except StopIteration as end:
            found: Found = end.value
            return found, max(seconds, time.thread_time() - begun)
        seconds = max(seconds, time.thread_time() - begun)


@pytest.mark.parametrize("line", [b"A:\n", b"A: 1\n" + b" x\n" * 300_000, b"A: " + b"x" * 990 + b"\n"])
def test_no_step_on_a_large_header_takes_long(line: bytes) -> None:
    """A turn has 20 ms."""
    text = b"From: a@b\nDate: now\nSubject: x\n" + line * ((1 << 20) // len(line)) + b"\n"
    header, parsing = longest(parse_header(text))
    fault, looking = longest(find_header_fault(header, len(text), False))
    spool = spooled(text)
    message = EditedMessage(RECEIVED, header, spool)
    edits = [HeaderEdit(b"Subject", b" y", 1, True), HeaderEdit(b"B", b" z", 1), HeaderEdit(b"C", b" z", 1, True)]
    _, editing = longest(message.edit_header(edits))
    assert max(parsing, looking, editing) < 0.02 and not fault
    whole = b"".join(message.pieces())
    assert whole.startswith(RECEIVED + b"B: z\nFrom: a@b\nDate: now\nSubject: y\nA:") and whole.endswith(b"\nC: z\n\n")
    spool.close()


def test_a_new_body_has_an_empty_line_before_it() -> None:
    message = edited(spooled(b"A: 1\nno field\n"))
    message.replace_body(spooled(b"new\n"))
    assert b"".join(message.pieces()) == RECEIVED + b"A: 1\n\nnew\n"
    message.close()


GOOD = b"From: a@b\nDate: now\nSubject: x\n"


@pytest.mark.parametrize(
    ("text", "utf8", "fault"),
    [
        (GOOD + b"\nbody", False, b""),
        (GOOD, False, b""),
        (b"From: a@b\n\n", False, b"no-date"),
        (b"Date: now\n\n", False, b"no-from"),
        (GOOD + b"SUBJECT: y\n\n", False, b"two-subject"),
        (GOOD + b"not a field\n\n", False, b"line-that-is-no-field"),
        (GOOD + b"To: \xc3\xa4@b\n\n", False, b"bytes-in-to"),
        (GOOD + b"To: \xc3\xa4@b\n\n", True, b""),
        (GOOD + b"To: a\0@b\n\n", True, b"bytes-in-to"),
        (GOOD + b"To: " + b"x" * 995 + b"\n\n", False, b"long-line-in-to"),
    ],
)
def test_what_breaks_the_standard_is_named(text: bytes, utf8: bool, fault: bytes) -> None:
    assert run_steps(find_header_fault(run_steps(parse_header(text)), len(text), utf8)) == fault
