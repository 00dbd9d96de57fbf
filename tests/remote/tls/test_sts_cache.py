"""MTA-STS policies in memory: how many are kept, and what a hostile sender can make of that."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import ClassVar

import pytest
import uvloop

from queue_base.dns_lookups import DnsAnswer
from queue_remote.route.resolver import Resolver
from queue_remote.tls import mta_sts
from queue_remote.tls.contexts import Contexts
from queue_remote.tls.mta_sts import StsCache
from queue_wire.control.smtproutes import Relay
from support.servers.dns.dns_server import DnsServer
from support.servers.dns.known_names import KnownNames

POLICY = b"version: STSv1\nmode: enforce\nmx: *.example\nmax_age: 864000\n"


def find_all(cache: StsCache, names: str) -> None:
    """Ask the cache for the policies of domains called by a letter each, which all have one."""
    records = {(f"_mta-sts.{name}.example", "TXT"): ['"v=STSv1; id=1"'] for name in names}

    async def find(port: int) -> None:
        resolver = Resolver([Relay(b"127.0.0.1", port)])
        for name in names:
            assert (await cache.find(resolver, Contexts(), f"{name}.example".encode())).kept is not None

    with DnsServer(records) as dns, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(find(dns.port))


def caching(text: bytes) -> tuple[StsCache, list[str]]:
    """Return a cache that gets this text from all web servers, and the list of those that it asked."""
    asked: list[str] = []

    async def fetch(host: str, addresses: list[str], context: object) -> bytes:
        asked.append(host.removeprefix("mta-sts.").removesuffix(".example"))
        return text

    return StsCache(fetch), asked


def test_what_was_used_least_is_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("queue_remote.tls.mta_sts.KEPT_MAX", 2)
    cache, asked = caching(POLICY)
    find_all(cache, "abacab")
    assert asked == ["a", "b", "c", "b"]


def test_large_policies_make_room_by_their_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("queue_remote.tls.mta_sts.KEPT_BYTES_MAX", 2_000_000)
    cache, asked = caching(POLICY + b"mx:a\n" * 12000)
    find_all(cache, "abacab")
    assert asked == ["a", "b", "c", "b"]


def test_a_policy_that_arrives_while_dns_is_asked_is_the_one_that_counts() -> None:
    cache, asked = caching(POLICY)

    class SlowDns(KnownNames):
        """While the first answer is on its way, another delivery finds the policy."""

        slow = True

        async def ask(self, host: bytes, kind: str, secure: bool = False) -> DnsAnswer:
            if self.slow:
                self.slow = False
                await cache.find(self, Contexts(), b"a.example")
            return await super().ask(host, kind, secure)

    async def find() -> None:
        async with contextlib.aclosing(cache):
            assert (await cache.find(SlowDns(), Contexts(), b"a.example")).kept is not None

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(find())
    assert asked == ["a"]


class _Pieces:
    """A response whose body has come whole, in chunks of a byte."""

    status_code = 200
    headers: ClassVar = {"Content-Type": "text/plain"}

    async def aiter_raw(self) -> AsyncIterator[bytes]:
        for _ in range(5000):
            yield b"x"


def test_a_policy_in_chunks_of_a_byte_lets_others_have_their_turns() -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def read() -> None:
        task = asyncio.create_task(others())
        assert len(await mta_sts._body("mta-sts.a.example", _Pieces())) == 5000
        task.cancel()

    asyncio.run(read())
    assert turns >= 5000 // mta_sts.PIECES_A_TURN - 1
