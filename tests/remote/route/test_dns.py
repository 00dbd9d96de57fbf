"""From a nexthop to addresses, and the verdicts where there is no way, as a real resolver (unbound) answers."""

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop

from queue_base.dns_lookups import StubResolver
from queue_remote.route.order import ADDRESSES_ENOUGH, TARGETS_MAX
from queue_remote.route.router import Route
from queue_remote.route.unroutable import Unroutable
from queue_wire.pipes.report import HOST_SCOPE, MESSAGE_SCOPE
from support.processes.remote_daemon import RemoteHome
from support.servers.dns.unbound import Unbound
from support.servers.routes import find, find_often, router_of

# Names in a loop of CNAMEs are SERVFAIL.
ZONE = """
two             MX 20 far
                MX 10 near
near            A 198.51.100.1
                AAAA 2001:db8::1
far             A 198.51.100.2
bare            A 198.51.100.3
six             AAAA 2001:db8::6
alias           CNAME alias2
alias2          CNAME two
named           MX 10 nickname
nickname        CNAME far
xn--bcher-kva   MX 10 far
null            MX 0 .
null-too        MX 0 .
                MX 10 far
dangling        MX 10 nowhere
dangling-alias  CNAME nowhere
half-dangling   MX 10 nowhere
                MX 20 far
text            TXT "no address"
text-mx         MX 10 text
us              MX 10 client
loop            A 127.0.0.9
mapped          AAAA ::ffff:127.0.0.1
any             A 0.0.0.0
backup          MX 10 near
                MX 20 far
                MX 20 loop
                MX 30 bare
backup-named    MX 10 near
                MX 20 client
                MX 20 far
perhaps-us      MX 10 broken
                MX 20 client
broken          CNAME broken2
broken2         CNAME broken
broken-mx       MX 10 broken
half            MX 10 broken
                MX 20 far
half-refused    MX 10 refused
                MX 20 far
silent-mx       MX 10 silent
odd-mx          MX 10 a\\032b
                MX 20 far
address-mx      MX 10 192.0.2.1.
                MX 20 2001:db8::5.
own-address-mx  MX 10 127.0.0.9.
"""
MANY = "".join(f"crowd MX 10 c{number}\nc{number} A 10.0.0.{number}\nhorde A 10.0.0.{number}\n" for number in range(40))

MANY += "".join(f"swarm MX 10 a-long-name-of-a-host-{number}\n" for number in range(400))


@pytest.fixture(scope="module")
def resolver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Unbound]:
    zones, refused, silent = {"example": ZONE + MANY}, ["refused.example"], ["silent.example"]
    with Unbound(tmp_path_factory.mktemp("unbound"), zones, refused=refused, silent=silent) as server:
        yield server


@pytest.fixture
def home(tmp_path: Path, resolver: Unbound) -> RemoteHome:
    home = RemoteHome(tmp_path, resolver=resolver.address)
    home.control("me", "client.example")
    return home


NEAR_AND_FAR = ["near 198.51.100.1", "near 2001:db8::1", "far 198.51.100.2"]


@pytest.mark.parametrize(
    ("nexthop", "targets"),
    [
        ("two.example", NEAR_AND_FAR),
        ("TWO.Example.", NEAR_AND_FAR),
        ("alias.example", NEAR_AND_FAR),
        ("bare.example", ["bare 198.51.100.3"]),
        ("six.example", ["six 2001:db8::6"]),
        ("named.example", ["nickname 198.51.100.2"]),
        ("bücher.example", ["far 198.51.100.2"]),
        ("BÜCHER.example", ["far 198.51.100.2"]),
        ("null-too.example", ["far 198.51.100.2"]),
        ("half.example", ["far 198.51.100.2"]),
        ("half-refused.example", ["far 198.51.100.2"]),
        ("half-dangling.example", ["far 198.51.100.2"]),
        ("odd-mx.example", ["far 198.51.100.2"]),
        ("address-mx.example", ["192.0.2.1 192.0.2.1", "2001:db8::5 2001:db8::5"]),
        ("backup.example", NEAR_AND_FAR[:2]),
        ("backup-named.example", NEAR_AND_FAR[:2]),
    ],
)
def test_the_best_exchangers_addresses_come_first(home: RemoteHome, nexthop: str, targets: list[str]) -> None:
    route = find(home, nexthop.encode())
    assert [f"{one.host.decode().removesuffix('.example')} {one.address}" for one in route.targets] == targets
    assert {one.port for one in route.targets} == {25}
    assert (route.relayed, route.secure, any(one.secure for one in route.targets)) == (False, False, False)


@pytest.mark.parametrize(
    ("nexthop", "letter", "code", "words"),
    [
        (b"nowhere.example", b"D", b"(#5.1.2)", b"nowhere.example"),
        (b"dangling-alias.example", b"D", b"(#5.1.2)", b"dangling-alias.example"),
        (b"null.example", b"D", b"(#5.1.10)", b"null.example has a null MX"),
        (b"dangling.example", b"D", b"(#5.4.4)", b"dangling.example: no address for nowhere.example."),
        (b"text.example", b"D", b"(#5.4.4)", b"text.example: no address for text.example."),
        (b"text-mx.example", b"D", b"(#5.4.4)", b"text-mx.example: no address for text.example."),
        (b"own-address-mx.example", b"D", b"(#5.4.6)", b"mail loops back to me: 127.0.0.9 is this host."),
        (b"us.example", b"D", b"(#5.4.6)", b"us.example: mail loops back to me: client.example is this host."),
        (b"loop.example", b"D", b"(#5.4.6)", b"mail loops back to me: 127.0.0.9 is this host."),
        (b"mapped.example", b"D", b"(#5.4.6)", b"mail loops back to me: ::ffff:127.0.0.1 is this host."),
        (b"any.example", b"D", b"(#5.4.6)", b"mail loops back to me"),
        (b"broken.example", b"Z", b"(#4.4.3)", b"DNS: broken.example MX: "),
        (b"broken-mx.example", b"Z", b"(#4.1.2)", b"DNS: broken.example A"),
        (b"perhaps-us.example", b"Z", b"(#4.1.2)", b"DNS: broken.example A"),
        (b"refused.example", b"Z", b"(#4.4.3)", b"REFUSED"),
    ],
)
def test_where_there_is_no_way_the_verdict_says_why(
    home: RemoteHome, nexthop: bytes, letter: bytes, code: bytes, words: bytes
) -> None:
    with pytest.raises(Unroutable) as raised:
        find(home, nexthop)
    assert raised.value.verdict[0] == letter
    assert code in raised.value.verdict[1] and words in raised.value.verdict[1]
    assert raised.value.scope == (HOST_SCOPE if letter == b"Z" else MESSAGE_SCOPE)
    assert raised.value.reasons


@pytest.mark.parametrize("nexthop", [b"silent.example", b"silent-mx.example"])
def test_a_question_that_is_not_answered_is_temporary(
    home: RemoteHome, monkeypatch: pytest.MonkeyPatch, nexthop: bytes
) -> None:
    monkeypatch.setattr("queue_base.dns_lookups.LIFETIME", 0.2)
    with pytest.raises(Unroutable) as raised:
        find(home, nexthop)
    assert (raised.value.verdict[0], raised.value.scope) == (b"Z", HOST_SCOPE)
    assert b"silent.example" in raised.value.verdict[1] and b"no answer in time" in raised.value.verdict[1]


def test_an_answer_too_long_for_a_datagram_comes_whole_by_tcp(home: RemoteHome) -> None:
    routes = find_often(home, b"crowd.example", 20)
    assert all(ADDRESSES_ENOUGH <= len(route.targets) <= TARGETS_MAX for route in routes)
    assert len({route.targets[0] for route in routes}) > 1
    assert all(any("more hosts are not looked up" in reason for reason in route.reasons) for route in routes)


def test_an_answer_that_would_take_long_to_read_is_none(home: RemoteHome) -> None:
    with pytest.raises(Unroutable) as raised:
        find(home, b"swarm.example")
    assert (raised.value.verdict[0], raised.value.scope) == (b"Z", HOST_SCOPE)
    assert b"AnswerTooLarge" in raised.value.verdict[1]


def test_a_host_with_very_many_addresses_is_not_tried_at_each(home: RemoteHome) -> None:
    assert len(find(home, b"horde.example").targets) < ADDRESSES_ENOUGH


def test_the_steps_tell_what_counts_and_what_is_left_out(home: RemoteHome) -> None:
    # far, the equal of the one that is this host, is looked up or not, as the lot falls.
    assert [reason for reason in find(home, b"backup.example").reasons if "far" not in reason] == [
        "smtproutes: no line for it",
        "MX 10 near.example: 198.51.100.1, 2001:db8::1",
        "MX 20 loop.example: 127.0.0.9",
        "MX 20 127.0.0.9: this host (its address): left out, with all at 20 or more",
    ]


def test_dns_that_is_not_there_at_all_is_temporary_at_once(home: RemoteHome) -> None:
    home.control("resolver", "127.0.0.1:1\n[::1]:1")
    with pytest.raises(Unroutable) as raised:
        find(home, b"two.example")
    assert (raised.value.verdict[0], raised.value.scope) == (b"Z", HOST_SCOPE)
    # Not after a wait for an answer.
    assert b"127.0.0.1@1 connection refused, ::1@1 connection refused" in raised.value.verdict[1]


def test_a_resolver_that_is_silent_is_waited_for_once_and_then_asked_last(
    home: RemoteHome, resolver: Unbound, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The other answers before, also where it shares the processor.
    monkeypatch.setattr("queue_base.dns_lookups.PATIENCE", 1.0)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        silent.setblocking(False)
        home.control("resolver", f"127.0.0.1:{silent.getsockname()[1]}\n{resolver.address}")
        assert len(find(home, b"two.example").targets) == 3
        assert silent.recv(4096)
        with pytest.raises(BlockingIOError):
            silent.recv(4096)


def test_no_more_questions_are_asked_at_once_than_the_event_loop_keeps_up_with(
    home: RemoteHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = StubResolver.ask
    asking = most = 0

    async def counted(self: StubResolver, *question: Any) -> Any:
        nonlocal asking, most
        asking += 1
        most = max(most, asking)
        try:
            return await ask(self, *question)
        finally:
            asking -= 1

    monkeypatch.setattr(StubResolver, "ask", counted)
    monkeypatch.setattr("queue_base.dns_lookups.QUESTIONS_MAX", 3)

    async def crowd() -> list[Route]:
        router = router_of(home)
        return await asyncio.gather(*(router.find(b"c%d.example" % number) for number in range(20)))

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert all(route.targets for route in runner.run(crowd()))
    assert most == 3


def test_a_resolver_that_is_down_gives_way_to_the_next(home: RemoteHome, resolver: Unbound) -> None:
    home.control("resolver", f"127.0.0.1:1\n{resolver.address}")
    assert len(find(home, b"two.example").targets) == 3
