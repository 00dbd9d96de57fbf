"""queue-remote under TLS that is required, verified, or there from the first byte: what a plan says is what happens."""

import contextlib
import ssl
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from queue_wire.pipes.report import HOST_SCOPE, Report
from support.processes.remote_daemon import RemoteDaemon, RemoteHome
from support.servers.certificate import server_context
from support.servers.smtp.raw_server import Peer, RawServer

TEXT = b"Subject: hello\n\nA message.\n"
# A queue-remote whose every target has the plan that {} makes.
PLANNED = """
import ssl, sys
from queue_remote import main
from queue_remote.tls import plan as tls
from queue_remote.tls import planner
from queue_smtp.client import Tls
context = ssl.create_default_context()
context.check_hostname = False
context.verify_mode = ssl.CERT_NONE
class Plan(tls.TlsPlan):
    __slots__ = ("objection",)
    def verify(self, ssl_object):
        return self.objection
async def plan(*arguments):
    made = Plan(Tls.{mode}, context, "raw.example", fallback={fallback}, policy="test")
    made.objection = {objection!r}
    return made
planner.TlsPlanner.plan = plan
sys.exit(main.main(["queue-remote", "--home", sys.argv[1]]))
"""


@pytest.fixture
def home(tmp_path: Path) -> RemoteHome:
    server_context()
    return RemoteHome(tmp_path, timeoutconnect="5", timeoutremote="20", connectionidle="0")


def deliver(
    home: RemoteHome,
    script: Callable[[Peer], None],
    mode: str,
    *,
    objection: str | None = None,
    fallback: bool = False,
) -> tuple[Report, int]:
    """Deliver a message by such a plan; return the report, and the number of connections that it took."""
    code = PLANNED.format(mode=mode, objection=objection, fallback=fallback)
    with RawServer(script) as server:
        home.route_all_to(server.port)
        with RemoteDaemon(home, [sys.executable, "-c", code]) as daemon:
            report = daemon.deliver(home.message(TEXT), b"to@b.example")
            assert daemon.end() == (0, b"")
    return report, server.connections


def under_tls(peer: Peer) -> None:
    peer.start_tls(server_context())
    peer.greet(b"STARTTLS", b"PIPELINING")
    peer.take_message()
    assert peer.hear() == b"QUIT"
    peer.say(b"221 bye")


def test_tls_is_there_from_the_first_byte_where_the_plan_says_so(home: RemoteHome) -> None:
    report, _ = deliver(home, under_tls, "IMPLICIT")
    assert report.verdicts == [(b"K", b"127.0.0.1 accepted message.\nRemote host said: 250 done\n")]


def in_clear(peer: Peer) -> None:
    peer.say(b"220 raw.example")
    heard = peer.wait_for_end()
    assert b"EHLO" not in heard


@pytest.mark.parametrize("script", [in_clear, lambda peer: None])
def test_a_host_without_tls_where_it_must_be_from_the_first_byte_hears_no_command(
    home: RemoteHome, script: Callable[[Peer], None]
) -> None:
    report, connections = deliver(home, script, "IMPLICIT")
    [(letter, text)] = report.verdicts
    assert (report.scope, letter) == (HOST_SCOPE, b"Z")
    assert b"TLS handshake" in text
    assert connections == 1


def expect_silence(peer: Peer, *lines: bytes) -> None:
    """Do a handshake, say something, and hear nothing."""
    # The connection is cut as soon as the certificate is seen, which may be before the handshake ends for us.
    with contextlib.suppress(ssl.SSLError):
        peer.start_tls(server_context())
        peer.say(*lines)
        assert peer.hear() == b""


def starttls(peer: Peer) -> None:
    peer.greet(b"STARTTLS")
    assert peer.hear() == b"STARTTLS"
    peer.say(b"220 go")
    expect_silence(peer)


def greeting_under_tls(peer: Peer) -> None:
    expect_silence(peer, b"220 raw.example")


@pytest.mark.parametrize(("mode", "script"), [("MUST", starttls), ("IMPLICIT", greeting_under_tls)])
def test_a_certificate_that_will_not_do_ends_the_session_before_a_word_is_said(
    home: RemoteHome, mode: str, script: Callable[[Peer], None]
) -> None:
    report, connections = deliver(home, script, mode, objection="it is for another host")
    [(letter, text)] = report.verdicts
    assert (report.scope, letter) == (HOST_SCOPE, b"Z")
    assert text.endswith(b"its TLS certificate is not good. (#4.7.5)\nit is for another host\nTLS policy: test\n")
    assert connections == 1


def test_a_required_handshake_that_breaks_is_not_made_up_for_in_clear(home: RemoteHome) -> None:
    def script(peer: Peer) -> None:
        peer.greet(b"STARTTLS")
        peer.hear()
        peer.say(b"220 go")

    report, connections = deliver(home, script, "MUST")
    assert (report.scope, report.verdicts[0][0], connections) == (HOST_SCOPE, b"Z", 1)
    assert b"TLS handshake" in report.verdicts[0][1]


def test_a_host_that_does_not_offer_required_tls_is_left_with_quit(home: RemoteHome) -> None:
    def script(peer: Peer) -> None:
        peer.greet()
        assert peer.hear() == b"QUIT"
        peer.say(b"221 bye")

    report, _ = deliver(home, script, "MUST", fallback=True)
    assert (report.scope, report.verdicts[0][0]) == (HOST_SCOPE, b"Z")
    assert b"does not offer STARTTLS" in report.verdicts[0][1]


def test_tls_is_not_used_where_the_plan_says_never(home: RemoteHome) -> None:
    def script(peer: Peer) -> None:
        peer.greet(b"STARTTLS")
        peer.take_message()

    assert deliver(home, script, "NEVER")[0].verdicts[0][0] == b"K"
