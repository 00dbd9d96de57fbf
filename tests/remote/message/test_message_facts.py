"""What SMTP has to know of a message, found in chunks: 8-bit bytes in header and body, and lines that are too long."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_remote.message.encoding import LINE_MAX, find_long_line, has_long_lines
from queue_remote.message.message_scan import Facts, MessageScan
from queue_smtp.dotstuff import DotStuffer, normalize

PIECES = st.sampled_from(
    [b"\n", b"\r\n", b"\r", b"a", b"\xe9", b"\xc3\xa9", b"\xc3", b".", b"b" * 990, b"c" * 998, b"A: b\n"]
)


def scan(*chunks: bytes, lines: bool = True) -> Facts:
    found = MessageScan(lines)
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
        wire_size(message),
        header_utf8=is_utf8(b"\n".join(header)),
    )


def is_utf8(header: bytes) -> bool:
    """Whether it has 8-bit bytes, all of them UTF-8."""
    try:
        return not header.decode("utf-8").isascii()
    except UnicodeDecodeError:
        return False


def wire_size(message: bytes) -> int:
    """RFC 1870's size: what is on the wire, without the closing dot and the dots that are doubled."""
    stuffer = DotStuffer()
    wire = stuffer.feed(message) + stuffer.finish()
    return len(wire.removesuffix(b".\r\n").replace(b"\r\n..", b"\r\n.")) - wire.startswith(b"..")


@pytest.mark.parametrize(
    ("message", "facts"),
    [
        (b"", Facts()),
        (b"A: b\n\ntext\n", Facts()),
        (b"A: \xe9\n\ntext\n", Facts(header_eight_bit=True)),
        ("A: \u20ac\n\ntext\n".encode(), Facts(header_eight_bit=True, header_utf8=True)),
        ("A: \u20ac".encode()[:-1], Facts(header_eight_bit=True)),
        ("A: b\n\n\u20ac".encode(), Facts(body_eight_bit=True)),
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
    facts = facts._replace(wire_size=wire_size(message))
    assert scan(message) == facts
    assert scan(*[bytes([byte]) for byte in message]) == facts


@given(st.lists(PIECES, max_size=8).map(b"".join), st.lists(st.integers(0, 1100), max_size=4))
def test_facts_are_those_of_the_lines_that_leave_however_the_chunks_fall(message: bytes, cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(message)]
    assert scan(*[message[a:b] for a, b in itertools.pairwise(places)]) == expect(message)


def test_long_lines_are_not_looked_for_unasked() -> None:
    assert not scan(b"a" * 2000, lines=False).long_lines


@pytest.mark.parametrize("line", [b"\n", b"x" * 997 + b"\n", b"x" * 998 + b"\n", b"\n" + b"x" * 998 + b"\n", b"x\n"])
def test_looking_for_a_long_line_takes_no_more_steps_than_the_bytes_are_worth(line: bytes) -> None:
    class Counting(bytes):
        steps = 0

        def rfind(self, *arguments: object) -> int:
            Counting.steps += 1
            return super().rfind(*arguments)  # type: ignore[arg-type]

    data = Counting(line * (1_000_000 // len(line)))
    assert find_long_line(data) < 0
    assert Counting.steps <= 2 * len(data) // LINE_MAX + 2


def test_a_line_that_is_long_only_with_its_cr_is_passed_over() -> None:
    lines = b"x" * 998 + b"\r\n"
    assert not has_long_lines(lines * 100)
    assert has_long_lines(lines * 100 + b"x" * 999)
    assert has_long_lines(lines * 100 + b"x" * 998 + b"\r")
