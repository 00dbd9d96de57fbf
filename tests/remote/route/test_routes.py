"""Routes that need little DNS or none: relays, literals, impossible names; and the daemon's reports."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from queue_base.errors import Temporary
from queue_base.home import Home
from queue_remote.route.order import Target
from queue_remote.route.this_host import ThisHost
from queue_remote.route.unroutable import Unroutable
from queue_remote.setup import CurrentSetup
from queue_wire.pipes.report import HOST_SCOPE, MESSAGE_SCOPE
from support.processes.remote_daemon import RemoteDaemon, RemoteHome
from support.servers.dns.dns_server import DnsServer
from support.servers.routes import find, find_often
from support.servers.smtp.raw_server import RawServer
from support.servers.smtp.smtp_server import SmtpServer

RECORDS = {
    ("two.example", "MX"): ["20 far.example.", "10 near.example."],
    ("near.example", "A"): ["198.51.100.1"],
    ("near.example", "AAAA"): ["2001:db8::1"],
    ("far.example", "A"): ["198.51.100.2"],
    ("half.example", "MX"): ["10 broken.example.", "20 far.example."],
}


@pytest.fixture
def dns_server() -> Iterator[DnsServer]:
    with DnsServer(RECORDS, broken=frozenset({"broken.example"})) as server:
        yield server


@pytest.fixture
def home(tmp_path: Path, dns_server: DnsServer) -> RemoteHome:
    return RemoteHome(tmp_path, resolver=f"127.0.0.1:{dns_server.port}", timeoutremote="20", timeoutconnect="5")


def tries(home: RemoteHome, nexthop: bytes) -> list[tuple[bytes, str, int]]:
    return [target[:3] for target in find(home, nexthop).targets]


@pytest.mark.parametrize(
    ("nexthop", "address"),
    [
        (b"[198.51.100.7]", "198.51.100.7"),
        (b"[IPv6:2001:db8::7]", "2001:db8::7"),
        (b"[ipv6:2001:DB8:0::7]", "2001:db8::7"),
    ],
)
def test_an_address_literal_needs_no_dns(home: RemoteHome, dns_server: DnsServer, nexthop: bytes, address: str) -> None:
    assert find(home, nexthop).targets == [Target(b"", address, 25, False)]
    assert dns_server.questions == []


@pytest.mark.parametrize(
    ("nexthop", "code"),
    [
        (b"", b"(#5.1.2)"),
        (b"two words.example", b"(#5.1.2)"),
        (b"\xe9.example", b"(#5.1.2)"),
        (b"a..example", b"(#5.1.2)"),
        (b"x" * 64 + b".example", b"(#5.1.2)"),
        (b"x." * 127 + b"example", b"(#5.1.2)"),
        (b"back\\046slash.example", b"(#5.1.2)"),
        (b"new\nline.example", b"(#5.1.2)"),
        (b"[192.0.2]", b"(#5.1.2)"),
        (b"[198.51.100.1", b"(#5.1.2)"),
        (b"[IPv6:fe80::1%lo]", b"(#5.1.2)"),
        (b"[127.0.0.1]", b"(#5.4.6)"),
        (b"[IPv6:::ffff:127.0.0.1]", b"(#5.4.6)"),
    ],
)
def test_what_cannot_be_a_name_fails_without_a_question(
    home: RemoteHome, dns_server: DnsServer, nexthop: bytes, code: bytes
) -> None:
    with pytest.raises(Unroutable) as raised:
        find(home, nexthop)
    letter, text = raised.value.verdict
    assert (letter, raised.value.scope) == (b"D", MESSAGE_SCOPE)
    assert code in text and text.count(b"\n") <= 3
    assert dns_server.questions == []


@pytest.mark.parametrize(
    ("relay", "expected"),
    [
        ("198.51.100.9", [(b"", "198.51.100.9", 25)]),
        ("198.51.100.9:2525", [(b"", "198.51.100.9", 2525)]),
        ("[2001:db8::9]:26", [(b"", "2001:db8::9", 26)]),
        ("localhost:2525", [(b"localhost", "127.0.0.1", 2525), (b"localhost", "::1", 2525)]),
        ("127.0.0.1, 198.51.100.9:26", [(b"", "127.0.0.1", 25), (b"", "198.51.100.9", 26)]),
    ],
)
def test_a_relay_by_address_or_localhost_needs_no_dns(
    home: RemoteHome, dns_server: DnsServer, relay: str, expected: list[tuple[bytes, str, int]]
) -> None:
    home.control("smtproutes", f":{relay}")
    assert tries(home, b"two.example") == expected
    assert find(home, b"two.example").relayed
    assert dns_server.questions == []


def test_a_relay_by_name_is_looked_up_without_its_exchangers(home: RemoteHome, dns_server: DnsServer) -> None:
    home.control("smtproutes", ":two.example\n.example:Near.example.:26\nfar.example:")
    found = tries(home, b"a.example")
    assert found == [(b"near.example", "198.51.100.1", 26), (b"near.example", "2001:db8::1", 26)]
    assert tries(home, b"far.example") == [(b"far.example", "198.51.100.2", 25)]
    assert ("near.example", "MX") not in dns_server.questions


def test_a_relay_of_a_domain_on_demand_comes_before_smtproutes(home: RemoteHome, dns_server: DnsServer) -> None:
    home.control("smtproutes", "two.example:198.51.100.9\n:198.51.100.8")
    home.control("ondemand", "two.example:etrn relay [2001:db8::7]:2525,198.51.100.7\nx.example:etrn")
    assert tries(home, b"Two.Example.") == [(b"", "2001:db8::7", 2525), (b"", "198.51.100.7", 25)]
    assert find(home, b"two.example").relayed
    assert tries(home, b"x.example") == tries(home, b"a.two.example") == [(b"", "198.51.100.8", 25)]


def test_an_error_in_ondemand_defers_mail_only_if_a_relay_may_be_lost(home: RemoteHome) -> None:
    home.control("smtproutes", ":198.51.100.8")
    home.control("ondemand", "two.example:etrn probe sometimes")
    assert tries(home, b"two.example") == [(b"", "198.51.100.8", 25)]
    home.control("ondemand", "two.example:etrn relay 198.51.100.7:x")
    with pytest.raises(Temporary, match="control/ondemand line 1: not a host or host:port"):
        find(home, b"two.example")


def test_an_error_in_ondemand_leaves_the_relays_that_were_read(
    home: RemoteHome, capfd: pytest.CaptureFixture[str]
) -> None:
    home.control("ondemand", "two.example:etrn relay 198.51.100.7")
    current = CurrentSetup(Home(str(home.path)), "queue-remote")
    before = current.get()
    home.control("ondemand", "two.example:sometimes")
    current.reread()
    assert current.get() is before and before.config.on_demand.keys() == {b"two.example"}
    assert "control/ondemand line 1: no method, one of etrn, atrn" in capfd.readouterr().err
    home.control("ondemand", "x.example:etrn")
    current.reread()
    assert not current.get().config.routes


def test_relays_are_tried_in_order_and_equals_by_lot(home: RemoteHome) -> None:
    home.control("smtproutes", ":198.51.100.1+198.51.100.2:26,198.51.100.3")
    found = [[target.address for target in each.targets] for each in find_often(home, b"a.example", 60)]
    assert {one[-1] for one in found} == {"198.51.100.3"}
    assert {one[0] for one in found} == {"198.51.100.1", "198.51.100.2"}
    assert all(len(one) == 3 for one in found)


@pytest.mark.parametrize("relay", ["nowhere.example", "broken.example"])
def test_a_relay_that_cannot_be_found_leaves_it_to_the_next_and_bounces_nothing(home: RemoteHome, relay: str) -> None:
    home.control("smtproutes", f":{relay},far.example")
    assert tries(home, b"a.example") == [(b"far.example", "198.51.100.2", 25)]
    home.control("smtproutes", f":{relay}")
    with pytest.raises(Unroutable) as raised:
        find(home, b"two.example")
    assert (raised.value.verdict[0], raised.value.scope) == (b"Z", HOST_SCOPE)
    assert relay.encode() in raised.value.verdict[1]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
@given(st.one_of(st.binary(max_size=60), st.text(max_size=30).map(lambda text: text.encode("utf-8", "replace"))))
def test_any_nexthop_has_a_route_or_a_verdict(home: RemoteHome, nexthop: bytes) -> None:
    home.control("resolver", "127.0.0.1:1")
    try:
        found = find(home, nexthop)
    except Unroutable as error:
        assert error.verdict[1].endswith(b"\n") and error.verdict[1].isascii()
    else:
        assert found.targets


def test_our_own_addresses_are_those_of_the_interfaces_and_all_of_loopback() -> None:
    this_host = ThisHost(b"Me.example")
    assert this_host.is_name(b"ME.EXAMPLE.")
    assert not this_host.is_name(b"you.example")
    assert ThisHost(b"xn--bcher-kva.example.").is_name("bücher。example".encode())
    assert all(this_host.is_address(address) for address in ("127.0.0.1", "127.1.2.3", "::1", "0.0.0.0"))
    assert this_host.is_address("::ffff:127.0.0.1")
    assert not this_host.is_address("198.51.100.1")
    assert not this_host.is_address("::ffff:198.51.100.1")


def test_a_host_that_does_not_greet_us_gives_way_to_the_next_address(home: RemoteHome) -> None:
    with SmtpServer("127.0.0.3") as good:
        with RawServer(lambda peer: peer.say(b"554 not today"), "127.0.0.2", good.port) as bad:
            home.control("smtproutes", f":127.0.0.2:{good.port},127.0.0.3:{good.port}")
            with RemoteDaemon(home) as daemon:
                report = daemon.deliver(home.message(b"hello\n"), b"to@b.example")
        assert report.verdicts == [(b"K", b"127.0.0.3 accepted message.\nRemote host said: 250 ok\n")]
        assert bad.connections == 1


def test_a_host_that_refuses_connections_gives_way_to_the_next_address(home: RemoteHome) -> None:
    with SmtpServer("127.0.0.3") as good:
        home.control("smtproutes", f":127.0.0.2:{good.port},127.0.0.3:{good.port}")
        with RemoteDaemon(home) as daemon:
            report = daemon.deliver(home.message(b"hello\n"), b"to@b.example")
        assert report.verdicts[0][0] == b"K"


def test_dns_verdicts_reach_the_report_with_their_scope(home: RemoteHome, dns_server: DnsServer) -> None:
    with RemoteDaemon(home) as daemon:
        path = home.message(b"hello\n")
        gone = daemon.deliver(path, b"a@nowhere.example", b"b@nowhere.example")
        later = daemon.deliver(path, b"a@broken.example")
    text = b"Sorry, I couldn't find any host named nowhere.example. (#5.1.2)\n"
    trouble = b"CNAME lookup failed temporarily. (#4.4.3)\nDNS: broken.example MX: 127.0.0.1@%d SERVFAIL.\n"
    trouble %= dns_server.port
    assert (gone.scope, gone.verdicts) == (MESSAGE_SCOPE, [(b"D", text)] * 2)
    assert (later.scope, later.verdicts) == (HOST_SCOPE, [(b"Z", trouble)])
