"""The lines of control/intake: a place, a protocol, and the networks that may connect."""

import ipaddress

import pytest

from queue_wire.control.control_file import check
from queue_wire.control.intake_hosts import IntakeListener, unpack_intake
from queue_wire.control.places import ListeningPlace, unpack_place
from queue_wire.control.registry import BY_NAME
from queue_wire.format_error import FormatError, LineError

V4, V6 = ipaddress.ip_network("192.0.2.0/24"), ipaddress.ip_network("2001:db8::/32")


def test_each_line_is_a_listener_with_its_networks() -> None:
    data = b"# the hub\n192.0.2.1:209 qmtp 192.0.2.0/24 2001:db8::/32\n\n[2001:DB8::1]:628\tqmqp 192.0.2.0/24 \n"
    assert unpack_intake(data) == [
        IntakeListener(ListeningPlace("192.0.2.1", 209), "qmtp", (V4, V6)),
        IntakeListener(ListeningPlace("2001:db8::1", 628), "qmqp", (V4,)),
    ]
    assert unpack_intake(b"") == []


@pytest.mark.parametrize(
    ("word", "shown"), [(b"*:209", "*:209"), (b"[::1]:1", "[::1]:1"), (b"127.0.0.1:65535", "127.0.0.1:65535")]
)
def test_a_place_is_an_address_and_a_port(word: bytes, shown: str) -> None:
    assert str(unpack_place(word)) == shown


@pytest.mark.parametrize(
    "word",
    [
        b"", b"209", b":209", b"127.0.0.1", b"127.0.0.1:", b"127.0.0.1:0", b"127.0.0.1:65536", b"::1:209", b"[::1]",
        b"[127.0.0.1]:209", b"[::ffff:127.0.0.1]:209", b"127.0.0.256:209", b"[*]:209", b"localhost:209", b"[::1%1]:2",
    ],
)  # fmt: skip
def test_what_is_no_place_is_refused(word: bytes) -> None:
    with pytest.raises(FormatError):
        unpack_place(word)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"127.0.0.1:209", "no protocol"),
        (b"127.0.0.1:209 smtp 10.0.0.0/8", "no protocol"),
        (b"127.0.0.1:209 qmtp", "no networks"),
        (b"127.0.0.1:209 qmtp 10.0.0.1/8", "not an address or network"),
        (b"127.0.0.1:209 qmtp everybody", "not an address or network"),
        (b"*:628 qmqp ::1\n*:628 qmtp ::1", "a second listener for *:628"),
    ],
)
def test_a_wrong_line_is_refused_with_its_number(line: bytes, why: str) -> None:
    with pytest.raises(LineError, match=why.replace("*", r"\*")) as caught:
        unpack_intake(b"# a comment\n" + line)
    assert caught.value.line == 2 + line.count(b"\n")
    with pytest.raises(LineError):
        check(BY_NAME["intake"], line)


def test_there_are_at_most_32_listeners() -> None:
    lines = [b"127.0.0.1:%d qmtp ::1\n" % port for port in range(1, 34)]
    assert len(unpack_intake(b"".join(lines[:32]))) == 32
    with pytest.raises(LineError, match="more than 32"):
        unpack_intake(b"".join(lines))
