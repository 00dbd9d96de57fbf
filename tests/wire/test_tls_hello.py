"""The hello of a TLS handshake: read up to its end, and refused if it may lead to an expensive exchange of keys."""

import ssl
import struct
import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_wire.format_error import FormatError
from queue_wire.tls_hello import HELD_MAX, HelloReader

X25519, P_256, FFDHE3072, FFDHE4096, FFDHE8192, UNKNOWN = 0x1D, 0x17, 0x0101, 0x0102, 0x0104, 0x9999
WARNING = b"\x15\x03\x03\x00\x02\x01\x70"


def record(message: bytes, pieces: int = 16384) -> bytes:
    """Return records of a handshake message with so many bytes each."""
    cut = [message[at : at + pieces] for at in range(0, len(message), pieces)]
    return b"".join(b"\x16\x03\x03" + struct.pack(">H", len(each)) + each for each in cut)


def hello(kind: int, body: bytes, extensions: list[tuple[int, bytes]]) -> bytes:
    packed = b"".join(struct.pack(">HH", number, len(value)) + value for number, value in extensions)
    body = b"\x03\x03" + b"r" * 32 + b"\x20" + b"i" * 32 + body + struct.pack(">H", len(packed)) + packed
    return bytes([kind]) + len(body).to_bytes(3, "big") + body


def of_client(groups: list[int], shares: list[int]) -> bytes:
    named = struct.pack(f">H{len(groups)}H", 2 * len(groups), *groups)
    shared = b"".join(struct.pack(">HH", group, 32) + b"s" * 32 for group in shares)
    extensions = [(0, b"name"), (10, named), (51, struct.pack(">H", len(shared)) + shared)]
    return hello(1, b"\x00\x02\x13\x02\x01\x00", extensions)


def of_server(group: int, share: bytes = b"") -> bytes:
    """Return the hello of a server; without a share it is one that wants another hello."""
    return hello(2, b"\x13\x02\x00", [(43, b"\x03\x04"), (51, struct.pack(">H", group) + share)])


def openssl_hello() -> bytes:
    """Return the record that OpenSSL begins with."""
    outgoing = ssl.MemoryBIO()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="a.example")
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


def pieces_of(data: bytes, size: int) -> Iterator[bytes]:
    return (data[at : at + size] for at in range(0, len(data), size))


@pytest.mark.parametrize("size", [1, 7, 100_000])
@pytest.mark.parametrize(
    ("client", "data"),
    [
        (True, openssl_hello()),
        (True, record(of_client([UNKNOWN, X25519, FFDHE8192], [UNKNOWN, X25519]), pieces=3)),
        (True, record(of_client([X25519, FFDHE8192], []))),
        (True, record(of_client([FFDHE3072, FFDHE8192], [FFDHE3072]))),
        (False, record(of_server(X25519, b"\x00\x20" + b"s" * 32))),
        (False, WARNING + record(of_server(P_256), pieces=1)),
        (False, b"HTTP/1.1 400 Bad Request\r\n"),
    ],
    ids=["OpenSSL", "unknown groups", "no share", "ffdhe3072", "server", "server behind a warning", "no TLS"],
)
def test_a_hello_is_passed_on_whole_with_all_that_follows(client: bool, data: bytes, size: int) -> None:
    data += b"\x17\x03\x03\x00\x01z"
    reader = HelloReader(client)
    assert b"".join(reader.feed(piece) for piece in pieces_of(data, size)) == data
    assert reader.done


@pytest.mark.parametrize("size", [1, 100_000])
@pytest.mark.parametrize(
    ("client", "data"),
    [
        (True, record(of_client([FFDHE8192], [FFDHE8192]))),
        (True, record(of_client([X25519, FFDHE4096], [FFDHE4096, X25519]), pieces=2)),
        (True, record(of_client([UNKNOWN, FFDHE8192], []))),
        (False, record(of_server(FFDHE8192))),
        (False, WARNING + WARNING + record(of_server(FFDHE8192), pieces=1)),
        (False, record(b"\x00\x00\x00\x00" + of_server(FFDHE8192))),
        (False, record(of_server(FFDHE8192))[:8] + WARNING + record(of_server(FFDHE8192))[8:]),
        (False, b"\x14\x03\x03\x00\x01\x01" + record(of_server(FFDHE8192))),
        (False, record(of_server(X25519)[:-1] + b"\x09")[:40] + b"\xff" * 200),
    ],
    ids=[
        "the only group", "the first share", "no other group", "another hello", "behind warnings", "behind a request",
        "around a warning", "behind another record", "damaged",
    ],
)  # fmt: skip
def test_of_a_hello_that_is_refused_nothing_is_passed_on(client: bool, data: bytes, size: int) -> None:
    reader = HelloReader(client)
    passed = b""
    with pytest.raises(FormatError):
        for piece in pieces_of(data, size):
            passed += reader.feed(piece)
    assert passed.replace(WARNING, b"") == b""


@pytest.mark.parametrize(
    "data",
    [WARNING * 40_000, record(b"\x02\x00\xff\xff" + b"x" * 65_535, pieces=1), b"\x16\x03\x03\x00\x00" * 60_000],
    ids=["warnings", "a byte a record", "empty records"],
)
@pytest.mark.parametrize("size", [1000, 1_000_000])
def test_a_peer_that_never_says_hello_is_refused_soon(data: bytes, size: int) -> None:
    reader = HelloReader(of_client=False)
    held = 0

    def feed_all() -> None:
        nonlocal held
        for piece in pieces_of(data, size):
            held += len(piece) - len(reader.feed(piece))
            assert held <= HELD_MAX + size

    begun = time.thread_time()
    if size > HELD_MAX or data[5:6] == b"\x02":
        with pytest.raises(FormatError):
            feed_all()
    else:
        # OpenSSL refuses what has passed.
        feed_all()
    assert time.thread_time() - begun < 0.5


@given(st.binary(max_size=200), st.booleans(), st.booleans())
def test_any_bytes_are_passed_on_held_or_refused(data: bytes, client: bool, framed: bool) -> None:
    reader = HelloReader(client)
    data = record(bytes([1 if client else 2]) + len(data).to_bytes(3, "big") + data) if framed else data
    try:
        passed = reader.feed(data)
    except FormatError:
        return
    assert data.startswith(passed)

