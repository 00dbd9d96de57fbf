"""The targets of support.fuzz take any bytes. atheris finds other ones, by hand; here they are hypothesis's."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support import fuzz

WORDS = st.sampled_from([
    b"EHLO c\r\n", b"MAIL FROM:<>\r\n", b"RCPT TO:<joe@example.org>\r\n", b"DATA\r\n", b".\r\n", b"BDAT 3 LAST\r\n",
    b"XCLIENT ADDR=192.0.2.1\r\n", b"4:\nhi\n,", b"3:a@b,", b"18:15:joe@example.org,,", b"1:+,", b"0:,", b"\n", b"\r",
    b"Authentication-Results: mx.example.org;", b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n", b"unix:/x", b"mx ", b"\x0b",
])  # fmt: skip
INPUTS = st.lists(WORDS | st.binary(max_size=8), max_size=20).map(b"".join)


@pytest.mark.parametrize("target", fuzz.TARGETS)
def test_any_bytes_are_taken(target: str) -> None:
    taken: list[bytes] = []

    @settings(max_examples=60, deadline=None, database=None)
    @given(INPUTS)
    def take(data: bytes) -> None:
        fuzz.TARGETS[target](data)
        taken.append(data)

    take()
    assert any(taken)
