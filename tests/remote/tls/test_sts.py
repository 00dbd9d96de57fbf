"""MTA-STS policies: how they are found by DNS and HTTPS, and for how long they are kept (RFC 8461)."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import uvloop

from queue_remote.route.resolver import Resolver
from queue_remote.tls import mta_sts
from queue_remote.tls.contexts import Contexts
from queue_remote.tls.mta_sts import FAILURE_SECONDS, REFRESH_SECONDS, StsCache, StsFound
from queue_wire.control.smtproutes import Relay
from support.servers.dns.authority import Certificate
from support.servers.dns.dns_server import DnsServer
from support.servers.policy_server import PATH, PolicyServer
from support.servers.smtp.raw_server import Peer, RawServer

CA = Certificate("test CA", authority=True)
NAMES = ["mta-sts.b.example"]
GOOD = Certificate("web", CA, names=NAMES)
POLICY = b"version: STSv1\r\nmode: enforce\r\nmx: *.b.example\r\nmax_age: 864000\r\n"
RECORDS = {("_mta-sts.b.example", "TXT"): ['"v=STSv1; " "id=1;"'], ("mta-sts.b.example", "A"): ["127.0.0.1"]}


class Place:
    """A domain's DNS and web server, and a cache that has heard of neither. `find` asks the cache."""

    def __init__(self, dns: DnsServer, web: PolicyServer) -> None:
        self.dns = dns
        self.web = web
        self.cache = StsCache()
        self.runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)

    def find(self, times: int = 1) -> StsFound:
        async def ask() -> list[StsFound]:
            # What a resolver has cached is not what is tested.
            resolver = Resolver([Relay(b"127.0.0.1", self.dns.port)])
            return await asyncio.gather(*[self.cache.find(resolver, Contexts(), b"b.example") for _ in range(times)])

        *_, last = self.runner.run(ask())
        return last

    def record(self, identity: str) -> None:
        self.dns.records["_mta-sts.b.example", "TXT"] = [f'"v=STSv1; id={identity};"']

    def wait_for_requests(self, count: int) -> None:
        async def turn() -> None:
            await asyncio.sleep(0.01)

        deadline = time.monotonic() + 60
        while len(self.web.requests) < count:
            assert time.monotonic() < deadline
            self.runner.run(turn())


@pytest.fixture
def served() -> Certificate:
    """The web server's certificate."""
    return GOOD


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, served: Certificate) -> Iterator[Place]:
    (tmp_path / "ca.pem").write_bytes(CA.pem)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    with DnsServer(dict(RECORDS)) as dns, PolicyServer(served) as web:
        web.policy(POLICY)
        monkeypatch.setattr(mta_sts, "HTTPS_PORT", web.port)
        made = Place(dns, web)
        with made.runner:
            try:
                yield made
            finally:
                made.runner.run(made.cache.aclose())


def policy_id(found: StsFound) -> bytes | None:
    return found.kept.id if found.kept else None


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Lets seconds pass."""
    real = mta_sts.boot_seconds

    def go(seconds: float) -> None:
        monkeypatch.setattr(mta_sts, "boot_seconds", lambda: real() + seconds)

    return go


def test_a_policy_is_fetched_from_its_well_known_place(place: Place) -> None:
    found = place.find()
    assert found.trouble == ""
    assert found.kept is not None and found.kept.policy.patterns == (b"*.b.example",)
    [[request, *headers]] = place.web.requests
    assert request == b"GET %s HTTP/1.1" % PATH
    assert b"Host: mta-sts.b.example" in headers


def test_a_domain_without_a_record_has_no_policy_and_nothing_is_fetched(place: Place) -> None:
    del place.dns.records["_mta-sts.b.example", "TXT"]
    assert place.find() == StsFound(None, "")
    assert place.web.connections == 0


def test_deliveries_at_the_same_time_share_one_fetch_and_later_ones_its_answer(place: Place) -> None:
    assert policy_id(place.find(times=20)) == b"1"
    assert policy_id(place.find()) == b"1"
    assert len(place.web.requests) == 1


@pytest.mark.parametrize(
    ("served", "what"),
    [
        (Certificate("web", CA, names=["www.b.example"]), "Hostname mismatch"),
        (Certificate("mta-sts.b.example", CA), "Hostname mismatch"),
        (Certificate("web", CA, names=NAMES, days=(-10, -5)), "certificate has expired"),
        (Certificate("web", names=NAMES), "self-signed certificate"),
    ],
)
def test_a_web_server_that_cannot_show_who_it_is_has_no_policy(place: Place, what: str) -> None:
    found = place.find()
    assert found.kept is None
    assert what in found.trouble


@pytest.mark.parametrize(
    ("status", "headers", "text", "what"),
    [
        (b"301 Moved", [b"Location: https://mta-sts.b.example/", b"Content-Type: text/plain"], POLICY, "answers 301"),
        (b"404 Not StsFound", [], POLICY, "answers 404"),
        (b"200 OK", [b"Content-Type: text/html"], POLICY, "no text/plain"),
        (b"200 OK", [b"Content-Type: text/plain", b"Content-Encoding: gzip"], POLICY, "compressed"),
        (b"200 OK", [], POLICY + b"x: y\n" * 20000, "more than 65536 bytes"),
        (b"200 OK", [], b"version: STSv1\nmode: enforce\nmax_age: 1\n", "no mx"),
        (b"200 OK", [], b"<html>", "no version STSv1"),
    ],
)
def test_an_answer_that_is_no_policy_is_none(
    place: Place, status: bytes, headers: list[bytes], text: bytes, what: str
) -> None:
    place.web.policy(text, status, *headers)
    found = place.find()
    assert found.kept is None
    assert what in found.trouble
    assert len(place.web.requests) == 1


@pytest.mark.parametrize(
    "answer", [b"", b"what?\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Le", b"HTTP/1.1 200 OK\r\n" * 9999]
)
def test_a_web_server_that_speaks_no_http_has_no_policy(place: Place, answer: bytes) -> None:
    place.web.answer = answer
    found = place.find()
    assert found.kept is None and found.trouble


def test_a_web_server_that_drips_is_not_listened_to_for_long(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def script(peer: Peer) -> None:
        peer.start_tls(GOOD.server_context())
        peer.hear()
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 60000\r\n\r\n")
        with contextlib.suppress(OSError):
            while True:
                peer.drip(b"x: y\n", 0.1)

    monkeypatch.setattr(mta_sts, "FETCH_SECONDS", 2.0)
    with RawServer(script) as server:
        monkeypatch.setattr(mta_sts, "HTTPS_PORT", server.port)
        begun = time.monotonic()
        assert "not fetched in" in place.find().trouble
        assert time.monotonic() - begun < 20


def test_a_web_server_that_is_not_there_is_trouble(place: Place) -> None:
    del place.dns.records["mta-sts.b.example", "A"]
    assert "mta-sts.b.example has no address" in place.find().trouble


def test_dns_that_does_not_answer_is_trouble_and_what_is_known_counts(place: Place) -> None:
    place.find()
    place.dns.broken = frozenset(["_mta-sts.b.example"])
    found = place.find()
    assert policy_id(found) == b"1"
    assert "_mta-sts.b.example" in found.trouble


def test_a_failure_is_not_tried_again_so_soon_unless_the_id_changes(
    place: Place, later: Callable[[float], None]
) -> None:
    place.web.policy(POLICY, b"503 Busy")
    assert [policy_id(place.find()) for _ in range(2)] == [None, None]
    assert len(place.web.requests) == 1
    place.record("2")
    assert "503" in place.find().trouble
    assert len(place.web.requests) == 2
    place.web.policy(POLICY)
    later(FAILURE_SECONDS + 1)
    assert policy_id(place.find()) == b"2"


def test_a_new_id_brings_the_new_policy(place: Place) -> None:
    place.find()
    place.record("2")
    place.web.policy(POLICY.replace(b"enforce", b"none"))
    found = place.find()
    assert policy_id(found) == b"2"
    assert found.kept is not None and found.kept.policy.mode.value == b"none"


def test_a_policy_counts_until_its_age_is_over_whatever_vanishes(place: Place, later: Callable[[float], None]) -> None:
    place.find()
    place.record("2")
    place.web.policy(POLICY, b"404 Not StsFound")
    assert policy_id(place.find()) == b"1"
    place.dns.records.clear()
    later(863000)
    assert policy_id(place.find()) == b"1"
    later(864001)
    assert place.find() == StsFound(None, "")


def test_a_clock_that_is_put_back_keeps_no_failure_and_one_put_forward_makes_no_policy_old(
    place: Place, later: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = time.time
    place.web.policy(POLICY, b"404 Not StsFound")
    assert place.find().kept is None
    monkeypatch.setattr(time, "time", lambda: real() - 86400)
    later(FAILURE_SECONDS + 1)
    place.web.policy(POLICY)
    assert policy_id(place.find()) == b"1"
    monkeypatch.setattr(time, "time", lambda: real() + 100 * 86400)
    assert policy_id(place.find()) == b"1"
    assert len(place.web.requests) == 2


def test_an_old_policy_is_fetched_again_while_nobody_waits_for_it(place: Place, later: Callable[[float], None]) -> None:
    place.find()
    place.web.policy(POLICY.replace(b"*.b.example", b"mx.b.example"))
    later(REFRESH_SECONDS + 1)
    old = place.find()
    assert old.kept is not None and old.kept.policy.patterns == (b"*.b.example",)
    place.wait_for_requests(2)
    deadline = time.monotonic() + 60
    while (kept := place.find().kept) is None or kept.policy.patterns != (b"mx.b.example",):
        assert time.monotonic() < deadline
    assert len(place.web.requests) == 2
