"""Messages to DATA: the lines that were stored, whatever their line ends, and one end, however the chunks fall."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from queue_smtp.dotstuff import DotStuffer

HARD_BYTES = st.lists(st.sampled_from([b".", b"\r", b"\n", b"\0", b" ", b"a", b"\xff"]), max_size=30).map(b"".join)


def stuff(*chunks: bytes) -> bytes:
    stuffer = DotStuffer()
    return b"".join([stuffer.feed(chunk) for chunk in chunks]) + stuffer.finish()


def cut(message: bytes, sizes: list[int]) -> list[bytes]:
    """Return the message in chunks of these sizes, and what is left; empty ones among them."""
    chunks = []
    for size in sizes:
        chunks.append(message[:size])
        message = message[size:]
    return [*chunks, message]


def expect(message: bytes) -> bytes:
    """The same by the book: a byte at a time into lines, then each line with its dot and CRLF."""
    lines, line = [], bytearray()
    for index, byte in enumerate(message):
        if byte == 0x0A:
            lines.append(bytes(line))
            line.clear()
        elif byte != 0x0D:
            line.append(byte)
        elif message[index + 1 : index + 2] != b"\n":
            line.append(0x20)
    if line:
        lines.append(bytes(line))
    return b"".join([(b"." + one if one.startswith(b".") else one) + b"\r\n" for one in lines]) + b".\r\n"


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
        (b"a\r\nb\rc\n", b"a\r\nb c\r\n.\r\n"),
        (b"a\r\r\nb\n", b"a \r\nb\r\n.\r\n"),
        (b"a\r\n.\r\nb\n", b"a\r\n..\r\nb\r\n.\r\n"),
        (b"a\r.b\n", b"a .b\r\n.\r\n"),
        (b"a\r.\nb\n", b"a .\r\nb\r\n.\r\n"),
        (b"a\n\r.\r\nb\n", b"a\r\n .\r\nb\r\n.\r\n"),
        (b"\r.\r", b" . \r\n.\r\n"),
        (b"\r", b" \r\n.\r\n"),
        (b"a\r\n", b"a\r\n.\r\n"),
    ],
)
def test_a_message_is_stuffed_whole_and_byte_by_byte(message: bytes, wire: bytes) -> None:
    assert stuff(message) == wire
    assert stuff(*[bytes([byte]) for byte in message]) == wire


@given(HARD_BYTES | st.binary(max_size=200), st.lists(st.integers(0, 7), max_size=10))
@example(b"a\r\n.\r\n", [2, 0, 1])
@example(b"\r\r\n.\n", [1, 1, 1])
def test_any_bytes_in_any_chunks_become_what_the_rules_say(message: bytes, sizes: list[int]) -> None:
    assert stuff(*cut(message, sizes)) == expect(message)


@given(HARD_BYTES | st.binary(max_size=200), st.lists(st.integers(0, 7), max_size=10))
def test_cr_and_lf_leave_only_together_and_the_end_comes_once(message: bytes, sizes: list[int]) -> None:
    wire = stuff(*cut(message, sizes))
    assert re.search(rb"\r(?!\n)|(?<!\r)\n", wire) is None
    assert [found.end() for found in re.finditer(rb"(?:\A|\n)\.\r\n", wire)] == [len(wire)]


@given(HARD_BYTES | st.binary(max_size=200))
def test_a_strict_receiver_gets_the_stored_lines_back_with_lf_line_ends(message: bytes) -> None:
    received, rest = receive(stuff(message))
    stored = re.sub(rb"\r(?!\n)", b" ", message).replace(b"\r\n", b"\n")
    assert received == (stored if stored.endswith(b"\n") or not stored else stored + b"\n")
    assert rest == b""
