"""What is kept of a program's output: bounded, cleaned, its first and its last words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_local.shell_command import HEAD_MAX, TAIL_MAX, Output, clean_output


def kept(*pieces: bytes) -> bytes:
    output = Output()
    for piece in pieces:
        output.feed(piece)
    return output.kept()


@pytest.mark.parametrize(
    ("written", "cleaned"),
    [
        (b"", b""),
        (b"\n\n \r\n\t\n", b""),
        (b"one\ntwo", b"one\ntwo\n"),
        (b"one\r\n\r\ntwo  \r\n", b"one\ntwo\n"),
        (b"a\tb\0c\x1b[31md\x7f", b"a b_c_[31md_\n"),
        ("Fach für Grüße, 満杯".encode(), "Fach für Grüße, 満杯\n".encode()),
        (b"f\xfcr \xff\xfe", b"f?r ??\n"),
        ("a\u0085b\u2028c\u202ed".encode(), b"a?b?c?d\n"),
        (b"\xed\xa0\x80", b"???\n"),
    ],
)
def test_what_a_report_may_not_hold_is_replaced(written: bytes, cleaned: bytes) -> None:
    assert kept(written) == cleaned


def test_of_long_output_the_first_and_the_last_words_are_kept() -> None:
    lines = [b"line %d\n" % number for number in range(100_000)]
    text = kept(*lines)
    assert text.startswith(b"line 0\nline 1\n") and text.endswith(b"line 99999\n") and b"\n[...]\n" in text
    assert len(text) <= HEAD_MAX + TAIL_MAX + 10


@given(st.lists(st.binary(max_size=HEAD_MAX), max_size=6))
def test_pieces_make_no_difference_and_any_bytes_become_text(pieces: list[bytes]) -> None:
    text = kept(*pieces)
    assert text == kept(b"".join(pieces))
    assert all(line and line.decode().isprintable() for line in text.split(b"\n")[:-1])
    # A bad byte is one `?`, so that cleaning makes nothing longer.
    assert len(text) <= HEAD_MAX + TAIL_MAX + 10


@given(st.binary(max_size=300))
def test_cleaning_what_is_clean_changes_nothing(data: bytes) -> None:
    assert clean_output(clean_output(data)) == clean_output(data)
