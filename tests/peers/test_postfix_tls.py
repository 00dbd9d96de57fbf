"""Postfix as receiver under TLS, with a certificate of a test CA and with AUTH: who is believed, and who is not."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from queue_wire.pipes.report import HOST_SCOPE, Report
from support.processes.remote_daemon import RemoteDaemon, RemoteHome
from support.servers.dns.authority import Certificate
from support.servers.postfix import REALM, Postfix
from support.tools import need_file

pytestmark = pytest.mark.together  # They share a Postfix.
TEXT = b"Subject: hello\n\nA message.\n"
CA = Certificate("test CA", authority=True)
OTHER_CA = Certificate("other CA", authority=True)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postfix]:
    need_file("/usr/lib/*/sasl2/libscram.so")
    mx = Certificate("mx", CA, names=["mx.example.net"])
    certificate, key = mx.write(tmp_path_factory.mktemp("certificate"))
    # Nobody gets in without a password, and there is none to be had in clear.
    main = ["smtpd_recipient_restrictions = permit_sasl_authenticated, reject", "smtpd_tls_auth_only = yes"]
    with Postfix(certificate=certificate, key=key, users={"ann": "se:cret"}, main=main) as made:
        yield made


@pytest.fixture
def postfix(running: Postfix) -> Postfix:
    running.clear()
    return running


def deliver(path: Path, port: int, level: str, name: str = "mx.example.net", authority: Certificate = CA) -> Report:
    """Deliver a message by a tlspolicy that believes an authority's word for a name."""
    home = RemoteHome(path, timeoutremote="20", timeoutconnect="5", smtpauth=f":ann@{REALM}:se:cret")
    (path / "control" / "smtpauth").chmod(0o600)
    (path / "control" / "ca.pem").write_bytes(authority.pem)
    home.control("tlspolicy", f":{level} ca=ca.pem name={name}")
    home.route_all_to(port)
    with RemoteDaemon(home) as daemon:
        return daemon.deliver(home.message(TEXT), b"to@b.example")


def test_a_verified_connection_by_starttls_carries_the_password_and_the_message(
    tmp_path: Path, postfix: Postfix
) -> None:
    assert deliver(tmp_path, postfix.port, "verify").verdicts[0][0] == b"K"
    assert [message.content for message in postfix.wait_for(1)] == [TEXT]


def test_so_does_one_under_tls_from_the_first_byte(tmp_path: Path, postfix: Postfix) -> None:
    assert deliver(tmp_path, postfix.tls_port, "implicit").verdicts[0][0] == b"K"
    assert [message.content for message in postfix.wait_for(1)] == [TEXT]


@pytest.mark.parametrize(
    ("name", "authority"), [("mx.example.net", OTHER_CA), ("www.example.net", CA)], ids=["another CA", "another name"]
)
@pytest.mark.parametrize("level", ["verify", "implicit"])
def test_a_certificate_that_will_not_do_gets_neither(
    tmp_path: Path, postfix: Postfix, level: str, name: str, authority: Certificate
) -> None:
    before = postfix.log()
    port = postfix.tls_port if level == "implicit" else postfix.port
    report = deliver(tmp_path, port, level, name, authority)
    [(letter, text)] = report.verdicts
    assert (letter, report.scope) == (b"Z", HOST_SCOPE)
    assert b"certificate is not good. (#4.7.5)" in text
    assert "sasl_method" not in postfix.log()[len(before) :]
