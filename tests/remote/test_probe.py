"""A probe of queue-remote: it connects and greets, sends nothing, and leaves the connection for mail."""

from pathlib import Path

from queue_wire.pipes.job import PROBE
from queue_wire.pipes.report import HOST_SCOPE, MESSAGE_SCOPE, SUCCESS, TEMPORARY
from support.processes.remote_daemon import RemoteDaemon, RemoteHome
from support.servers.ports import free_port
from support.servers.smtp.raw_server import Peer, RawServer


def take_one(peer: Peer) -> None:
    """Take one message on a connection."""
    peer.greet()
    peer.take_message()


def test_a_host_that_answers_is_reachable_and_its_connection_is_used_for_the_next_message(tmp_path: Path) -> None:
    home = RemoteHome(tmp_path)
    with RawServer(take_one) as server:
        home.route_all_to(server.port)
        with RemoteDaemon(home) as daemon:
            report = daemon.deliver(PROBE, b"@b.example")
            assert (report.scope, report.verdicts[0][0]) == (MESSAGE_SCOPE, SUCCESS), report

            again = daemon.deliver(PROBE, b"@b.example")
            assert again.verdicts[0][0] == SUCCESS, again
            mail = daemon.deliver(home.message(b"Subject: x\n\ny\n"), b"joe@b.example")
            assert mail.verdicts[0][0] == SUCCESS, mail
            assert server.connections == 1


def test_a_host_that_is_down_fails_as_a_host(tmp_path: Path) -> None:
    home = RemoteHome(tmp_path)
    home.route_all_to(free_port())
    with RemoteDaemon(home) as daemon:
        report = daemon.deliver(PROBE, b"@b.example")
        assert report.scope == HOST_SCOPE
        [(letter, text)] = report.verdicts
        assert letter == TEMPORARY and b"connection refused" in text
