"""queue-remote under load: its memory and descriptors with many connections, many deliveries, and large messages."""

import re
import threading
from pathlib import Path

import psutil
import pytest

from support.processes.remote_daemon import RemoteDaemon, RemoteHome
from support.processes.suite import wait_until
from support.servers.certificate import server_context
from support.servers.smtp.many_peers import FAST, MESSAGE, SLOW, ManyPeers
from support.servers.smtp.raw_server import Peer, RawServer
from support.servers.smtp.smtp_sink import SmtpSink

TEXT = b"Subject: hello\n\nA message.\n"
MB = 1024 * 1024
STAGES = [b"CONNECT", b"EHLO", b"MAIL", b"RCPT", b"DATA", MESSAGE]


# Longer than any test: what waits for a connection that hangs does not end.
pytestmark = pytest.mark.home(timeoutconnect="3600", timeoutremote="3600", connectionidle="1")


def resident(daemon: RemoteDaemon, what: str = "VmRSS") -> int:
    """Return the daemon's memory in bytes; with `VmHWM` the most that it ever had."""
    found = re.search(rf"{what}:\s+([0-9]+) kB", Path(f"/proc/{daemon.process.pid}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def test_2000_connections_that_hang_anywhere_are_small_and_do_not_hold_up_others(home: RemoteHome) -> None:
    large = home.message(b"Subject: large\n\n" + (b"x" * 99 + b"\n") * (4 * MB // 100), 24)
    path = home.message(TEXT)
    with ManyPeers(lambda number: STAGES[number % len(STAGES)]) as server, SmtpSink(keep=False) as sink:
        home.control("smtproutes", f"b.example:127.0.0.1:{sink.port}\n:127.0.0.1:{server.port}")
        with RemoteDaemon(home) as daemon:
            assert daemon.deliver_many(path, 500, 20) == 0
            for number in range(2000):
                daemon.start(large, b"to@h%d.example" % number)
            wait_until(lambda: server.hanging.total() == 2000, deadline=600, why="2,000 connections that hang")
            assert daemon.deliver_many(path, 500, 20) == 0
            assert resident(daemon, "VmHWM") < 200 * MB
    assert set(server.hanging) == set(STAGES)


def test_2000_peers_that_take_nothing_of_a_large_message_are_small_too(home: RemoteHome) -> None:
    large = home.message(b"Subject: large\n\n" + (b"x" * 99 + b"\n") * (4 * MB // 100))
    with ManyPeers(lambda number: MESSAGE) as server:
        home.route_all_to(server.port)
        with RemoteDaemon(home) as daemon:
            for number in range(2000):
                daemon.start(large, b"to@h%d.example" % number)
            wait_until(lambda: server.hanging.total() == 2000, deadline=600, why="2,000 connections that hang")
            wait_until(lambda: sends_no_more(daemon), why="the end of what the kernel takes")
            assert resident(daemon, "VmHWM") < 200 * MB


def sends_no_more(daemon: RemoteDaemon) -> bool:
    """Whether the daemon does nothing for a while."""
    process = psutil.Process(daemon.process.pid)
    return bool(process.cpu_percent(0.5) == 0.0)


def test_peers_that_take_nothing_under_tls_cost_a_piece_of_the_message_each(home: RemoteHome) -> None:
    large = home.message(b"Subject: large\n\n" + (b"x" * 99 + b"\n") * (4 * MB // 100))
    hanging: list[Peer] = []
    over = threading.Event()

    def script(peer: Peer) -> None:
        peer.greet_under_tls(server_context())
        for answer in (b"250 ok", b"250 ok", b"354 go"):
            peer.hear()
            peer.say(answer)
        hanging.append(peer)
        over.wait(600)

    with RawServer(script) as server:
        home.route_all_to(server.port)
        with RemoteDaemon(home) as daemon:
            for number in range(60):
                daemon.start(large, b"to@h%d.example" % number)
            wait_until(lambda: len(hanging) == 60, deadline=300, why="60 connections that hang")
            wait_until(lambda: sends_no_more(daemon), why="the end of what the kernel takes")
            # 500 kB each, and more, if the message were taken as fast as it can be read.
            assert resident(daemon, "VmHWM") < 60 * MB
        over.set()


def flat(home: RemoteHome, count: int) -> None:
    """Check that memory and descriptors after many deliveries are those after a few."""
    # Nobody listens at port 1. A name for each to say keeps their connections apart.
    nexthops = [b"h%d.example" % number for number in range(19)] + [b"down.example"]
    path = home.message(TEXT)
    with SmtpSink(keep=False) as sink:
        home.control("smtproutes", f":127.0.0.1:{sink.port}\ndown.example:127.0.0.1:1")
        home.control("helohost", "\n".join(f"h{number}.example:h{number}.example.org" for number in range(19)))
        with RemoteDaemon(home) as daemon:
            process = psutil.Process(daemon.process.pid)
            # With one connection, and what the event loop opens for its first.
            assert daemon.deliver_many(path, 1, 1) == 0
            descriptors = process.num_fds()
            warm = 2000
            assert daemon.deliver_many(path, warm, 40, nexthops) == warm // 20
            before = resident(daemon)
            assert daemon.deliver_many(path, count, 40, nexthops) == count // 20
            assert resident(daemon) < before + 4 * MB
            wait_until(lambda: process.num_fds() <= descriptors, deadline=300, why="the idle connections' end")


def test_memory_and_descriptors_are_the_same_after_10000_deliveries(home: RemoteHome) -> None:
    flat(home, 10_000)


@pytest.mark.exhaustive
def test_memory_and_descriptors_are_the_same_after_100000_deliveries(home: RemoteHome) -> None:
    flat(home, 100_000)


def store_100_megabytes(home: RemoteHome) -> tuple[bytes, int]:
    """Store a message; return its path, and its size on the wire."""
    block = (b"x" * 62 + b"\n" + b".\n") * 16384
    path = home.message(b"")
    with (home.path / "queue" / path.decode()).open("wb") as file:
        for _ in range(100):
            file.write(block)
    # CR for each line, a dot for every second one, and the end.
    return path, 100 * (len(block) + 3 * 16384) + 3


def test_100_megabytes_to_50_destinations_that_read_slowly_fast_or_never(home: RemoteHome) -> None:
    path, size = store_100_megabytes(home)
    with ManyPeers(lambda number: FAST if number < 4 else (SLOW, MESSAGE)[number % 2]) as server:
        home.route_all_to(server.port)
        with RemoteDaemon(home) as daemon:
            for number in range(50):
                daemon.start(path, b"to@h%d.example" % number)
            for _ in range(4):
                assert daemon.report_of_any(600).verdicts[0][0] == b"K"
            assert server.taken == [size] * 4
            assert resident(daemon, "VmHWM") < 100 * MB


@pytest.mark.exhaustive
def test_100_megabytes_to_50_destinations_arrive_whole(home: RemoteHome) -> None:
    path, size = store_100_megabytes(home)
    with ManyPeers(lambda number: FAST) as server:
        home.route_all_to(server.port)
        with RemoteDaemon(home) as daemon:
            for number in range(50):
                daemon.start(path, b"to@h%d.example" % number)
            for _ in range(50):
                assert daemon.report_of_any(600).verdicts[0][0] == b"K"
            assert server.taken == [size] * 50
            assert resident(daemon, "VmHWM") < 100 * MB
