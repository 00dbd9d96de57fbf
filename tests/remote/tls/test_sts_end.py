"""A fetch of an MTA-STS policy that is not over when queue-remote ends: it leaves nothing behind, on stderr neither."""

import asyncio
import contextlib
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvloop

from queue_remote.tls import mta_sts
from queue_remote.tls.contexts import Contexts
from queue_remote.tls.mta_sts import StsCache
from support.processes.remote_daemon import RemoteDaemon, RemoteHome
from support.servers.dns.authority import Certificate
from support.servers.dns.dns_server import DnsServer
from support.servers.dns.known_names import KnownNames
from support.servers.policy_server import PolicyServer
from support.servers.smtp.raw_server import Peer, RawServer

CA = Certificate("test CA", authority=True)
WEB = Certificate("web", CA, names=["mta-sts.mx.example"])
POLICY = b"version: STSv1\nmode: enforce\nmx: mx.example\nmax_age: 864000\n"
RECORDS = {
    ("mx.example", "A"): ["127.0.0.1"],
    ("_mta-sts.mx.example", "TXT"): ['"v=STSv1; id=1;"'],
    ("mta-sts.mx.example", "A"): ["127.0.0.1"],
}
# A queue-remote for which HTTPS has another port, and every policy is old.
COMMAND = """
import sys
from queue_remote import main
from queue_remote.tls import mta_sts
mta_sts.HTTPS_PORT = {port}
mta_sts.REFRESH_SECONDS = -1.0
sys.exit(main.main(["queue-remote", "--home", *sys.argv[1:]]))
"""


class SilentWeb(RawServer):
    """A web server that never answers; `asked` is set once it has a connection."""

    def __init__(self) -> None:
        super().__init__(self._wait)
        self.asked = threading.Event()

    def _wait(self, peer: Peer) -> None:
        self.asked.set()
        peer.wait_for_end()


@pytest.mark.parametrize("turns", range(8))
def test_a_fetch_that_is_cancelled_at_any_of_its_first_turns_ends_in_silence(
    turns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        async with contextlib.aclosing(StsCache()) as cache:
            finding = asyncio.create_task(cache.find(KnownNames(), Contexts(), b"b.example"))
            for _ in range(turns):
                await asyncio.sleep(0)
            finding.cancel()

    with SilentWeb() as web:
        monkeypatch.setattr(mta_sts, "HTTPS_PORT", web.port)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(run())
    # A coroutine that was never awaited is reported when it is freed, and fails the test.
    gc.collect()


class Place:
    """A home whose mail all goes to mx.example, with certificates that queue-remote trusts."""

    def __init__(self, home: RemoteHome) -> None:
        self.home = home

    def command(self, web: RawServer) -> list[str]:
        return [sys.executable, "-c", COMMAND.format(port=web.port)]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    (tmp_path / "ca.pem").write_bytes(CA.pem)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    home = RemoteHome(tmp_path, smtproutes=":mx.example:1", tlspolicy=":may sts=enforce")
    with DnsServer(RECORDS) as dns:
        home.control("resolver", f"127.0.0.1:{dns.port}")
        yield Place(home)


def test_a_policy_that_is_being_renewed_when_the_route_is_known_is_not_waited_for(place: Place) -> None:
    with PolicyServer(WEB) as web:
        web.policy(POLICY)
        words = [*place.command(web), str(place.home.path), "--route", "b.example"]
        done = subprocess.run(words, capture_output=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"tls: MTA-STS of mx.example: id 1, mode enforce" in done.stdout


@pytest.mark.parametrize("words", [["--route", "b.example"], ["b.example", "from@a.example", "to@b.example"]])
def test_an_interrupt_during_a_fetch_ends_it_at_once_and_in_silence(place: Place, words: list[str]) -> None:
    with SilentWeb() as web:
        process = subprocess.Popen(
            [*place.command(web), str(place.home.path), *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        with process:
            try:
                assert web.asked.wait(60)
                sent = time.monotonic()
                os.kill(process.pid, signal.SIGINT)
                assert process.communicate(timeout=60) == (b"", b"")
                assert time.monotonic() - sent < mta_sts.FETCH_SECONDS / 4
            finally:
                process.kill()
    assert process.returncode == -signal.SIGINT


def test_the_daemon_that_loses_queue_send_during_a_fetch_exits_at_once_and_in_silence(place: Place) -> None:
    with SilentWeb() as web, RemoteDaemon(place.home, place.command(web)) as daemon:
        daemon.start(place.home.message(b"\nA message.\n"), b"to@b.example")
        assert web.asked.wait(60)
        closed = time.monotonic()
        assert daemon.end() == (0, b"")
        assert time.monotonic() - closed < mta_sts.FETCH_SECONDS / 4
