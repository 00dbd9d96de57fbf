"""Addresses on the wire: quoted where they must be, refused where they could do harm."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_wire.errors import FormatError
from queue_wire.smtp_path import pack_path


@pytest.mark.parametrize(
    ("address", "path"),
    [
        (b"", b"<>"),
        (b"#@[]", b"<>"),
        (b"postmaster", b"<postmaster>"),
        (b"a.b+c@example.com", b"<a.b+c@example.com>"),
        (b"owner-x=y@host", b"<owner-x=y@host>"),
        (b"a@[192.0.2.1]", b"<a@[192.0.2.1]>"),
        (b"two words@example.com", b'<"two words"@example.com>'),
        (b"a..b@example.com", b'<"a..b"@example.com>'),
        (b"a@b@example.com", b'<"a@b"@example.com>'),
        (b'say"hi\\@example.com', b'<"say\\"hi\\\\"@example.com>'),
        (b"a>b@example.com", b'<"a>b"@example.com>'),
        (b"@example.com", b'<""@example.com>'),
    ],
)
def test_an_address_is_quoted_only_where_it_must_be(address: bytes, path: bytes) -> None:
    assert pack_path(address) == path


@pytest.mark.parametrize(
    "address",
    [b"a\r\nRSET@b", b"a@b\n", b"a\0b@c", b"a\tb@c", b"a@b c", b"a@b>", b"a@", b"a@[<x>]", b"a@[]", b"a\x7f@b"],
)
def test_an_address_that_cannot_be_sent_is_refused(address: bytes) -> None:
    with pytest.raises(FormatError):
        pack_path(address)


@pytest.mark.parametrize("address", [b"\xc3\xa9@example.com", b"e@\xc3\xa9.example"])
def test_an_address_that_is_not_ascii_is_refused_as_that(address: bytes) -> None:
    with pytest.raises(FormatError):
        pack_path(address)


@given(st.binary(max_size=40))
def test_no_address_can_end_its_path_or_its_line(address: bytes) -> None:
    try:
        path = pack_path(address)
    except FormatError:
        return
    assert path[:1] == b"<"
    assert path[-1:] == b">"
    assert all(32 <= byte < 127 for byte in path)
    inside, quoted, escaped = path[1:-1], False, False
    for byte in inside:
        if escaped:
            escaped = False
        elif quoted and byte == ord("\\"):
            escaped = True
        elif byte == ord('"'):
            quoted = not quoted
        else:
            assert quoted or byte not in b"<> "
    assert not quoted
