"""Debian's haproxy in front of queue-smtpd, with both versions of the PROXY protocol; swaks with XCLIENT."""

import os
import smtplib
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from queue_base.home import Home
from support.inject.injectors import shared_home
from support.processes.suite import wait_until
from support.servers.certificate import make_certificate
from support.smtpd.smtpd_daemon import SmtpdDaemon, free_ports, trusting
from support.tools import need

ANN, EVE = "ann@example.net", "eve@example.com"
# haproxy itself connects from 127.0.0.1.
CLIENT = ("127.0.0.7", 0)


@pytest.fixture
def smtpd_home(tmp_path: Path) -> Iterator[Home]:
    """Yield a home of which one client may relay, and whose balancers and proxies are on this host."""
    with shared_home(0) as home:
        certificate, key = make_certificate(tmp_path)
        for name, text in (
            ("rcpthosts", "example.org"), ("relayclients", CLIENT[0]), ("proxyclients", "127.0.0.1"),
            ("xclients", "127.0.0.1"), ("smtpdcert", f":{certificate} {key}"),
        ):  # fmt: skip
            Path(home.control, name).write_text(text + "\n")
        yield home


@contextmanager
def haproxy(place: Path, *servers: str) -> Iterator[list[int]]:
    """Run haproxy with a port for each of these lines `server`; yield the ports."""
    ports = free_ports(len(servers))
    lines = ["defaults", "mode tcp", "timeout connect 60s", "timeout client 60s", "timeout server 60s"]
    for port, server in zip(ports, servers, strict=True):
        lines += [f"listen port{port}", f"bind 127.0.0.1:{port}", f"server mx {server}"]
    config = place / "haproxy.cfg"
    config.write_text("\n".join((*lines, "")))
    env = {**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin"}
    process = subprocess.Popen(
        [need("haproxy"), "-db", "-q", "-f", str(config)], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, env=env
    )
    try:
        yield ports
    finally:
        process.kill()
        process.communicate(timeout=60)


def client_of(port: int, secure: bool) -> smtplib.SMTP | None:
    """Return a client on a port of haproxy, None if haproxy does not listen yet."""
    try:
        if secure:
            return smtplib.SMTP_SSL("127.0.0.1", port, timeout=60, source_address=CLIENT, context=trusting())
        return smtplib.SMTP("127.0.0.1", port, timeout=60, source_address=CLIENT)
    except ConnectionRefusedError:
        return None


def test_behind_haproxy_the_rules_look_at_its_client(smtpd_home: Home, tmp_path: Path) -> None:
    with SmtpdDaemon(smtpd_home, ["mx proxy", "submissions proxy"]) as daemon:
        first, second = [f"127.0.0.1:{port}" for port in daemon.ports]
        lines = f"{first} send-proxy", f"{second} send-proxy-v2", f"{first} send-proxy-v2 check inter 100ms"
        with haproxy(tmp_path, *lines) as ports:
            for port, secure in zip(ports, (False, True, False), strict=True):
                found: list[smtplib.SMTP] = []

                def reached(port: int = port, secure: bool = secure, found: list[smtplib.SMTP] = found) -> bool:
                    found += [each for each in [client_of(port, secure)] if each is not None]
                    return bool(found)

                wait_until(reached, 60, "haproxy to listen")
                with found[0] as client:
                    client.ehlo("c.example")
                    client.mail(ANN)
                    assert client.rcpt(EVE)[0] == 250
                daemon.wait_for(b"connect 127.0.0.7:")
                daemon.log = b""
            # Its checks speak for themselves.
            daemon.wait_for(b"connect 127.0.0.1:")
            assert not daemon.said(b"refused PROXY"), daemon.log


def test_swaks_names_a_client_by_xclient(smtpd_home: Home) -> None:
    with SmtpdDaemon(smtpd_home) as daemon:
        words = [need("swaks"), "--server", f"127.0.0.1:{daemon.ports[0]}", "--from", ANN, "--to", EVE]
        words += ["--quit-after", "RCPT", "--xclient-port", "4007", "--xclient-name", "c.example", "--xclient-addr"]
        relayed = subprocess.run([*words, CLIENT[0]], capture_output=True, text=True, timeout=60, check=False)
        assert relayed.returncode == 0, relayed.stdout
        refused = subprocess.run([*words, "127.0.0.8"], capture_output=True, text=True, timeout=60, check=False)
        assert "550 5.7.1 Relaying denied" in refused.stdout
        daemon.wait_for(b"connect 127.0.0.8:4007 c.example to 127.0.0.1:")
