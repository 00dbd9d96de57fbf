"""The PROXY header, both versions: whole, cut, and with bytes behind it. And XCLIENT's attributes."""

import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_smtp.proxy_header import ProxiedConnection, unpack_proxy_header
from queue_smtp.xclient import unpack_xclient, unpack_xtext
from queue_wire.format_error import FormatError

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
V4 = socket.inet_aton("192.0.2.1") + socket.inet_aton("203.0.113.1") + struct.pack("!HH", 40000, 25)
V6 = socket.inet_pton(socket.AF_INET6, "2001:db8::1") * 2 + struct.pack("!HH", 40000, 25)
FOUR = ProxiedConnection("192.0.2.1", 40000, "203.0.113.1", 25)
SIX = ProxiedConnection("2001:db8::1", 40000, "2001:db8::1", 25)


def binary(command: int, family: int, body: bytes) -> bytes:
    return SIGNATURE + struct.pack("!BBH", command, family, len(body)) + body


GOOD = [
    (b"PROXY TCP4 192.0.2.1 203.0.113.1 40000 25\r\n", FOUR),
    (b"PROXY TCP6 2001:db8::1 2001:DB8::1 40000 25\r\n", SIX),
    (b"PROXY UNKNOWN\r\n", None),
    (b"PROXY UNKNOWN ffff::ffff ffff::ffff 65535 65535\r\n", None),
    (binary(0x21, 0x11, V4), FOUR),
    (binary(0x21, 0x21, V6), SIX),
    (binary(0x21, 0x11, V4 + b"\x04\0\x03xyz"), FOUR),
    (binary(0x20, 0x00, b""), None),
    (binary(0x20, 0x11, V4), None),
    (binary(0x21, 0x31, b"x" * 216), None),
    (binary(0x21, 0x00, b""), None),
]
BAD = [
    b"EHLO c\r\n",
    b"GET / HTTP/1.1\r\n",
    b"PROXY\r\n",
    b"PROXY TCP4 192.0.2.1 203.0.113.1 40000\r\n",
    b"PROXY TCP4 192.0.2.1 203.0.113.1 40000 25 x\r\n",
    b"PROXY TCP4 192.0.2.1 203.0.113.1 40000 65536\r\n",
    b"PROXY TCP4 192.0.2.256 203.0.113.1 40000 25\r\n",
    b"PROXY TCP4 2001:db8::1 2001:db8::1 40000 25\r\n",
    b"PROXY TCP6 192.0.2.1 203.0.113.1 40000 25\r\n",
    b"PROXY TCP5 192.0.2.1 203.0.113.1 40000 25\r\n",
    b"PROXY TCP4 192.0.2.1 203.0.113.1 40000 25\n",
    b"PROXY UNKNOWN" + b" x" * 60 + b"\r\n",
    b"PROXY TCP4 " + b"1" * 200,
    binary(0x31, 0x11, V4),
    binary(0x22, 0x11, V4),
    binary(0x21, 0x11, V4[:-1]),
    binary(0x21, 0x21, V4),
    SIGNATURE + b"\x21\x11\xff\xff",
    b"\r\n\r\nX",
    b"\x16\x03\x01",
]


@pytest.mark.parametrize(("header", "connection"), GOOD)
def test_a_header_is_read_whole_cut_and_with_bytes_behind_it(header: bytes, connection: object) -> None:
    for cut in range(len(header)):
        assert unpack_proxy_header(header[:cut]) is None
    assert unpack_proxy_header(header) == (len(header), connection)
    assert unpack_proxy_header(header + b"EHLO c\r\n") == (len(header), connection)


@pytest.mark.parametrize("data", BAD)
def test_what_is_no_header_is_refused(data: bytes) -> None:
    with pytest.raises(FormatError):
        unpack_proxy_header(data)


@given(st.binary(max_size=300), st.sampled_from([b"", b"PROXY ", SIGNATURE, SIGNATURE + b"\x21\x11\0\x0c"]))
def test_no_bytes_crash_the_reader(data: bytes, begin: bytes) -> None:
    try:
        unpack_proxy_header(begin + data)
    except FormatError:
        pass


@pytest.mark.parametrize(
    ("argument", "attributes"),
    [
        (b"ADDR=192.0.2.1", {b"ADDR": b"192.0.2.1"}),
        (b"addr=192.0.2.1 name=h.example", {b"ADDR": b"192.0.2.1", b"NAME": b"h.example"}),
        (b"ADDR=IPv6:2001:DB8::1", {b"ADDR": b"2001:db8::1"}),
        (b"NAME=[UNAVAILABLE] HELO=[tempunavail]", {b"NAME": b"", b"HELO": b""}),
        (b"LOGIN=a+3Db+2B", {b"LOGIN": b"a=b+"}),
        (b"LOGIN=j+C3+B6rg+20m", {b"LOGIN": "jörg m".encode()}),
        (b"HELO=+C3+A4-PC", {b"HELO": "ä-PC".encode()}),
        (b"HELO=\xe4+2DPC", {b"HELO": b"\xe4-PC"}),
        (b"HELO=+20my+20PC", {b"HELO": b"my"}),
        (b"HELO=" + b"x" * 1000, {b"HELO": b"x" * 1000}),
        (b"PROTO=esmtp PORT=25", {b"PROTO": b"ESMTP", b"PORT": b"25"}),
        (b"DESTADDR=127.0.0.1 DESTPORT=0", {b"DESTADDR": b"127.0.0.1", b"DESTPORT": b"0"}),
    ],
)
def test_the_attributes_of_xclient(argument: bytes, attributes: dict[bytes, bytes]) -> None:
    assert unpack_xclient(argument) == attributes


@pytest.mark.parametrize(
    "argument",
    [
        *(b"", b"ADDR", b"FOO=x", b"ADDR=", b"ADDR=x", b"ADDR=192.0.2.1 ADDR=192.0.2.2", b"PORT=65536", b"PORT=x"),
        *(b"PROTO=HTTP", b"NAME=a+0Ab", b"NAME=a+2", b"NAME=a+zz", b"LOGIN=a+00b", b"NAME=" + b"x" * 256),
        *(b"HELO=", b"HELO=+20", b"HELO=a+0D+0AMAIL", b"HELO=a+00", b"LOGIN=" + b"x" * 256, b"LOGIN="),
    ],
)
def test_what_is_no_attribute_of_xclient_is_refused(argument: bytes) -> None:
    with pytest.raises(FormatError):
        unpack_xclient(argument)


@given(st.binary(max_size=100))
def test_no_bytes_crash_the_reader_of_xclient(argument: bytes) -> None:
    for read in (unpack_xclient, unpack_xtext):
        try:
            read(argument)
        except FormatError:
            pass
