"""What SMTP has to know of a message, found in chunks: 8-bit bytes in header and body, and lines that are too long."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_wire.dotstuff import normalize
from queue_wire.message_facts import Facts, Scan

PIECES = st.sampled_from([b"\n", b"\r\n", b"\r", b"a", b"\xe9", b"b" * 990, b"c" * 998, b"A: b\n"])


def scan(*chunks: bytes, lines: bool = True) -> Facts:
    found = Scan(lines)
    for chunk in chunks:
        found.feed(chunk)
    return found.facts()


def expect(message: bytes) -> Facts:
    """The same by the book, on the lines that leave."""
    lines = normalize(message).split(b"\n")
    header = lines[: lines.index(b"")] if b"" in lines else lines
    body = lines[len(header) :]
    return Facts(
        not all(line.isascii() for line in body),
        not all(line.isascii() for line in header),
        any(len(line) > 998 for line in lines),
    )


@pytest.mark.parametrize(
    ("message", "facts"),
    [
        (b"", Facts()),
        (b"A: b\n\ntext\n", Facts()),
        (b"A: \xe9\n\ntext\n", Facts(header_eight_bit=True)),
        (b"A: b\r\n\r\n\xe9", Facts(body_eight_bit=True)),
        (b"\n\xe9", Facts(body_eight_bit=True)),
        (b"\xe9\n\xe9", Facts(header_eight_bit=True)),
        (b"a" * 998 + b"\r\n", Facts()),
        (b"a" * 998 + b"\r\r\n", Facts(long_lines=True)),
        (b"a" * 998 + b"\r", Facts(long_lines=True)),
        (b"a" * 999, Facts(long_lines=True)),
        (b"A: b\n\n" + b"." * 998 + b"\n", Facts()),
    ],
)
def test_facts_are_found_whole_and_byte_by_byte(message: bytes, facts: Facts) -> None:
    assert scan(message) == facts
    assert scan(*[bytes([byte]) for byte in message]) == facts


@given(st.lists(PIECES, max_size=8).map(b"".join), st.lists(st.integers(0, 1100), max_size=4))
def test_facts_are_those_of_the_lines_that_leave_however_the_chunks_fall(message: bytes, cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(message)]
    assert scan(*[message[a:b] for a, b in itertools.pairwise(places)]) == expect(message)


def test_long_lines_are_not_looked_for_unasked() -> None:
    assert not scan(b"a" * 2000, lines=False).long_lines


def test_nothing_more_is_read_once_all_is_known() -> None:
    found = Scan(lines=False)
    found.feed(b"A: b\n\n\xe9")
    assert found.known
    found = Scan(lines=True)
    found.feed(b"A: b\n\n\xe9")
    assert not found.known
