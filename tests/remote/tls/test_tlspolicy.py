"""control/tlspolicy at work: what each level asks of a server, and what becomes of the mail where that is not there."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from queue_base.home import Home
from queue_wire.pipes.report import HOST_SCOPE, MESSAGE_SCOPE, Report
from support.processes.remote_daemon import RemoteDaemon, RemoteHome
from support.servers.dns.authority import Certificate
from support.servers.dns.dns_server import DnsServer
from support.servers.routes import read_config
from support.servers.smtp.raw_server import Peer, RawServer
from support.servers.smtp.smtp_server import SmtpServer
from support.servers.tls_peers import (
    Script,
    has_no_tls_today,
    in_clear,
    injects,
    offers_no_tls,
    resets,
    speaks_garbage,
    starttls,
    talk,
)

TEXT = b"Subject: hello\n\nA message.\n"
CA = Certificate("test CA", authority=True)
GOOD = Certificate("mx", CA, names=["mx.example.net"])
EXPIRED = Certificate("mx", CA, names=["mx.example.net"], days=(-10, -5))
OTHER_NAME = Certificate("mx.example.net", CA, names=["www.example.net"])
OTHER_CA = Certificate("mx", Certificate("other", authority=True), names=["mx.example.net"])


@pytest.fixture
def home(tmp_path: Path) -> Iterator[RemoteHome]:
    with DnsServer({("mx.example.net", "A"): ["127.0.0.1"], ("second.example.net", "A"): ["127.0.0.2"]}) as server:
        made = RemoteHome(tmp_path, timeoutconnect="5", timeoutremote="20", connectionidle="0")
        made.control("resolver", f"127.0.0.1:{server.port}")
        (tmp_path / "control" / "ca.pem").write_bytes(CA.pem)
        yield made


def deliver(home: RemoteHome, line: str, *scripts: Script, relay: str = "mx.example.net:{}") -> Report:
    """Deliver a message by a line of tlspolicy to a server whose connections follow the scripts, one by one."""
    left = list(scripts)
    with RawServer(lambda peer: left.pop(0)(peer), "0.0.0.0") as server:
        home.control("smtproutes", ":" + relay.format(server.port))
        home.control("tlspolicy", line)
        with RemoteDaemon(home) as daemon:
            report = daemon.deliver(home.message(TEXT), b"to@b.example")
            assert daemon.end() == (0, b"")
    assert left == []
    return report


def accepted(report: Report) -> bool:
    return [letter for letter, _ in report.verdicts] == [b"K"]


def reason(report: Report) -> str:
    """Return why the mail was deferred for now, and what for; it was the host's fault."""
    [(letter, text)] = report.verdicts
    assert (report.scope, letter) == (HOST_SCOPE, b"Z")
    assert b"127.0.0.1 (mx.example.net)" in text
    return text.decode()


@pytest.mark.parametrize("certificate", [GOOD, EXPIRED, OTHER_NAME, OTHER_CA])
@pytest.mark.parametrize("level", ["may", "encrypt"])
def test_may_and_encrypt_take_any_certificate(home: RemoteHome, level: str, certificate: Certificate) -> None:
    assert accepted(deliver(home, f":{level}", starttls(certificate)))


@pytest.mark.parametrize("level", ["encrypt", "verify ca=ca.pem"])
@pytest.mark.parametrize(
    ("script", "what"),
    [
        (offers_no_tls, "does not offer STARTTLS"),
        (has_no_tls_today, "454 4.7.0 no TLS today"),
        (speaks_garbage, "TLS handshake failed. (#4.7.5)\nwrong version number\n"),
        (resets, "TLS handshake failed. (#4.7.5)\n"),
        (injects, "before TLS. (#4.7.0)"),
    ],
)
def test_where_tls_is_required_its_lack_defers_and_names_the_policy(
    home: RemoteHome, level: str, script: Script, what: str
) -> None:
    text = reason(deliver(home, f":{level}", script))
    assert what in text
    assert f"TLS policy: {level.split()[0]}\n" in text


def test_none_is_in_clear_whatever_the_server_offers(home: RemoteHome) -> None:
    def script(peer: Peer) -> None:
        peer.greet(b"STARTTLS")
        talk(peer)

    assert accepted(deliver(home, ":none", script))


def test_verify_takes_a_certificate_for_the_hosts_name_from_a_ca_that_is_trusted(home: RemoteHome) -> None:
    assert accepted(deliver(home, ":verify ca=ca.pem", starttls(GOOD)))


def test_verify_goes_by_the_systems_cas_where_the_line_names_none(
    home: RemoteHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "is not good. (#4.7.5)\nself-signed certificate" in reason(deliver(home, ":verify", starttls(GOOD)))
    monkeypatch.setenv("SSL_CERT_FILE", str(home.path / "control" / "ca.pem"))
    assert accepted(deliver(home, ":verify", starttls(GOOD)))


@pytest.mark.parametrize(
    ("certificate", "what"),
    [
        (EXPIRED, "certificate has expired"),
        (OTHER_NAME, "Hostname mismatch, certificate is not valid for 'mx.example.net'"),
        (OTHER_CA, "self-signed certificate in certificate chain"),
    ],
)
def test_verify_defers_where_the_certificate_will_not_do(home: RemoteHome, certificate: Certificate, what: str) -> None:
    text = reason(deliver(home, ":verify ca=ca.pem", starttls(certificate)))
    assert f"its TLS certificate is not good. (#4.7.5)\n{what}" in text
    assert text.endswith("\nTLS policy: verify\n")


def test_name_is_what_the_certificate_must_be_for(home: RemoteHome) -> None:
    assert accepted(deliver(home, ":verify ca=ca.pem name=www.example.net", starttls(OTHER_NAME)))


def test_a_host_that_fails_is_passed_over_for_the_next(home: RemoteHome) -> None:
    relays = "mx.example.net:{0},second.example.net:{0}"
    second = Certificate("second", CA, names=["second.example.net"])
    report = deliver(home, ":verify ca=ca.pem", starttls(EXPIRED), starttls(second), relay=relays)
    assert accepted(report)
    assert report.verdicts[0][1].startswith(b"127.0.0.2 (second.example.net) accepted")


@pytest.mark.parametrize("certificate", [GOOD, EXPIRED])
def test_implicit_is_under_tls_from_the_first_byte_and_verified(home: RemoteHome, certificate: Certificate) -> None:
    def script(peer: Peer) -> None:
        try:
            peer.start_tls(certificate.server_context())
        except OSError:
            return
        peer.greet(b"STARTTLS")
        talk(peer)

    report = deliver(home, ":implicit ca=ca.pem", script)
    if certificate is GOOD:
        assert accepted(report)
    else:
        assert "certificate has expired" in reason(report)


def test_a_line_for_the_relay_comes_before_one_for_the_nexthop(home: RemoteHome) -> None:
    assert accepted(deliver(home, "b.example:verify\nmx.example.net:none", in_clear))
    assert "STARTTLS" in reason(deliver(home, "b.example:encrypt\n:none", offers_no_tls))


@pytest.mark.parametrize("key", ["127.0.0.1", "[127.0.0.1]"])
def test_a_relay_that_is_named_by_its_address_has_its_line_by_that(home: RemoteHome, key: str) -> None:
    [(letter, text)] = deliver(home, f":none\n{key}:encrypt", offers_no_tls, relay="127.0.0.1:{}").verdicts
    assert letter == b"Z"
    assert b"STARTTLS" in text


@pytest.mark.parametrize("key", ["B.Example.", "b.example ", " b.example", ".Example."])
def test_case_spaces_and_a_final_dot_do_not_make_a_line_count_for_nobody(home: RemoteHome, key: str) -> None:
    assert "STARTTLS" in reason(deliver(home, f"{key}:encrypt\n:none", offers_no_tls))


def test_a_file_of_cas_that_cannot_be_read_defers_only_the_mail_that_needs_it(home: RemoteHome) -> None:
    home.control("tlspolicy", "b.example:verify ca=missing.pem\n:may")
    with RawServer(in_clear) as server:
        home.control("smtproutes", f":mx.example.net:{server.port}")
        with RemoteDaemon(home) as daemon:
            report = daemon.deliver(home.message(TEXT), b"to@b.example")
            assert accepted(daemon.deliver(home.message(TEXT), b"to@c.example"))
            _, errors = daemon.end()
    [(letter, text)] = report.verdicts
    assert (report.scope, letter) == (MESSAGE_SCOPE, b"Z")
    assert b"control/missing.pem: no such file" in text.lower()
    assert errors.startswith(b"queue-remote: alert: unable to read CA certificates in ")


def test_libraries_that_few_policies_need_are_not_imported_at_the_start() -> None:
    code = "import queue_remote.main, sys; print(sorted({'httpx', 'OpenSSL', 'cryptography'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, timeout=60)
    assert done.stdout == b"[]\n"


def test_the_example_in_the_docs_is_one(home: RemoteHome) -> None:
    page = Path(__file__).parents[3].joinpath("docs/routing-and-tls.md").read_text()
    example = page[page.index("    # Its mail exchangers must show") :].split("\n\n")[0]
    home.control("tlspolicy", "\n".join(line.strip() for line in example.splitlines()))
    policies = read_config(Home(str(home.path))).tlspolicy
    assert policies is not None and len(policies) == 5
    assert policies[b".bank.example"].ca == os.fsencode(home.path / "control" / "bank-ca.pem")


def test_a_mistake_in_tlspolicy_defers_all_mail_and_alerts(home: RemoteHome) -> None:
    home.control("tlspolicy", ":secure")
    home.control("smtproutes", ":127.0.0.1:9")
    with RemoteDaemon(home) as daemon:
        assert daemon.deliver(home.message(TEXT), b"to@b.example").verdicts[0][0] == b"Z"
        _, errors = daemon.end()
    assert b"alert: unable to parse " in errors
    assert b"control/tlspolicy line 1: not one of none, may, encrypt, verify, implicit for level: 'secure'" in errors


def test_a_later_mistake_leaves_the_old_values_in_force_and_a_good_change_is_logged(home: RemoteHome) -> None:
    with SmtpServer(tls=GOOD.server_context()) as server:
        home.control("smtproutes", f":127.0.0.1:{server.port}")
        with RemoteDaemon(home) as daemon:
            for name, text in (("tlspolicy", ":secure"), ("smtproutes", "127.0.0.1 secret")):
                assert accepted(daemon.deliver(home.message(TEXT), b"to@b.example"))
                kept = (home.path / "control" / name).read_text() if name == "smtproutes" else None
                home.control(name, text)
                os.kill(daemon.process.pid, signal.SIGHUP)
                assert accepted(daemon.deliver(home.message(TEXT), b"to@b.example"))
                home.control(name, kept or ":may")
                os.kill(daemon.process.pid, signal.SIGHUP)
            assert accepted(daemon.deliver(home.message(TEXT), b"to@b.example"))
            _, errors = daemon.end()
    lines = errors.decode().splitlines()
    assert [line for line in lines if "the old values stay until it is mended" in line] == [
        f"queue-remote: alert: unable to parse {home.path}/control/tlspolicy line 1: not one of none, may, encrypt, "
        "verify, implicit for level: 'secure'; the old values stay until it is mended",
        f"queue-remote: alert: unable to parse {home.path}/control/smtproutes line 1: it has no colon, and has no "
        "effect; the old values stay until it is mended",
    ]
    assert "queue-remote: config tlspolicy 1 line, was default" in lines


def test_a_verified_connection_carries_message_after_message(home: RemoteHome) -> None:
    home.control("connectionidle", "5")
    home.control("tlspolicy", ":verify ca=ca.pem")
    texts = [b"Subject: %d\n\n%s" % (number, b"A line.\n" * 10000) for number in range(3)]
    with SmtpServer(tls=GOOD.server_context()) as server:
        home.control("smtproutes", f":mx.example.net:{server.port}")
        with RemoteDaemon(home) as daemon:
            for text in texts:
                assert accepted(daemon.deliver(home.message(text), b"to@b.example"))
            assert [message.stored for message in server.wait_for(3)] == texts
    assert server.connections == 1


def test_a_password_goes_to_a_server_under_tls(home: RemoteHome) -> None:
    home.control("tlspolicy", ":verify ca=ca.pem")
    home.control("smtpauth", "mx.example.net:ann:secret")
    os.chmod(home.path / "control" / "smtpauth", 0o600)
    with SmtpServer(tls=GOOD.server_context()) as server:
        server.passwords, server.mechanisms = {b"ann": b"secret"}, ["PLAIN"]
        home.control("smtproutes", f":mx.example.net:{server.port}")
        with RemoteDaemon(home) as daemon:
            assert accepted(daemon.deliver(home.message(TEXT), b"to@b.example"))
        assert server.logins == [("PLAIN", b"ann")]
