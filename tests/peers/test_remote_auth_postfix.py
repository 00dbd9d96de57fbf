"""queue-remote and the AUTH of a real Postfix with Cyrus SASL, mechanism by mechanism."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from queue_wire.pipes.report import HOST_SCOPE, SUCCESS, TEMPORARY, Report
from support.processes.remote_daemon import RemoteDaemon, RemoteHome
from support.servers.ports import free_ports
from support.servers.postfix import REALM, Postfix
from support.tools import need_file

pytestmark = pytest.mark.together  # They share a Postfix.
TEXT = b"Subject: hello\n\nA message.\n"
MECHANISMS = ["SCRAM-SHA-256", "SCRAM-SHA-1", "CRAM-MD5", "PLAIN", "LOGIN"]


@pytest.fixture(scope="module")
def ports() -> dict[str, int]:
    """A port for each mechanism; its service offers no other."""
    return free_ports(*MECHANISMS)


@pytest.fixture(scope="module")
def postfix(ports: dict[str, int]) -> Iterator[Postfix]:
    need_file("/usr/lib/*/sasl2/libscram.so")
    main = ["smtpd_recipient_restrictions = permit_sasl_authenticated, reject"]
    master = [
        f"127.0.0.1:{port} inet n - n - - smtpd\n  -o smtpd_sasl_mechanism_filter={name}"
        for name, port in ports.items()
    ]
    with Postfix(users={"ann": "se:cret"}, main=main, master=master) as made:
        yield made


def deliver(path: Path, port: int, password: str) -> Report:
    home = RemoteHome(path, timeoutremote="20", timeoutconnect="5", smtpauth=f" clear:ann@{REALM}:{password}")
    os.chmod(path / "control" / "smtpauth", 0o600)
    home.route_all_to(port)
    with RemoteDaemon(home) as daemon:
        return daemon.deliver(home.message(TEXT), b"to@b.example")


def test_the_best_of_what_it_offers_is_taken(tmp_path: Path, postfix: Postfix) -> None:
    assert deliver(tmp_path, postfix.port, "se:cret").verdicts[0][0] == SUCCESS
    postfix.wait_for(1)
    assert "sasl_method=SCRAM-SHA-256" in postfix.log()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_each_mechanism_lets_us_in(tmp_path: Path, postfix: Postfix, ports: dict[str, int], mechanism: str) -> None:
    postfix.clear()
    assert deliver(tmp_path, ports[mechanism], "se:cret").verdicts[0][0] == SUCCESS
    assert [message.content for message in postfix.wait_for(1)] == [TEXT]
    assert f"sasl_method={mechanism}," in postfix.log()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_defers_whatever_the_mechanism(
    tmp_path: Path, postfix: Postfix, ports: dict[str, int], mechanism: str
) -> None:
    report = deliver(tmp_path, ports[mechanism], "wrong")
    assert (report.scope, report.verdicts[0][0]) == (HOST_SCOPE, TEMPORARY)
    assert b"AUTH failed; see control/smtpauth.\nRemote host said: 535" in report.verdicts[0][1]
