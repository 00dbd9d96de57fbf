"""Where IPv6 is switched off, an address of IPv6 costs nothing, and the next one is tried."""

import subprocess
import sys
from pathlib import Path

import pytest

from queue_wire.pipes.report import MESSAGE_SCOPE, Report
from support.processes.remote_daemon import PROGRAM, RemoteDaemon, RemoteHome
from support.servers.smtp.lmtp_server import LmtpServer
from support.tools import missing, need

TEXT = b"Subject: hello\n\nA message.\n"
SWITCH_OFF = "echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6"


@pytest.fixture
def command() -> list[str]:
    """The command of a queue-remote in a network of its own, which has no IPv6."""
    words = [need("unshare"), "--map-root-user", "--net", "sh", "-c"]
    if subprocess.run([*words, SWITCH_OFF], capture_output=True, check=False, timeout=60).returncode != 0:
        missing("a machine on which we may make a network namespace with IPv6")
    return [*words, SWITCH_OFF + ' && exec "$@"', "sh", sys.executable, str(PROGRAM), "--home"]


def deliver(home: RemoteHome, command: list[str]) -> Report:
    with RemoteDaemon(home, command) as daemon:
        return daemon.deliver(home.message(TEXT), b"to@b.example")


@pytest.mark.parametrize("source", ["", "192.0.2.7 2001:db8::7"])
def test_the_next_target_gets_the_message(home: RemoteHome, command: list[str], tmp_path: Path, source: str) -> None:
    if source:
        home.control("outgoingip", source)
    # A network namespace has no sockets of another but those with a path.
    with LmtpServer(str(tmp_path / "lmtp")):
        home.control("smtproutes", f":[2001:db8::1]:25,lmtp:{tmp_path}/lmtp")
        report = deliver(home, command)
    assert [letter for letter, _ in report.verdicts] == [b"K"]


def test_a_host_that_has_only_ipv6_is_not_to_blame(home: RemoteHome, command: list[str]) -> None:
    home.control("smtproutes", ":[2001:db8::1]:25")
    report = deliver(home, command)
    assert report.scope == MESSAGE_SCOPE
    text = b"2001:db8::1: connect: cannot assign requested address\n"
    assert report.verdicts == [(b"Z", b"Sorry, I wasn't able to establish an SMTP connection. (#4.4.1)\n" + text)]
