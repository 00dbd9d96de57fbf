"""DANE at work: TLSA records in a signed zone, a resolver that validates, and servers that fit them or do not."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from queue_wire.pipes.report import HOST_SCOPE, Report
from support.processes.remote_daemon import RemoteDaemon, RemoteHome
from support.servers.dns.authority import Certificate
from support.servers.dns.signed_zone import sign
from support.servers.dns.unbound import Unbound
from support.servers.smtp.raw_server import RawServer
from support.servers.tls_peers import Script, in_clear, offers_no_tls, resets, starttls

TEXT = b"Subject: hello\n\nA message.\n"
# Nobody's name, out of date, and signed by itself: DANE does not mind.
OWN = Certificate("nobody", names=["nobody.example"], days=(-10, -5))
OTHER = Certificate("own", names=["own.example"])
CA = Certificate("CA", authority=True)
BY_CA = Certificate("by-ca", CA, names=["by-ca.example"])
OTHER_NAME = Certificate("by-ca", CA, names=["www.example"])


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


# The test's servers are on ports of their own, so the records are for all.
ZONE = f"""
own             A 127.0.0.1
*._tcp.own      TLSA 3 1 1 {digest(OWN.key_der)}
by-ca           A 127.0.0.1
*._tcp.by-ca    TLSA 2 0 1 {digest(CA.der)}
unusable        A 127.0.0.1
*._tcp.unusable TLSA 1 1 1 {digest(OWN.key_der)}
bogus           A 127.0.0.1
*._tcp.bogus    TLSA 3 1 1 {"be" * 32}
none            A 127.0.0.1
alias           CNAME own
"""
UNSIGNED = f"mx A 127.0.0.1\n*._tcp.mx TLSA 3 1 1 {digest(OWN.key_der)}"


@pytest.fixture(scope="module")
def resolver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Unbound]:
    signed = sign("example", ZONE)
    zones = {"example": signed.text.replace("be" * 32, "ab" * 32), "unsigned": UNSIGNED}
    with Unbound(tmp_path_factory.mktemp("unbound"), zones, server=[signed.trust], validate=True) as server:
        yield server


@pytest.fixture
def home(tmp_path: Path, resolver: Unbound) -> RemoteHome:
    return RemoteHome(tmp_path, timeoutconnect="5", timeoutremote="20", connectionidle="0", resolver=resolver.address)


def deliver(home: RemoteHome, line: str, relay: str, *scripts: Script) -> tuple[Report, bytes]:
    """Deliver a message to a relay whose connections follow the scripts; return the report, and what stderr says."""
    left = list(scripts)
    with RawServer(lambda peer: left.pop(0)(peer)) as server:
        home.control("smtproutes", f":{relay}:{server.port}")
        home.control("tlspolicy", line)
        with RemoteDaemon(home) as daemon:
            report = daemon.deliver(home.message(TEXT), b"to@b.example")
            code, errors = daemon.end()
    assert (code, left) == (0, [])
    return report, errors


def assert_accepted(found: tuple[Report, bytes]) -> None:
    report, errors = found
    assert (report.verdicts[0][0], errors) == (b"K", b"")


def reason(found: tuple[Report, bytes]) -> str:
    """Return why the mail was deferred for now by DANE, and what for."""
    report, errors = found
    [(letter, text)] = report.verdicts
    assert (report.scope, letter, errors) == (HOST_SCOPE, b"Z", b"")
    assert b"\nTLS policy: DANE" in text
    return text.decode()


ENFORCE = ":may dane=enforce"


def test_a_hosts_own_key_in_dns_is_all_it_needs(home: RemoteHome) -> None:
    assert_accepted(deliver(home, ENFORCE, "own.example", starttls(OWN)))


def test_a_ca_in_dns_vouches_for_the_hosts_name(home: RemoteHome) -> None:
    assert_accepted(deliver(home, ENFORCE, "by-ca.example", starttls(BY_CA)))
    text = reason(deliver(home, ENFORCE, "by-ca.example", starttls(OTHER_NAME)))
    assert "certificate is for www.example, not for by-ca.example" in text


def test_an_alias_has_the_records_of_what_it_stands_for(home: RemoteHome) -> None:
    assert_accepted(deliver(home, ENFORCE, "alias.example", starttls(OWN)))
    assert "_tcp.own.example TLSA" in reason(deliver(home, ENFORCE, "alias.example", starttls(OTHER)))


def test_a_host_that_shows_another_certificate_gets_no_mail(home: RemoteHome) -> None:
    text = reason(deliver(home, ENFORCE, "own.example", starttls(OTHER)))
    assert text.startswith("Connected to 127.0.0.1 (own.example) but its TLS certificate is not good. (#4.7.5)\n")
    assert "\ncertificate does not match the TLSA records\nTLS policy: DANE, _" in text
    assert f"_tcp.own.example TLSA 3 1 1 {digest(OWN.key_der)[:16]}...\n" in text


@pytest.mark.parametrize("script", [offers_no_tls, resets])
@pytest.mark.parametrize("relay", ["own.example", "unusable.example"])
def test_a_host_with_records_gets_no_mail_in_clear(home: RemoteHome, relay: str, script: Script) -> None:
    reason(deliver(home, ENFORCE, relay, script))


def test_where_no_record_is_usable_any_certificate_will_do(home: RemoteHome) -> None:
    assert_accepted(deliver(home, ENFORCE, "unusable.example", starttls(OTHER)))


def test_where_no_record_is_usable_verify_still_means_verify(home: RemoteHome) -> None:
    report, _ = deliver(home, ":verify dane=enforce", "unusable.example", starttls(OTHER))
    assert report.verdicts[0][1].endswith(b"self-signed certificate\nTLS policy: verify\n")


def test_records_that_dnssec_finds_false_keep_mail_back(home: RemoteHome) -> None:
    text = reason(deliver(home, ENFORCE, "bogus.example"))
    assert text.startswith("Not connected to 127.0.0.1 (bogus.example): it may get no mail for this domain. (#4.7.5)\n")
    assert "TLSA lookup failed: DNS: _" in text


@pytest.mark.parametrize("relay", ["none.example", "mx.unsigned"])
def test_without_records_that_dnssec_vouches_for_the_level_of_the_line_counts(home: RemoteHome, relay: str) -> None:
    assert_accepted(deliver(home, ENFORCE, relay, in_clear))
    assert_accepted(deliver(home, ENFORCE, relay, starttls(OTHER)))


@pytest.mark.parametrize(
    ("relay", "scripts", "what"),
    [
        ("own.example", [starttls(OTHER)], "certificate does not match the TLSA records"),
        ("own.example", [in_clear], "the session is not under TLS"),
        ("own.example", [resets, in_clear], "the session is not under TLS"),
        ("unusable.example", [in_clear], "the session is not under TLS"),
        ("bogus.example", [in_clear], "TLSA lookup failed"),
    ],
)
def test_what_is_only_tested_is_logged_and_the_mail_goes(
    home: RemoteHome, relay: str, scripts: list[Script], what: str
) -> None:
    report, errors = deliver(home, ":may dane=test", relay, *scripts)
    assert report.verdicts[0][0] == b"K"
    [line] = errors.decode().splitlines()
    assert line.startswith(f"queue-remote: warning: unable to verify 127.0.0.1 ({relay}) by DANE")
    assert what in line
    assert line.endswith("; that is only tested, mail goes there all the same")


def test_what_would_do_is_not_logged(home: RemoteHome) -> None:
    assert_accepted(deliver(home, ":may dane=test", "own.example", starttls(OWN)))
    assert_accepted(deliver(home, ":may dane=test", "none.example", in_clear))
