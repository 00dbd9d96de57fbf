"""What is asked of DNS, how long answers are kept, and what counts as none."""

import asyncio
import errno
import os
import socket
import threading
import types
from collections.abc import Iterator
from pathlib import Path

import dns.asyncresolver
import pytest
import uvloop

from queue_base import dns_lookups
from queue_base.home import Home
from queue_remote.route.unroutable import Unroutable
from queue_wire.control.registry import RESOLVER
from queue_wire.control.smtproutes import Relay
from queue_wire.pipes.report import HOST_SCOPE, MESSAGE_SCOPE
from support.processes.remote_daemon import RemoteHome
from support.servers.dns.dns_server import DnsServer
from support.servers.routes import find, read_config, router_of

RECORDS = {
    ("two.example", "MX"): ["20 far.example.", "10 near.example."],
    ("near.example", "A"): ["198.51.100.1"],
    ("near.example", "AAAA"): ["2001:db8::1"],
    ("far.example", "A"): ["198.51.100.2"],
    ("signed.example", "MX"): ["10 far.example.", "20 near.example."],
}


@pytest.fixture
def dns_server() -> Iterator[DnsServer]:
    with DnsServer(dict(RECORDS), signed=frozenset({"signed.example", "near.example"})) as server:
        yield server


@pytest.fixture
def home(tmp_path: Path, dns_server: DnsServer) -> RemoteHome:
    return RemoteHome(tmp_path, resolver=f"127.0.0.1:{dns_server.port}")


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
    monkeypatch.setattr(dns_lookups, "time", types.SimpleNamespace(monotonic=lambda: now))
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
    monkeypatch.setattr(dns_lookups, "time", types.SimpleNamespace(monotonic=lambda: now))
    router = router_of(home)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        for _ in range(2):
            with pytest.raises(Unroutable):
                runner.run(router.find(b"new.example"))
        assert dns_server.questions == [("new.example", "MX")]
        dns_server.records["new.example", "MX"] = ["10 far.example."]
        now += dns_lookups.NOTHING_SECONDS + 1
        assert runner.run(router.find(b"new.example")).targets


def test_the_cache_holds_so_many_answers_and_forgets_the_one_unused_longest() -> None:
    cache = dns_lookups.AnswerCache(size=2)
    answer = dns_lookups.DnsAnswer(("192.0.2.1",), True, False, b"")
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
    file, new = tmp_path / "resolv.conf", tmp_path / "new"
    monkeypatch.setattr("queue_remote.route.router.RESOLV_CONF", str(file))
    monkeypatch.setattr(dns_lookups, "RESOLV_CONF", str(file))
    monkeypatch.setattr(dns_lookups, "LIFETIME", 0.2)
    (home.path / "control" / "resolver").unlink()
    router = router_of(home)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        absent = b"it cannot be read: no such file"
        steps = [("", absent), ("127.0.0.77", b"127.0.0.77@53"), ("127.0.0.78", b"127.0.0.78@53")]
        for server, words in steps:
            if server:
                new.write_text(f"nameserver {server}\n")
                new.rename(file)
            with pytest.raises(Unroutable) as raised:
                runner.run(router.find(b"two.example"))
            assert (raised.value.verdict[0], raised.value.scope) == (b"Z", HOST_SCOPE)
            assert words in raised.value.verdict[1]


@pytest.mark.parametrize(
    "line",
    [b"nameserver localhost", b"nameserver 127.0.0.1:53", b"# Z\xfcrich", b"nameserver", b"search b\xfccher..example"],
)
def test_a_line_of_resolv_conf_that_cannot_be_used_takes_no_other_server_away(
    home: RemoteHome,
    dns_server: DnsServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    line: bytes,
) -> None:
    file = tmp_path / "resolv.conf"
    file.write_bytes(line + b"\nnameserver 127.0.0.1\noptions rotate edns0 ndots:x timeout:\n")
    monkeypatch.setattr(dns_lookups, "RESOLV_CONF", str(file))
    monkeypatch.setattr(dns_lookups, "DNS_PORT", dns_server.port)
    (home.path / "control" / "resolver").unlink()
    assert find(home, b"two.example").targets
    warned = f"warning: unable to use {file} line 1: not the address of a DNS server: "
    assert (warned in capfd.readouterr().err) is line.startswith(b"nameserver")


def test_a_resolv_conf_without_a_server_that_can_be_used_is_temporary_and_says_what_is_wrong(
    home: RemoteHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "resolv.conf"
    file.write_bytes(b"nameserver localhost\n")
    monkeypatch.setattr(dns_lookups, "RESOLV_CONF", str(file))
    (home.path / "control" / "resolver").unlink()
    with pytest.raises(Unroutable) as raised:
        find(home, b"two.example")
    assert raised.value.verdict[0] == b"Z"
    assert b"line 1: not the address of a DNS server: 'localhost'" in raised.value.verdict[1]


def test_an_answer_with_very_long_names_is_refused_before_it_is_parsed(tmp_path: Path) -> None:
    records = [f"10 x{number}.{'a.' * 100}example." for number in range(30)]
    with DnsServer({("deep.example", "MX"): records}) as server:
        home = RemoteHome(tmp_path, resolver=f"127.0.0.1:{server.port}")
        with pytest.raises(Unroutable) as raised:
            find(home, b"deep.example")
    assert b"AnswerTooLarge" in raised.value.verdict[1]


def test_an_exception_that_the_library_does_not_declare_is_a_failed_lookup(
    home: RemoteHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise ValueError("of the library")

    monkeypatch.setattr(dns.asyncresolver.Resolver, "resolve", fail)
    with pytest.raises(Unroutable) as raised:
        find(home, b"two.example")
    assert (raised.value.verdict[0], raised.value.scope) == (b"Z", HOST_SCOPE)


@pytest.mark.parametrize("reply", [b"", b"nonsense", b"\x81\x80" + b"\xff" * 8, b"\x81\x80" + b"\0" * 8])
def test_a_server_that_talks_nonsense_is_temporary(
    home: RemoteHome, monkeypatch: pytest.MonkeyPatch, reply: bytes
) -> None:
    monkeypatch.setattr(dns_lookups, "LIFETIME", 0.3)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        home.control("resolver", f"127.0.0.1:{server.getsockname()[1]}")

        def answer() -> None:
            while True:
                data, client = server.recvfrom(4096)
                if not data:
                    return
                server.sendto(data[:2] + reply, client)

        thread = threading.Thread(target=answer)
        thread.start()
        try:
            with pytest.raises(Unroutable) as raised:
                find(home, b"two.example")
        finally:
            server.sendto(b"", server.getsockname())
            thread.join(10)
    assert (raised.value.verdict[0], raised.value.scope) == (b"Z", HOST_SCOPE)


def test_want_of_descriptors_is_not_the_nexthops_fault(home: RemoteHome, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(dns_lookups._Backend, "make_socket", refuse)
    with pytest.raises(Unroutable) as raised:
        find(home, b"two.example")
    assert (raised.value.verdict[0], raised.value.scope) == (b"Z", MESSAGE_SCOPE)


@pytest.mark.parametrize(
    ("line", "server"),
    [
        ("192.0.2.53", (b"192.0.2.53", 53)),
        ("192.0.2.53:5353 ", (b"192.0.2.53", 5353)),
        ("2001:db8::53", (b"2001:db8::53", 53)),
        ("[2001:db8::53]:5353", (b"2001:db8::53", 5353)),
    ],
)
def test_a_line_of_control_resolver_is_an_address_with_a_port_or_without(
    home: RemoteHome, line: str, server: tuple[bytes, int]
) -> None:
    home.control("resolver", f"# ours\n{line}\n127.0.0.1")
    assert read_config(Home(str(home.path))).values[RESOLVER] == [Relay(*server), Relay(b"127.0.0.1", 53)]
