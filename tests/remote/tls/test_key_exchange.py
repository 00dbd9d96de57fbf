"""The exchange of keys with servers that accept one group alone: a large finite field costs more than a turn may."""

import asyncio
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import uvloop

from queue_remote.tls import mta_sts
from queue_remote.tls.contexts import Contexts
from queue_remote.tls.mta_sts import NoPolicy, fetch_policy
from support.processes.suite import wait_until
from support.servers.certificate import make_certificate
from support.smtpd.smtpd_daemon import free_ports
from support.tools import need

STEP_MAX = 0.02
REFUSED = "Diffie-Hellman over a finite field of more than 3072 bits"


@contextmanager
def server_of(group: str, directory: Path) -> Iterator[int]:
    """Run OpenSSL's server, which takes TLS 1.3 with one group; yield its port."""
    certificate, key = make_certificate(directory)
    [port] = free_ports(1)
    words = [need("openssl"), "s_server", "-accept", f"127.0.0.1:{port}", "-cert", str(certificate), "-key", str(key)]
    words += ["-groups", group, "-tls1_3", "-quiet"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            wait_until(lambda: listens(port), 20, "OpenSSL's server to listen")
            yield port
        finally:
            server.kill()


def listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def shake_hands(context: ssl.SSLContext, port: int) -> tuple[str | None, list[float]]:
    """Return the version of TLS, and the CPU time of each step. Raises ssl.SSLError."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname="raw.example")
    steps: list[float] = []
    with socket.create_connection(("127.0.0.1", port), 20) as connection:
        while True:
            begun = time.thread_time()
            try:
                tls.do_handshake()
                return tls.version(), [*steps, time.thread_time() - begun]
            except ssl.SSLWantReadError:
                steps.append(time.thread_time() - begun)
            finally:
                connection.sendall(outgoing.read())
            incoming.write(connection.recv(65536))


@pytest.mark.parametrize("group", ["ffdhe4096", "ffdhe8192"])
@pytest.mark.parametrize("kind", ["opportunistic", "required", "verified", "https"])
def test_a_server_that_wants_a_large_finite_field_is_refused_before_it_costs_anything(
    tmp_path: Path, kind: str, group: str
) -> None:
    context = getattr(Contexts(), kind)()
    with server_of(group, tmp_path) as port:
        begun = time.thread_time()
        with pytest.raises(ssl.SSLError, match=REFUSED):
            shake_hands(context, port)
        assert time.thread_time() - begun < STEP_MAX


@pytest.mark.parametrize("group", ["X25519", "P-256", "P-384", "P-521", "X448", "ffdhe2048", "ffdhe3072"])
def test_a_server_that_wants_any_other_group_is_used(tmp_path: Path, group: str) -> None:
    with server_of(group, tmp_path) as port:
        version, steps = shake_hands(Contexts().opportunistic(), port)
    assert version == "TLSv1.3"
    assert max(steps) < STEP_MAX


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_event_loops_and_the_fetch_of_a_policy_refuse_it_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Callable[..., object]
) -> None:
    contexts = Contexts()

    async def connect(port: int) -> None:
        monkeypatch.setattr(mta_sts, "HTTPS_PORT", port)
        for _ in range(2):
            with pytest.raises(ssl.SSLError, match=REFUSED):
                await asyncio.open_connection(
                    "127.0.0.1", port, ssl=contexts.required(), server_hostname="raw.example"
                )
            with pytest.raises(NoPolicy, match=REFUSED):
                await fetch_policy("mta-sts.raw.example", ["127.0.0.1"], contexts.https())

    with server_of("ffdhe8192", tmp_path) as port:
        run(connect(port))
