"""DNS lists: which clients are listed, and what a list that does not answer means. A real DNS server answers."""

import asyncio
import socket
import time

import pytest

from queue_smtpd.processes.log_writer import LogWriter
from queue_smtpd.strangers import list_lookups
from queue_smtpd.strangers.list_lookups import FAILURES_MAX, REST_SECONDS, ListLookups
from queue_wire.control.smtproutes import Relay
from queue_wire.control.strangers.dnslists import unpack_dns_lists
from support.servers.dns.dns_server import DnsServer

RECORDS = {
    ("9.2.0.192.first.example", "A"): ["127.0.0.9"],
    ("9.2.0.192.second.example", "A"): ["127.0.0.2", "127.0.0.4"],
    ("8.2.0.192.second.example", "A"): ["127.0.0.4"],
    ("7.2.0.192.second.example", "A"): ["127.255.255.254"],
}
LISTS = unpack_dns_lists(b"first.example 127.0.0.2..8\nsecond.example\n")


class Lines(LogWriter):
    def __init__(self) -> None:
        self.lines: list[bytes] = []

    def write(self, lines: list[bytes]) -> None:
        self.lines += lines


def test_the_first_list_that_has_the_address_counts() -> None:
    async def play(lookups: ListLookups) -> None:
        assert await lookups.find("192.0.2.9") == b"Your address 192.0.2.9 is listed by second.example (127.0.0.2)"
        assert await lookups.find("192.0.2.8") == b"Your address 192.0.2.8 is listed by second.example (127.0.0.4)"
        assert await lookups.find("192.0.2.1") is await lookups.find("2001:db8::1") is await lookups.find("") is None

    with DnsServer(dict(RECORDS)) as server:
        lookups = ListLookups(Lines())
        lookups.configure(LISTS, [Relay(b"127.0.0.1", server.port)])
        asyncio.run(play(lookups))
        asked = len(server.questions)
        assert asked == len(set(server.questions)) == 8


@pytest.mark.parametrize("address", ["192.0.2.7", "192.0.2.6"])
def test_a_list_that_fails_or_refuses_to_answer_is_not_asked_for_a_while(address: str) -> None:
    now, log = 1000.0, Lines()

    async def play(server: DnsServer) -> None:
        nonlocal now
        for _ in range(FAILURES_MAX + 2):
            assert await lookups.find(address) is None
        assert len(log.lines) == 1
        assert log.lines[0].startswith(b"warning: DNS list second.example does not answer: ")
        before = len(server.questions)
        # Not even for one that it has.
        assert await lookups.find("192.0.2.8") is None
        now += REST_SECONDS
        assert await lookups.find("192.0.2.8") is not None
        assert ("8.2.0.192.second.example", "A") in server.questions[before:]

    with DnsServer(dict(RECORDS), broken=frozenset(("6.2.0.192.second.example",))) as server:
        lookups = ListLookups(log, lambda: now)
        lookups.configure(LISTS, [Relay(b"127.0.0.1", server.port)])
        asyncio.run(play(server))


def test_a_list_that_says_nothing_is_waited_for_some_seconds_and_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_lookups, "ANSWER_SECONDS", 0.3)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        lookups = ListLookups(Lines())
        lookups.configure(LISTS, [Relay(b"127.0.0.1", silent.getsockname()[1])])
        begun = time.monotonic()
        assert asyncio.run(lookups.find("192.0.2.9")) is None
        assert time.monotonic() - begun < 30


def test_an_answer_by_udp_that_would_take_long_to_read_is_none() -> None:
    many = [f"127.0.{number >> 8}.{number & 255}" for number in range(2, 2000)]

    async def play(lookups: ListLookups) -> None:
        for _ in range(FAILURES_MAX):
            assert await lookups.find("192.0.2.5") is None

    with DnsServer({("5.2.0.192.second.example", "A"): many}) as server:
        log = Lines()
        lookups = ListLookups(log)
        lookups.configure(LISTS, [Relay(b"127.0.0.1", server.port)])
        asyncio.run(play(lookups))
    (line,) = log.lines
    assert line.startswith(b"warning: DNS list second.example does not answer: 127.0.0.1@")
    assert b" AnswerTooLarge; " in line
