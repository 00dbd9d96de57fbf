"""sendmail removes CRs before LFs, mbox lines at the beginning, and a lone dot with what follows it; nothing else."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_inject.sendmail.standard_input import read_message

FROM = b"From ann@example.org Thu Jan  1 00:00:00 1970\n"
CASES = [
    (b"", b""),
    (b"a\n.\nb\n", b"a\n"),
    (b".\na\n", b""),
    (b".", b""),
    (b"a\n.", b"a\n"),
    (b"a\n..\n.a\n .\n. \na.\n", None),
    (b"a\n\n", None),
    (b"no newline", None),
    (b"a\r\n.\r\nb", b"a\n"),
    (b"a\r\nb\nc\r\r\nd\re\n\r", b"a\nb\nc\r\nd\re\n\r"),
    (FROM + b"a\n", b"a\n"),
    (FROM + b">From b\n>From c\na\n>From d\n" + FROM, b"a\n>From d\n" + FROM),
    (FROM[:-1] + b"\r\na\r\n", b"a\n"),
    (FROM[:-1], b""),
    (b"From b0a6d6cb7d5e0dd5c3f2b1c2a9a3c6f2b7d1c2e3 Mon Sep 17 00:00:00 2001\nFrom: a\n", b"From: a\n"),
    (b"From now on it is text.\n", None),
    (b">From the top\n", None),
    (b"From: ann\n", None),
    (b"Fro", None),
    (b"From ann Thu Jan  1" + b" " * 5000 + b"00:00:00 1970\nb", None),
]


@pytest.mark.parametrize(("data", "expected"), CASES)
def test_the_message_is_the_same_however_its_bytes_arrive(data: bytes, expected: bytes | None) -> None:
    expected = data if expected is None else expected

    assert b"".join(read_message([data], True)) == expected
    for place in range(len(data)):
        assert b"".join(read_message([data[:place], data[place:]], True)) == expected
    assert b"".join(read_message([data[place : place + 1] for place in range(len(data))], True)) == expected


def plainly(data: bytes, dot_ends: bool) -> bytes:
    """Return the message that sendmail must make of these bytes, computed line by line."""
    lines = data.replace(b"\r\n", b"\n").split(b"\n")
    if lines[0].startswith(b"From ") and b"00:00:00" in lines[0]:
        lines = lines[1:]
        while lines and lines[0].startswith(b">From "):
            lines = lines[1:]
    if dot_ends and b"." in lines:
        lines = [*lines[: lines.index(b".")], b""]
    return b"\n".join(lines)


@given(
    st.lists(st.sampled_from([b"\r", b"\n", b".", b"a", b"From ", b">From x\n", FROM, b"\0", b"\xff"])),
    st.lists(st.integers(0, 60)),
    st.booleans(),
)
def test_any_bytes_in_any_pieces_come_out_as_a_reading_by_lines_has_them(
    parts: list[bytes], cuts: list[int], dot_ends: bool
) -> None:
    data = b"".join(parts)
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    pieces = [data[start:end] for start, end in pairwise(places)]

    assert b"".join(read_message(pieces, dot_ends)) == plainly(data, dot_ends)


def test_nothing_after_the_dot_is_read() -> None:
    pieces = iter([b"a\n.", b"\nb", b"c"])

    assert b"".join(read_message(pieces, True)) == b"a\n" and list(pieces) == [b"c"]


def test_with_i_a_dot_is_a_line_like_any_other() -> None:
    assert b"".join(read_message([b"a\n.\nb\n."], False)) == b"a\n.\nb\n."
