"""Addresses on the wire: quoted where they must be, refused where they could do harm."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_smtp.path import (
    PATH_MAX,
    pack_forward_path,
    pack_path,
    pack_reverse_path,
    pack_utf8_path,
    unpack_path,
)
from queue_wire.format_error import FormatError


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
        (b"a@example.com.", b"<a@example.com>"),
        (b"two words@example.com.", b'<"two words"@example.com>'),
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


@pytest.mark.parametrize("text", [b"<a@example.com.>", b"a@example.com.", b"<@x.example.:a@example.com.>"])
def test_a_final_dot_of_a_domain_is_not_part_of_its_address(text: bytes) -> None:
    assert unpack_path(text) == (b"a@example.com", b"")


@pytest.mark.parametrize("text", [b"<a@example.com..>", b"<a@.>", b"<a@..>", b"<a@[192.0.2.1].>"])
def test_a_dot_that_ends_no_name_is_an_error(text: bytes) -> None:
    with pytest.raises(FormatError):
        unpack_path(text)


@pytest.mark.parametrize("domain", ["\u00e9.example", "xn--9ca.example"])
@pytest.mark.parametrize("local", ["joe", "jo\u00e9"])
def test_a_final_dot_is_sent_to_no_server(local: str, domain: str) -> None:
    plain, dotted = f"{local}@{domain}".encode(), f"{local}@{domain}.".encode()
    assert pack_forward_path(dotted) == pack_forward_path(plain)
    assert pack_reverse_path(dotted) == pack_reverse_path(plain)


@pytest.mark.parametrize("address", [b"\xc3\xa9@example.com", b"e@\xc3\xa9.example"])
def test_an_address_that_is_not_ascii_is_refused_as_that(address: bytes) -> None:
    with pytest.raises(FormatError):
        pack_path(address)


HARMFUL = [
    *[bytes([byte]) for byte in [*range(32), 127]],
    *(b"\r\n", b"\r\nDATA\r\n", b"\n.\n", b"> SIZE=1\r\nRSET\r\n<", b"\x80", b"\xff\r", b"\xc2\x85", b"\xe2\x80\xa8"),
    *(b"\xe2\x80\xa9", b"\xe2\x80\xae", b"\xef\xbb\xbf", b"\xc0\x8d\xc0\x8a", b"\xed\xa0\x80", b"\xf4\x90\x80\x80"),
]


@pytest.mark.parametrize("harm", HARMFUL)
@pytest.mark.parametrize(
    "address", [b"%s@b.example", b"a%sb@b.example", b"a@%s", b"a@b%s.example", b"a@b.example%s", b"%s"]
)
@pytest.mark.parametrize("more", [b"", "é".encode()])
def test_control_characters_and_what_is_not_utf8_get_into_no_command(harm: bytes, address: bytes, more: bytes) -> None:
    with pytest.raises(FormatError):
        pack_any(more + address % harm)


@pytest.mark.parametrize("domain", ["example.com", "é.example", ""])
@pytest.mark.parametrize("letter", ["a", "é", '"'])
def test_a_path_that_would_make_a_command_too_long_is_refused(letter: str, domain: str) -> None:
    at = "@" if domain else ""
    one, two = (len(pack_any(f"{letter * count}{at}{domain}".encode())) for count in (1, 2))
    most = (PATH_MAX - one) // (two - one) + 1
    assert len(pack_any(f"{letter * most}{at}{domain}".encode())) <= PATH_MAX
    with pytest.raises(FormatError, match="too long"):
        pack_any(f"{letter * (most + 1)}{at}{domain}".encode())


def pack_any(address: bytes) -> bytes:
    return pack_path(address) if address.isascii() else pack_utf8_path(address)[0]


@given(st.binary(max_size=40) | st.text(max_size=40).map(str.encode))
def test_no_address_can_end_its_path_or_its_line(address: bytes) -> None:
    try:
        path = pack_any(address)
    except FormatError:
        return
    assert path[:1] == b"<"
    assert path[-1:] == b">"
    assert path.decode().isprintable()
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
