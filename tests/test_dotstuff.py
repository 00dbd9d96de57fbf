"""Messages to DATA: what a strict receiver gets back is what was stored, however the chunks fall."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from queue_wire.dotstuff import DotStuffer

HARD_BYTES = st.lists(st.sampled_from([b".", b"\r", b"\n", b"\0", b"a", b"\xff"]), max_size=30).map(b"".join)


def stuff(*chunks: bytes) -> bytes:
    stuffer = DotStuffer()
    return b"".join([stuffer.feed(chunk) for chunk in chunks]) + stuffer.finish()


def receive(wire: bytes) -> tuple[bytes, bytes]:
    """A strict receiver (RFC 5321 section 4.5.2): return the message with LF line ends, and what is left over."""
    lines: list[bytes] = []
    while True:
        line, _, wire = wire.partition(b"\r\n")
        if line == b".":
            return b"".join(lines), wire
        lines.append(line.removeprefix(b".") + b"\n")


@pytest.mark.parametrize(
    ("message", "wire"),
    [
        (b"", b".\r\n"),
        (b"a\n", b"a\r\n.\r\n"),
        (b"a", b"a\r\n.\r\n"),
        (b".", b"..\r\n.\r\n"),
        (b".\n..\n...\n", b"..\r\n...\r\n....\r\n.\r\n"),
        (b"\n.\n\n", b"\r\n..\r\n\r\n.\r\n"),
        (b"a.b\n", b"a.b\r\n.\r\n"),
        (b"nul \0 eight \xe9\n", b"nul \0 eight \xe9\r\n.\r\n"),
        (b"a\r\nb\rc\n", b"a\r\r\nb\rc\r\n.\r\n"),
        (b"a\r.b\n", b"a\r.b\r\n.\r\n"),
        (b"a\r.\nb\n", b"a\r..\r\nb\r\n.\r\n"),
        (b"a\r.\r\nb\n", b"a\r..\r\r\nb\r\n.\r\n"),
        (b"a\r.", b"a\r..\r\n.\r\n"),
        (b"a\r", b"a\r\r\n.\r\n"),
    ],
)
def test_a_message_is_stuffed_whole_and_byte_by_byte(message: bytes, wire: bytes) -> None:
    assert stuff(message) == wire
    assert stuff(*[bytes([byte]) for byte in message]) == wire


@given(HARD_BYTES, st.integers(1, 7))
def test_chunks_make_no_difference(message: bytes, size: int) -> None:
    assert stuff(*[message[start : start + size] for start in range(0, len(message), size)]) == stuff(message)


@given(HARD_BYTES | st.binary(max_size=200))
@example(b"\r.\r.\r.\n")
def test_a_strict_receiver_gets_the_message_back_but_for_dots_alone_after_a_bare_cr(message: bytes) -> None:
    received, rest = receive(stuff(message))
    whole = message if message.endswith(b"\n") or not message else message + b"\n"
    assert received == re.sub(rb"\r\.(?=[\r\n])", b"\r..", whole)
    assert rest == b""


@given(HARD_BYTES)
def test_no_line_end_of_any_kind_makes_a_dot_alone_inside_a_message(message: bytes) -> None:
    wire = stuff(message)
    body = wire.removesuffix(b".\r\n")
    assert re.search(rb"(?:^|[\r\n])\.[\r\n]", body) is None
    assert re.search(rb"(?<!\r)\n", body) is None
