"""control/smtproutes, as qmail-remote(8) looks things up in it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_wire.control import unpack_map
from queue_wire.errors import FormatError
from queue_wire.smtproutes import Relay, find_route, unpack_relay, unpack_routes

FILE = b"""Heaven.af.mil:mail.example
.af.mil:192.0.2.1:2525
inside.af.mil:
v6.example:[2001:db8::1]
v6p.example:[::1]:26
"""


@pytest.mark.parametrize(
    ("host", "relay"),
    [
        (b"heaven.af.mil", Relay(b"mail.example", 25)),
        (b"HEAVEN.AF.MIL", Relay(b"mail.example", 25)),
        (b"a.b.af.mil", Relay(b"192.0.2.1", 2525)),
        (b"af.mil", None),
        (b"inside.af.mil", None),
        (b"v6.example", Relay(b"2001:db8::1", 25)),
        (b"v6p.example", Relay(b"::1", 26)),
        (b"elsewhere.example", None),
        (b"", None),
    ],
)
def test_the_most_particular_route_is_found(host: bytes, relay: Relay | None) -> None:
    assert find_route(unpack_routes(unpack_map(FILE)), host) == relay


def test_the_empty_name_is_the_route_for_everything_else() -> None:
    routes = unpack_routes(unpack_map(FILE + b":smart.example:587\n"))
    assert find_route(routes, b"elsewhere.example") == Relay(b"smart.example", 587)
    assert find_route(routes, b"inside.af.mil") is None


@pytest.mark.parametrize("text", [b"host:port", b"host:0", b"host:65536", b"::1", b"[::1", b"two words", b"[::1]25"])
def test_a_relay_that_makes_no_sense_is_refused(text: bytes) -> None:
    with pytest.raises(FormatError):
        unpack_relay(text, 25)


@given(st.binary(max_size=60), st.binary(max_size=30))
def test_any_file_gives_routes_or_a_format_error(data: bytes, host: bytes) -> None:
    try:
        routes = unpack_routes(unpack_map(data))
    except FormatError:
        return
    relay = find_route(routes, host)
    assert relay is None or 0 < relay.port < 65536
