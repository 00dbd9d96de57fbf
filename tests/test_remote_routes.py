"""From a nexthop to addresses, asked of a real DNS server on loopback, and the verdicts where there is no way."""

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path

import dns.asyncresolver
import dns.resolver
import pytest
import uvloop

from queue_base.home import Home
from queue_remote import lookup
from queue_remote.lookup import Unroutable
from queue_remote.ourselves import Ourselves
from queue_remote.route import ADDRESSES_ENOUGH, Router
from queue_remote.settings import read_settings
from queue_wire.report import HOST_SCOPE, MESSAGE_SCOPE
from support.dns_server import DnsServer
from support.raw_server import RawServer
from support.remote_daemon import RemoteDaemon, RemoteHome
from support.smtp_server import SmtpServer

RECORDS = {
    ("two.example", "MX"): ["20 far.example.", "10 near.example."],
    ("near.example", "A"): ["198.51.100.1"],
    ("near.example", "AAAA"): ["2001:db8::1"],
    ("far.example", "A"): ["198.51.100.2"],
    ("bare.example", "A"): ["198.51.100.3"],
    ("alias.example", "CNAME"): ["two.example."],
    ("null.example", "MX"): ["0 ."],
    ("dangling.example", "MX"): ["10 nowhere.example."],
    ("text.example", "TXT"): ['"no address"'],
    ("us.example", "MX"): ["10 client.example."],
    ("loop.example", "A"): ["127.0.0.9"],
    ("backup.example", "MX"): ["10 near.example.", "20 far.example.", "20 loop.example.", "30 bare.example."],
    ("half.example", "MX"): ["10 broken.example.", "20 far.example."],
    ("broken-mx.example", "MX"): ["10 broken.example."],
    ("crowd.example", "MX"): [f"10 c{number}.example." for number in range(40)],
    ("relay.example", "A"): ["127.0.0.2", "127.0.0.3"],
} | {(f"c{number}.example", "A"): [f"198.51.100.{number}"] for number in range(40)}


@pytest.fixture
def dns_server() -> Iterator[DnsServer]:
    with DnsServer(RECORDS, broken=frozenset({"broken.example"})) as server:
        yield server


@pytest.fixture
def home(tmp_path: Path, dns_server: DnsServer) -> RemoteHome:
    return RemoteHome(tmp_path, resolver=f"127.0.0.1:{dns_server.port}", timeoutremote="20", timeoutconnect="5")


def find(home: RemoteHome, nexthop: bytes) -> tuple[list[str], int]:
    """Return the addresses and the port."""
    router = Router(read_settings(Home(str(home.path))))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        targets = runner.run(router.find(nexthop)).targets
    return [target.address for target in targets], targets[0].port


@pytest.mark.parametrize(
    ("nexthop", "addresses"),
    [
        (b"two.example", ["198.51.100.1", "2001:db8::1", "198.51.100.2"]),
        (b"TWO.Example.", ["198.51.100.1", "2001:db8::1", "198.51.100.2"]),
        (b"alias.example", ["198.51.100.1", "2001:db8::1", "198.51.100.2"]),
        (b"bare.example", ["198.51.100.3"]),
        (b"half.example", ["198.51.100.2"]),
        (b"backup.example", ["198.51.100.1", "2001:db8::1"]),
        (b"[198.51.100.7]", ["198.51.100.7"]),
        (b"[IPv6:2001:db8::7]", ["2001:db8::7"]),
    ],
)
def test_the_best_exchangers_addresses_come_first(home: RemoteHome, nexthop: bytes, addresses: list[str]) -> None:
    assert find(home, nexthop) == (addresses, 25)


@pytest.mark.parametrize(
    ("nexthop", "letter", "code"),
    [
        (b"nowhere.example", b"D", b"(#5.1.2)"),
        (b"", b"D", b"(#5.1.2)"),
        (b"two words.example", b"D", b"(#5.1.2)"),
        (b"\xe9.example", b"D", b"(#5.1.2)"),
        (b"a..example", b"D", b"(#5.1.2)"),
        (b"x" * 64 + b".example", b"D", b"(#5.1.2)"),
        (b"back\\046slash.example", b"D", b"(#5.1.2)"),
        (b"[192.0.2]", b"D", b"(#5.1.2)"),
        (b"[198.51.100.1", b"D", b"(#5.1.2)"),
        (b"null.example", b"D", b"(#5.1.10)"),
        (b"dangling.example", b"D", b"(#5.4.4)"),
        (b"text.example", b"D", b"(#5.4.4)"),
        (b"us.example", b"D", b"(#5.4.6)"),
        (b"loop.example", b"D", b"(#5.4.6)"),
        (b"[127.0.0.1]", b"D", b"(#5.4.6)"),
        (b"broken.example", b"Z", b"(#4.4.3)"),
        (b"broken-mx.example", b"Z", b"(#4.1.2)"),
    ],
)
def test_where_there_is_no_way_the_verdict_says_why(
    home: RemoteHome, nexthop: bytes, letter: bytes, code: bytes
) -> None:
    with pytest.raises(Unroutable) as raised:
        find(home, nexthop)
    assert raised.value.verdict[0] == letter
    assert code in raised.value.verdict[1]
    assert raised.value.scope == (HOST_SCOPE if letter == b"Z" else MESSAGE_SCOPE)


def test_exchangers_of_one_preference_take_turns(home: RemoteHome) -> None:
    firsts = {find(home, b"crowd.example")[0][0] for _ in range(20)}
    assert len(firsts) > 1


def test_a_crowd_of_exchangers_is_not_looked_up_to_its_end(home: RemoteHome, dns_server: DnsServer) -> None:
    assert len(find(home, b"crowd.example")[0]) >= ADDRESSES_ENOUGH
    assert len(dns_server.questions) < 40


@pytest.mark.parametrize(
    ("relay", "route"),
    [
        ("198.51.100.9", (["198.51.100.9"], 25)),
        ("198.51.100.9:2525", (["198.51.100.9"], 2525)),
        ("[2001:db8::9]:26", (["2001:db8::9"], 26)),
        ("localhost:2525", (["127.0.0.1", "::1"], 2525)),
    ],
)
def test_a_relay_by_address_or_localhost_needs_no_dns(
    home: RemoteHome, dns_server: DnsServer, relay: str, route: tuple[list[str], int]
) -> None:
    home.control("smtproutes", f":{relay}")
    assert find(home, b"two.example") == route
    assert dns_server.questions == []


def test_a_relay_by_name_is_looked_up_without_its_exchangers(home: RemoteHome) -> None:
    home.control("smtproutes", ":two.example\n.example:near.example:26\nfar.example:")
    assert find(home, b"a.example") == (["198.51.100.1", "2001:db8::1"], 26)
    assert find(home, b"far.example") == (["198.51.100.2"], 25)


def test_a_relay_that_does_not_exist_bounces_nothing(home: RemoteHome) -> None:
    home.control("smtproutes", ":nowhere.example")
    with pytest.raises(Unroutable) as raised:
        find(home, b"two.example")
    assert raised.value.verdict[0] == b"Z"


def test_an_answer_is_asked_for_once(home: RemoteHome, dns_server: DnsServer) -> None:
    router = Router(read_settings(Home(str(home.path))))

    async def twice() -> None:
        await router.find(b"two.example")
        await router.find(b"two.example")

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(twice())
    assert len(dns_server.questions) == len(set(dns_server.questions))


def test_a_name_server_that_does_not_answer_is_temporary(home: RemoteHome, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "LIFETIME", 0.2)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        home.control("resolver", f"127.0.0.1:{silent.getsockname()[1]}")
        with pytest.raises(Unroutable) as raised:
            find(home, b"two.example")
    assert (raised.value.verdict[0], raised.value.scope) == (b"Z", HOST_SCOPE)


def test_a_missing_resolv_conf_is_temporary(home: RemoteHome, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable(self: object, filename: str = "", configure: bool = True) -> None:
        assert configure
        raise dns.resolver.NoResolverConfiguration(filename)  # type: ignore[no-untyped-call]

    (home.path / "control" / "resolver").unlink()
    monkeypatch.setattr(dns.asyncresolver.Resolver, "__init__", unreadable)
    with pytest.raises(Unroutable) as raised:
        find(home, b"two.example")
    assert (raised.value.verdict[0], raised.value.scope) == (b"Z", HOST_SCOPE)


def test_our_own_addresses_are_those_of_the_interfaces_and_all_of_loopback() -> None:
    ourselves = Ourselves(b"Me.example")
    assert ourselves.is_name(b"ME.EXAMPLE.")
    assert not ourselves.is_name(b"you.example")
    assert all(ourselves.is_address(address) for address in ("127.0.0.1", "127.1.2.3", "::1", "0.0.0.0"))
    assert not ourselves.is_address("198.51.100.1")


def test_a_host_that_does_not_greet_us_gives_way_to_the_next_address(home: RemoteHome) -> None:
    with SmtpServer("127.0.0.3") as good:
        with RawServer(lambda peer: peer.say(b"554 not today"), "127.0.0.2", good.port) as bad:
            home.control("smtproutes", f":relay.example:{good.port}")
            with RemoteDaemon(home) as daemon:
                report = daemon.deliver(home.message(b"hello\n"), b"to@b.example")
        assert report.verdicts == [(b"K", b"127.0.0.3 (relay.example) accepted message.\nRemote host said: 250 ok\n")]
        assert bad.connections == 1


def test_a_host_that_refuses_connections_gives_way_to_the_next_address(home: RemoteHome) -> None:
    with SmtpServer("127.0.0.3") as good:
        home.control("smtproutes", f":relay.example:{good.port}")
        with RemoteDaemon(home) as daemon:
            report = daemon.deliver(home.message(b"hello\n"), b"to@b.example")
        assert report.verdicts[0][0] == b"K"


def test_dns_verdicts_reach_the_report_with_their_scope(home: RemoteHome) -> None:
    with RemoteDaemon(home) as daemon:
        path = home.message(b"hello\n")
        gone = daemon.deliver(path, b"a@nowhere.example", b"b@nowhere.example")
        later = daemon.deliver(path, b"a@broken.example")
    text = b"Sorry, I couldn't find any host named nowhere.example. (#5.1.2)\n"
    assert (gone.scope, gone.verdicts) == (MESSAGE_SCOPE, [(b"D", text)] * 2)
    assert (later.scope, later.verdicts) == (HOST_SCOPE, [(b"Z", b"CNAME lookup failed temporarily. (#4.4.3)\n")])
