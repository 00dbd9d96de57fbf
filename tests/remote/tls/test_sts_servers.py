"""MTA-STS at work: a TXT record, a policy on a web server, and mail servers that follow it or do not."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from queue_wire.pipes.report import HOST_SCOPE, Report
from support.processes.remote_daemon import RemoteDaemon, RemoteHome
from support.servers.dns.authority import Certificate
from support.servers.dns.dns_server import DnsServer
from support.servers.policy_server import PolicyServer
from support.servers.smtp.raw_server import RawServer
from support.servers.tls_peers import Script, in_clear, offers_no_tls, resets, starttls

TEXT = b"Subject: hello\n\nA message.\n"
CA = Certificate("test CA", authority=True)
WEB = Certificate("web", CA, names=["mta-sts.mx.example"])
GOOD = Certificate("mx", CA, names=["mx.example"])
EXPIRED = Certificate("mx", CA, names=["mx.example"], days=(-10, -5))
OTHER_NAME = Certificate("mx", CA, names=["www.example"])
OTHER_CA = Certificate("mx", names=["mx.example"])
POLICY = b"version: STSv1\nmode: enforce\nmx: mx.example\nmax_age: 864000\n"
# RFC 8461 section 3.4: a relay's name is the policy's domain.
RECORDS = {
    ("mx.example", "A"): ["127.0.0.1"],
    ("_mta-sts.mx.example", "TXT"): ['"v=STSv1; id=20260101;"'],
    ("mta-sts.mx.example", "A"): ["127.0.0.1"],
}
# A queue-remote for which HTTPS has another port than 443.
COMMAND = """
import sys
from queue_remote import main
from queue_remote.tls import mta_sts
mta_sts.HTTPS_PORT = {port}
sys.exit(main.main(["queue-remote", "--home", sys.argv[1]]))
"""


class Place:
    """A home whose mail all goes to mx.example, and the web server of its policy."""

    def __init__(self, home: RemoteHome, web: PolicyServer) -> None:
        self.home = home
        self.web = web

    def deliver(self, line: str, *scripts: Script) -> tuple[Report, bytes]:
        """Deliver a message by a line of tlspolicy; return the report, and what stderr says."""
        left = list(scripts)
        with RawServer(lambda peer: left.pop(0)(peer)) as server:
            self.home.control("smtproutes", f":mx.example:{server.port}")
            self.home.control("tlspolicy", line)
            command = [sys.executable, "-c", COMMAND.format(port=self.web.port)]
            with RemoteDaemon(self.home, command) as daemon:
                report = daemon.deliver(self.home.message(TEXT), b"to@b.example")
                code, errors = daemon.end()
        assert (code, left) == (0, [])
        return report, errors


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    (tmp_path / "ca.pem").write_bytes(CA.pem)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    home = RemoteHome(tmp_path, timeoutconnect="5", timeoutremote="20", connectionidle="0")
    with DnsServer(RECORDS, signed=frozenset(["mx.example"])) as dns, PolicyServer(WEB) as web:
        home.control("resolver", f"127.0.0.1:{dns.port}")
        web.policy(POLICY)
        yield Place(home, web)


ENFORCE = ":may sts=enforce"
NAMED = "MTA-STS of mx.example, id 20260101, mode enforce"


def test_mail_goes_to_a_host_that_the_policy_names_and_a_ca_vouches_for(place: Place) -> None:
    report, errors = place.deliver(ENFORCE, starttls(GOOD))
    assert (report.verdicts[0][0], errors) == (b"K", b"")
    assert len(place.web.requests) == 1


@pytest.mark.parametrize(
    ("script", "what"),
    [
        (starttls(EXPIRED), "certificate has expired"),
        (starttls(OTHER_NAME), "Hostname mismatch"),
        (starttls(OTHER_CA), "self-signed certificate"),
        (offers_no_tls, "does not offer STARTTLS"),
        (resets, "TLS handshake failed"),
    ],
)
def test_a_host_that_does_not_keep_to_it_gets_no_mail(place: Place, script: Script, what: str) -> None:
    report, errors = place.deliver(ENFORCE, script)
    [(letter, text)] = report.verdicts
    assert (report.scope, letter, errors) == (HOST_SCOPE, b"Z", b"")
    assert text.startswith(b"Connected to 127.0.0.1 (mx.example) but ")
    assert what in text.decode()
    assert f"\nTLS policy: {NAMED}\n" in text.decode()


def test_a_host_that_the_policy_does_not_name_is_not_asked(place: Place) -> None:
    place.web.policy(POLICY.replace(b"mx.example", b"*.mx.example"))
    report, _ = place.deliver(ENFORCE)
    assert report.verdicts == [
        (
            b"Z",
            b"Not connected to 127.0.0.1 (mx.example): it may get no mail for this domain. (#4.7.5)\n"
            b"mx.example is no mx of the policy\n"
            b"TLS policy: %s\n" % NAMED.encode(),
        )
    ]
    assert report.scope == HOST_SCOPE


@pytest.mark.parametrize(
    ("line", "mode"), [(":may sts=test", b"enforce"), (ENFORCE, b"testing"), (":may sts=test", b"testing")]
)
@pytest.mark.parametrize(
    ("names", "scripts", "what"),
    [
        (b"mx.example", [starttls(EXPIRED)], "certificate has expired"),
        (b"mx.example", [starttls(OTHER_NAME)], "certificate is for www.example, not for mx.example"),
        (b"mx.example", [starttls(OTHER_CA)], "self-signed certificate"),
        (b"mx.example", [resets, in_clear], "the session is not under TLS"),
        (b"other.example", [in_clear], "mx.example is no mx of the policy"),
    ],
)
def test_what_is_only_tested_by_us_or_by_the_domain_is_logged_and_the_mail_goes(
    place: Place, line: str, mode: bytes, names: bytes, scripts: list[Script], what: str
) -> None:
    place.web.policy(POLICY.replace(b"enforce", mode).replace(b"mx.example", names))
    report, errors = place.deliver(line, *scripts)
    assert report.verdicts[0][0] == b"K"
    [said] = errors.decode().splitlines()
    named = NAMED.replace("enforce", mode.decode())
    assert said.startswith(f"queue-remote: warning: unable to verify 127.0.0.1 (mx.example) by {named}: ")
    assert what in said


def test_what_would_do_is_not_logged(place: Place) -> None:
    report, errors = place.deliver(":may sts=test", starttls(GOOD))
    assert (report.verdicts[0][0], errors) == (b"K", b"")


def test_a_policy_of_mode_none_is_none(place: Place) -> None:
    place.web.policy(POLICY.replace(b"enforce", b"none"))
    report, errors = place.deliver(ENFORCE, in_clear)
    assert (report.verdicts[0][0], errors) == (b"K", b"")


def test_a_policy_that_cannot_be_had_is_logged_and_the_level_of_the_line_counts(place: Place) -> None:
    place.web.policy(POLICY, b"404 Not Found")
    report, errors = place.deliver(ENFORCE, in_clear)
    assert report.verdicts[0][0] == b"K"
    assert errors == (
        b"queue-remote: warning: unable to find MTA-STS policy of mx.example: "
        b"mta-sts.mx.example answers 404 for /.well-known/mta-sts.txt; tlspolicy's level counts\n"
    )
    report, _ = place.deliver(":encrypt sts=enforce", offers_no_tls)
    assert report.verdicts[0][0] == b"Z"
