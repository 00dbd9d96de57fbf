"""SMTP replies: whole, in pieces, with bytes after, and what is no reply."""

import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_smtp.reply import LINE_MAX, REPLY_MAX, TEXT_MAX, Reply, ReplyReader
from queue_wire.format_error import FormatError

STREAM = b"220 hello\r\n250-one\r\n250-two\r\n250 three\r\n354\r\n"
REPLIES = [Reply(220, b"220 hello"), Reply(250, b"250-one\n250-two\n250 three"), Reply(354, b"354")]


def read_all(*pieces: bytes) -> list[Reply]:
    reader, found = ReplyReader(), []
    for piece in pieces:
        reader.feed(piece)
        while (reply := reader.next()) is not None:
            found.append(reply)
    return found


def test_replies_are_read_whole() -> None:
    assert read_all(STREAM) == REPLIES


def test_replies_are_read_byte_by_byte() -> None:
    assert read_all(*[bytes([byte]) for byte in STREAM]) == REPLIES


@given(st.lists(st.integers(0, len(STREAM)), max_size=6))
def test_replies_do_not_depend_on_how_they_arrive(cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(STREAM)]
    assert read_all(*[STREAM[start:end] for start, end in pairwise(places)]) == REPLIES


def test_a_reply_without_its_line_end_is_not_yet_a_reply() -> None:
    assert read_all(b"250 ok\r") == []
    assert read_all(b"250-ok\r\n") == []


def test_a_line_may_end_in_lf_alone_and_hold_any_bytes() -> None:
    assert read_all(b"250 \xff\0\x1b[2J ok\n") == [Reply(250, b"250 ???[2J ok")]


def test_of_a_text_in_utf8_only_what_cannot_be_printed_is_replaced() -> None:
    assert read_all("250 \u00e9\u0085\u202e\u2713\r\n".encode()) == [Reply(250, "250 \u00e9??\u2713".encode())]


@pytest.mark.parametrize("line", [b"", b"hello", b"25", b"2500", b"150 ok", b"650 ok", b"250_ok", b"250-a\r\n550 b"])
def test_what_cannot_be_a_reply_is_refused(line: bytes) -> None:
    with pytest.raises(FormatError):
        read_all(line + b"\r\n")


def test_codes_of_one_class_may_be_mixed_and_the_last_one_counts() -> None:
    assert read_all(b"250-a\r\n251 b\r\n") == [Reply(251, b"250-a\n251 b")]


def test_a_line_that_never_ends_is_refused() -> None:
    with pytest.raises(FormatError):
        read_all(*[b"2" * 1000] * (REPLY_MAX // 1000 + 1))


def test_the_rest_of_a_long_line_is_cut_off() -> None:
    assert read_all(b"250 " + b"x" * LINE_MAX + b"\r\n") == [Reply(250, b"250 " + b"x" * (LINE_MAX - 4))]


def test_a_reply_that_never_ends_is_refused() -> None:
    with pytest.raises(FormatError):
        read_all(*[b"250-" + b"x" * 996 + b"\r\n"] * (REPLY_MAX // 1000 + 1))


def test_the_text_of_a_long_reply_is_cut() -> None:
    [reply] = read_all(b"250-" + b"x" * 8000 + b"\r\n250-" + b"y" * 8000 + b"\r\n250 ok\r\n")
    assert reply.code == 250
    assert len(reply.text) == TEXT_MAX


@given(st.lists(st.binary(max_size=60), max_size=6))
def test_any_bytes_make_replies_or_a_format_error(pieces: list[bytes]) -> None:
    try:
        replies = read_all(*pieces)
    except FormatError:
        return
    assert all(200 <= reply.code < 600 for reply in replies)


@pytest.mark.parametrize(
    "last", [b"550 nobody here by that name\r\n", b"", b"354"], ids=["refused", "missing", "cut off"]
)
@pytest.mark.parametrize("end", [b"\r\n", b"\n", b"\r\r\n"], ids=["CRLF", "LF", "CR CRLF"])
def test_an_envelope_that_is_not_accepted_whole_is_seen_in_no_time(last: bytes, end: bytes) -> None:
    # Where each line could match in two ways, 100 would take for ever, and 22 some seconds.
    count = 22
    reader = ReplyReader()
    reader.feed((b"250 ok" + end) * count + last)
    begun = time.process_time()
    assert not reader.skip_accepted(count)
    assert time.process_time() - begun < 0.05
    assert reader.next() == Reply(250, b"250 ok")


@pytest.mark.parametrize("line", [b"%d ok\r\n", b"%d ok\n", b"%d\r\n", b"%d\n", b"%d \r\n", b"%d a\rb\r\n"])
def test_an_envelope_that_is_accepted_whole_is_skipped(line: bytes) -> None:
    reader = ReplyReader()
    reader.feed(b"".join(line % code for code in (250, 251, 250, 354, 221)))
    assert not reader.skip_accepted(2)
    assert not reader.skip_accepted(4)
    assert reader.skip_accepted(3)
    reply = reader.next()
    assert reply is not None
    assert reply.code == 221
