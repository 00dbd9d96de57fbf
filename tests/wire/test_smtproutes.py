"""control/smtproutes, as qmail-remote(8) looks things up in it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_wire.control.hostmap import find_key
from queue_wire.control.smtproutes import Relay, Relays, find_route, unpack_relay, unpack_relays, unpack_routes
from queue_wire.format_error import FormatError

FILE = b"""Heaven.af.mil:mail.example
.af.mil:192.0.2.1:2525
inside.af.mil:
v6.example:[2001:db8::1]
v6p.example:[::1]:26
"""


def only(relays: Relays | None) -> Relay | None:
    """Return the one relay of a route."""
    if relays is None:
        return None
    ((relay,),) = relays.groups
    return relay


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
    assert only(find_route(unpack_routes(FILE), host)) == relay


def test_the_empty_name_is_the_route_for_everything_else() -> None:
    routes = unpack_routes(FILE + b":smart.example:587\n")
    assert only(find_route(routes, b"elsewhere.example")) == Relay(b"smart.example", 587)
    assert find_route(routes, b"inside.af.mil") is None


@pytest.mark.parametrize(
    ("line", "relay", "name"),
    [
        (b"lmtp:/run/dovecot/lmtp", Relay(b"/run/dovecot/lmtp", 0, True), b"lmtp:/run/dovecot/lmtp"),
        (b"LMTP:127.0.0.1:24", Relay(b"127.0.0.1", 24, True), b"lmtp:127.0.0.1"),
        (b"lmtp:[::1]:2424", Relay(b"::1", 2424, True), b"lmtp:[::1]:2424"),
        (b"lmtp:Box.example", Relay(b"Box.example", 24, True), b"lmtp:box.example"),
        (b"lmtp:2525", Relay(b"lmtp", 2525), b"lmtp:2525"),
        (b"lmtp", Relay(b"lmtp", 25), b"lmtp"),
    ],
)
def test_a_relay_may_speak_lmtp(line: bytes, relay: Relay, name: bytes) -> None:
    relays = unpack_relays(line)
    assert relays is not None
    assert (only(relays), relays.name) == (relay, name)
    again = unpack_relays(name)
    assert again is not None
    assert again.name == name


def test_servers_of_lmtp_and_smtp_may_stand_in_one_route() -> None:
    relays = unpack_relays(b"lmtp:/a+lmtp:/b, mx.example")
    assert relays is not None
    assert relays.name == b"lmtp:/a+lmtp:/b,mx.example"
    assert [[relay.lmtp for relay in group] for group in relays.groups] == [[True, True], [False]]


@pytest.mark.parametrize(
    "line", [b"lmtp:", b"lmtp:/a b", b"lmtp:/a|b", b"lmtp:/a@b", b"lmtp:/" + b"x" * 107, b"lmtp:/a:24", b"lmtp:/\xe4"]
)
def test_a_socket_that_cannot_be_named_is_refused(line: bytes) -> None:
    with pytest.raises(FormatError):
        unpack_relays(line)


@pytest.mark.parametrize("text", [b"host:port", b"host:0", b"host:65536", b"::1", b"[::1", b"two words", b"[::1]25"])
def test_a_relay_that_makes_no_sense_is_refused(text: bytes) -> None:
    with pytest.raises(FormatError):
        unpack_relay(text, 25)


@pytest.mark.parametrize(
    ("line", "hosts", "name"),
    [
        (b"one:2525,two", [[b"one"], [b"two"]], b"one:2525,two"),
        (b"Two+one:26 , [::1]:24, [::1]", [[b"Two", b"one"], [b"::1"], [b"::1"]], b"one:26+two,[::1]:24,[::1]"),
        (b"192.0.2.1:25", [[b"192.0.2.1"]], b"192.0.2.1"),
    ],
)
def test_a_route_names_several_relays_in_order_or_as_equals(line: bytes, hosts: list[list[bytes]], name: bytes) -> None:
    relays = unpack_relays(line)
    assert relays is not None
    assert [[relay.host for relay in group] for group in relays.groups] == hosts
    assert relays.name == name
    assert unpack_relays(name.replace(b",", b" , ")) is not None


def test_routes_that_mean_the_same_have_one_name() -> None:
    first, second = unpack_relays(b"one+TWO:25,three"), unpack_relays(b"two+one , Three")
    assert first is not None and second is not None
    assert first.name == second.name


@pytest.mark.parametrize("line", [b"one,", b",one", b"one++two", b"+", b"one two", b"one;two", b"one,two:0"])
def test_a_route_that_makes_no_sense_is_refused(line: bytes) -> None:
    with pytest.raises(FormatError):
        unpack_relays(line)


@pytest.mark.parametrize("line", [b"smart.example:587 user secret", b"smart.example|user|secret"])
def test_a_password_where_some_patches_of_qmail_have_it_is_refused_and_not_shown(line: bytes) -> None:
    with pytest.raises(FormatError) as raised:
        unpack_relays(line)
    assert "secret" not in str(raised.value) and "comma" in str(raised.value)


@pytest.mark.parametrize(
    ("host", "key"),
    [
        ("bücher.example", b"xn--bcher-kva.example"),
        ("BÜCHER.Example.", b"xn--bcher-kva.example"),
        ("xn--bcher-kva.example", b"xn--bcher-kva.example"),
        ("a.straße.example", b".xn--strae-oqa.example"),
        ("strasse.example", b""),
        ("plain.example.", b"plain.example"),
    ],
)
def test_a_name_with_u_labels_is_the_same_as_with_a_labels(host: str, key: bytes) -> None:
    lines = "Bücher.example:one\n.STRAẞE.example:two\nplain.example:three\n:four"
    assert find_key(unpack_routes(lines.encode()), host.encode()) == key


@given(st.binary(max_size=60), st.binary(max_size=30))
def test_any_file_gives_routes_or_a_format_error(data: bytes, host: bytes) -> None:
    try:
        routes = unpack_routes(data)
    except FormatError:
        return
    relays = find_route(routes, host)
    assert relays is None or all(0 < relay.port < 65536 for group in relays.groups for relay in group)
