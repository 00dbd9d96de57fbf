"""The lines before a delivered message, and the loop that they stop."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_local.headers import delivered_to, header_has, return_path
from queue_wire.address import quote_address

LINE = b"Delivered-To: joe@host.example\n"


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        (b"", b""),
        (b"joe@host.example", b"joe@host.example"),
        (b"joe", b"joe"),
        (b"#@[]", b"#@[]"),
        (b"joe.x+y=z@host.example", b"joe.x+y=z@host.example"),
        (b"two words@host.example", b'"two words"@host.example'),
        (b".dot@host.example", b'".dot"@host.example'),
        (b"a..b@host.example", b'"a..b"@host.example'),
        (b"@host.example", b'""@host.example'),
        (b'qu"ote\\@host.example', b'"qu\\"ote\\\\"@host.example'),
        (b"a@b@host.example", b'"a@b"@host.example'),
        (b"j\xc3\xb6@host.example", b'"j\xc3\xb6"@host.example'),
    ],
)
def test_a_local_part_is_quoted_where_it_must_be(address: bytes, shown: bytes) -> None:
    assert quote_address(address) == shown
    assert return_path(address) == b"Return-Path: <%s>\n" % shown


@given(st.binary(max_size=60))
def test_each_header_is_one_line_whatever_is_in_the_address(address: bytes) -> None:
    for line in (return_path(address), delivered_to(address)):
        assert line.endswith(b"\n") and line.count(b"\n") == 1


def test_a_newline_in_an_address_becomes_an_underscore() -> None:
    assert return_path(b"a\nb@host") == b'Return-Path: <"a_b"@host>\n'
    assert delivered_to(b"a\nX-Fake: 1@host") == b"Delivered-To: a_X-Fake: 1@host\n"


@pytest.mark.parametrize(
    ("message", "there"),
    [
        (b"", False),
        (LINE, True),
        (b"Subject: x\n" + LINE + b"\nbody\n", True),
        (b"Subject: x\n\n" + LINE, False),
        (LINE[:-1], False),
        (b"Subject: x\nX" + LINE, False),
        (LINE.lower(), False),
        (LINE[:-1] + b".org\n", False),
        (b"x" * 8192 + LINE, False),
        (b"x" * 8191 + b"\n" + LINE, True),
        (b"X: " + b"y" * 300_000 + b"\n" + LINE, True),
    ],
)
def test_only_exactly_this_line_in_the_header_is_a_loop(message: bytes, there: bool) -> None:
    assert header_has(io.BytesIO(message), LINE) is there


@given(st.lists(st.binary(max_size=30).map(lambda text: text.replace(b"\n", b"")), max_size=5), st.booleans())
def test_a_line_is_found_wherever_it_stands_in_the_header(lines: list[bytes], there: bool) -> None:
    header = b"".join(line + b"\n" for line in lines if line and line + b"\n" != LINE)
    assert header_has(io.BytesIO(header + (LINE if there else b"") + b"\nbody\n" + LINE), LINE) is there
