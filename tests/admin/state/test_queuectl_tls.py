"""What `queuectl route` says of TLS: the line that counts, what DNS and HTTPS say, and what comes of it."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvloop

from queue_base.home import Home
from queue_remote.explain import explain
from queue_remote.tls import mta_sts
from support.processes.remote_daemon import RemoteHome
from support.servers.dns.authority import Certificate
from support.servers.dns.dns_server import DnsServer
from support.servers.dns.signed_zone import sign
from support.servers.dns.unbound import Unbound
from support.servers.policy_server import PolicyServer

CA = Certificate("test CA", authority=True)
WEB = Certificate("web", CA, names=["mta-sts.b.example"])
POLICY = b"version: STSv1\nmode: enforce\nmx: *.mx.example\nmax_age: 864000\n"
ZONE = f"""
b              MX 10 a.mx
               MX 20 other
_mta-sts.b     TXT "v=STSv1; id=7;"
mta-sts.b      A 127.0.0.1
a.mx           A 198.51.100.1
_25._tcp.a.mx  TLSA 3 1 1 {"ab" * 32}
other          A 198.51.100.2
plain          MX 10 other
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RemoteHome]:
    (tmp_path / "ca.pem").write_bytes(CA.pem)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    signed = sign("example", ZONE)
    with (
        Unbound(tmp_path / "dns", {"example": signed.text}, server=[signed.trust], validate=True) as dns,
        PolicyServer(WEB) as web,
    ):
        web.policy(POLICY)
        monkeypatch.setattr(mta_sts, "HTTPS_PORT", web.port)
        yield RemoteHome(tmp_path, resolver=dns.address)


def tls_lines(home: RemoteHome, nexthop: bytes) -> list[str]:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        code, lines = runner.run(explain(Home(str(home.path)), nexthop))
    assert code == 0
    return [line for line in lines.decode().splitlines() if line.startswith("tls")]


POLICY_LINE = "tls: MTA-STS of b.example: id 7, mode enforce, max_age 864000, mx *.mx.example"
STS = "MTA-STS of b.example, id 7, mode enforce"
DANE = "DANE, _25._tcp.a.mx.example TLSA 3 1 1 abababababababab..."
WITH_CA = "with a certificate for a.mx.example from a CA that is trusted"


def test_dane_comes_before_mta_sts_and_mta_sts_before_the_level(home: RemoteHome) -> None:
    home.control("tlspolicy", "b.example:may sts=enforce dane=enforce")
    assert tls_lines(home, b"b.example") == [
        "tls: control/tlspolicy has b.example:may sts=enforce dane=enforce",
        POLICY_LINE,
        f"tls 1: required, by {DANE}",
        f"tls 2: no mail goes there: other.example is no mx of the policy, by {STS}",
    ]


def test_what_is_only_tested_is_told(home: RemoteHome) -> None:
    home.control("tlspolicy", "b.example:verify sts=enforce dane=test\n:may sts=test dane=enforce")
    assert tls_lines(home, b"b.example")[2:] == [
        f"tls 1: required, {WITH_CA}, by {STS}; tested: {DANE}",
        f"tls 2: no mail goes there: other.example is no mx of the policy, by {STS}",
    ]
    assert tls_lines(home, b"plain.example") == [
        "tls: control/tlspolicy has :may sts=test dane=enforce",
        "tls: MTA-STS of plain.example: none",
        "tls 1: where it is offered, with any certificate, else in clear, by may",
    ]


def test_a_line_that_does_not_mention_them_asks_nobody(home: RemoteHome) -> None:
    home.control("tlspolicy", "b.example:implicit name=mail.example")
    assert tls_lines(home, b"b.example") == [
        "tls: control/tlspolicy has b.example:implicit name=mail.example",
        *[
            f"tls {number}: from the first byte, on port 465, with a certificate for mail.example from a CA that is "
            "trusted, by implicit"
            for number in (1, 2)
        ],
    ]
    assert tls_lines(home, b"plain.example")[0] == "tls: no line of control/tlspolicy for it: may"


def test_no_dane_without_dnssec_is_told(home: RemoteHome) -> None:
    home.control("tlspolicy", ":may dane=enforce")
    home.control("smtproutes", ":198.51.100.9")
    assert tls_lines(home, b"b.example") == [
        "tls: control/tlspolicy has :may dane=enforce",
        "tls: no DANE at 198.51.100.9: DNSSEC does not vouch for its address",
        "tls 1: where it is offered, with any certificate, else in clear, by may",
    ]


@pytest.mark.parametrize(
    ("signed", "plan"),
    [
        ({"mx.example"}, "where it is offered"),
        ({"_25._tcp.mx.example"}, "where it is offered"),
        ({"mx.example", "_25._tcp.mx.example"}, "required, by DANE"),
    ],
)
def test_dnssec_must_vouch_for_the_address_and_for_the_records(tmp_path: Path, signed: set[str], plan: str) -> None:
    records = {("mx.example", "A"): ["198.51.100.1"], ("_25._tcp.mx.example", "TLSA"): ["3 1 1 " + "ab" * 32]}
    with DnsServer(records, signed=frozenset(signed)) as dns:
        home = RemoteHome(tmp_path, resolver=f"127.0.0.1:{dns.port}", tlspolicy=":may dane=enforce")
        home.control("smtproutes", ":mx.example")
        assert tls_lines(home, b"b.example")[-1].startswith(f"tls 1: {plan}")
