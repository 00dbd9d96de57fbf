"""Routes without a resolver of the field: relays, literals, what is asked and kept, and the daemon's reports."""

import asyncio
import types
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvloop

from queue_base.home import Home
from queue_remote import answers, route, stub
from queue_remote.lookup import Unroutable
from queue_remote.order import Target
from queue_remote.ourselves import Ourselves
from queue_remote.route import Route, Router
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
    ("half.example", "MX"): ["10 broken.example.", "20 far.example."],
    ("signed.example", "MX"): ["10 far.example.", "20 near.example."],
}


@pytest.fixture
def dns_server() -> Iterator[DnsServer]:
    signed = frozenset({"signed.example", "near.example"})
    with DnsServer(dict(RECORDS), broken=frozenset({"broken.example"}), signed=signed) as server:
        yield server


@pytest.fixture
def home(tmp_path: Path, dns_server: DnsServer) -> RemoteHome:
    return RemoteHome(tmp_path, resolver=f"127.0.0.1:{dns_server.port}", timeoutremote="20", timeoutconnect="5")


def router_of(home: RemoteHome) -> Router:
    return Router(read_settings(Home(str(home.path))))


def find(home: RemoteHome, nexthop: bytes, times: int = 1) -> list[Route]:
    router = router_of(home)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return [runner.run(router.find(nexthop)) for _ in range(times)]


def tries(home: RemoteHome, nexthop: bytes) -> list[tuple[bytes, str, int]]:
    return [target[:3] for target in find(home, nexthop)[0].targets]


@pytest.mark.parametrize(
    ("nexthop", "address"),
    [
        (b"[198.51.100.7]", "198.51.100.7"),
        (b"[IPv6:2001:db8::7]", "2001:db8::7"),
        (b"[ipv6:2001:DB8:0::7]", "2001:db8::7"),
    ],
)
def test_an_address_literal_needs_no_dns(home: RemoteHome, dns_server: DnsServer, nexthop: bytes, address: str) -> None:
    assert find(home, nexthop)[0].targets == [Target(b"", address, 25, False)]
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
    assert find(home, b"two.example")[0].relayed
    assert dns_server.questions == []


def test_a_relay_by_name_is_looked_up_without_its_exchangers(home: RemoteHome, dns_server: DnsServer) -> None:
    home.control("smtproutes", ":two.example\n.example:Near.example.:26\nfar.example:")
    found = tries(home, b"a.example")
    assert found == [(b"near.example", "198.51.100.1", 26), (b"near.example", "2001:db8::1", 26)]
    assert tries(home, b"far.example") == [(b"far.example", "198.51.100.2", 25)]
    assert ("near.example", "MX") not in dns_server.questions


def test_relays_are_tried_in_order_and_equals_by_lot(home: RemoteHome) -> None:
    home.control("smtproutes", ":198.51.100.1+198.51.100.2:26,198.51.100.3")
    found = [[target.address for target in each.targets] for each in find(home, b"a.example", times=60)]
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


def test_an_answer_is_asked_for_once(home: RemoteHome, dns_server: DnsServer) -> None:
    router = router_of(home)

    async def often() -> None:
        await asyncio.gather(*(router.find(b"two.example") for _ in range(20)))
        await router.find(b"two.example")

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(often())
    assert len(dns_server.questions) == len(set(dns_server.questions))


@pytest.mark.parametrize(("ttl", "later", "asked"), [(60, 59, 1), (60, 61, 2), (0, 0, 2), (10**6, 3601, 2)])
def test_an_answer_is_kept_as_long_as_it_may_be(
    home: RemoteHome, dns_server: DnsServer, monkeypatch: pytest.MonkeyPatch, ttl: int, later: int, asked: int
) -> None:
    dns_server.ttl = ttl
    now = 1000.0
    monkeypatch.setattr(answers, "time", types.SimpleNamespace(monotonic=lambda: now))
    router = router_of(home)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(router.find(b"two.example"))
        now += later
        runner.run(router.find(b"two.example"))
    assert dns_server.questions.count(("two.example", "MX")) == asked


def test_that_there_is_none_is_kept_too_but_not_for_long(
    home: RemoteHome, dns_server: DnsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(answers, "time", types.SimpleNamespace(monotonic=lambda: now))
    router = router_of(home)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        for _ in range(2):
            with pytest.raises(Unroutable):
                runner.run(router.find(b"new.example"))
        assert dns_server.questions == [("new.example", "MX")]
        dns_server.records["new.example", "MX"] = ["10 far.example."]
        now += answers.NOTHING_SECONDS + 1
        assert runner.run(router.find(b"new.example")).targets


def test_the_cache_holds_so_many_answers_and_forgets_the_one_unused_longest() -> None:
    cache = answers.AnswerCache(size=2)
    answer = answers.Answer(("192.0.2.1",), True, False, b"")
    first, second, third = [(name, "A", False) for name in (b"1", b"2", b"3")]
    cache.put(first, answer, 60)
    cache.put(second, answer, 60)
    assert cache.get(first) is answer
    cache.put(third, answer, 60)
    assert (cache.get(first), cache.get(second), cache.get(third)) == (answer, None, answer)


def test_dnssec_is_asked_about_only_on_demand_and_told_for_each_address(home: RemoteHome) -> None:
    router = router_of(home)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        plain = runner.run(router.find(b"signed.example"))
        signed = runner.run(router.find(b"signed.example", secure=True))
        other = runner.run(router.find(b"two.example", secure=True))
    assert not plain.secure and not any(target.secure for target in plain.targets)
    assert signed.secure
    assert [(target.host, target.secure) for target in signed.targets] == [
        (b"far.example", False),
        (b"near.example", True),
        (b"near.example", True),
    ]
    assert not other.secure
    # Without a secure MX record nobody vouches for the name that the addresses are of.
    assert not any(target.secure for target in other.targets)


def test_the_systems_resolver_is_read_again_when_it_changes(
    home: RemoteHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "resolv.conf"
    monkeypatch.setattr(route, "RESOLV_CONF", str(file))
    monkeypatch.setattr(stub, "RESOLV_CONF", str(file))
    monkeypatch.setattr(stub, "LIFETIME", 0.2)
    (home.path / "control" / "resolver").unlink()
    router = router_of(home)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        for content, words in ((None, b"it names no DNS server"), ("nameserver 127.0.0.77\n", b"127.0.0.77@53")):
            if content is not None:
                file.write_text(content)
            with pytest.raises(Unroutable) as raised:
                runner.run(router.find(b"two.example"))
            assert (raised.value.verdict[0], raised.value.scope) == (b"Z", HOST_SCOPE)
            assert words in raised.value.verdict[1]


def test_our_own_addresses_are_those_of_the_interfaces_and_all_of_loopback() -> None:
    ourselves = Ourselves(b"Me.example")
    assert ourselves.is_name(b"ME.EXAMPLE.")
    assert not ourselves.is_name(b"you.example")
    assert all(ourselves.is_address(address) for address in ("127.0.0.1", "127.1.2.3", "::1", "0.0.0.0"))
    assert ourselves.is_address("::ffff:127.0.0.1")
    assert not ourselves.is_address("198.51.100.1")
    assert not ourselves.is_address("::ffff:198.51.100.1")


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
