"""queue-remote --trace: the dialogue with a real server, with times, and without passwords and message."""

import re

import pytest

from queue_remote.smtp.trace import Trace
from support.processes.forked import run_program
from support.processes.remote_daemon import RemoteHome
from support.servers.certificate import server_context
from support.servers.smtp.raw_server import Peer, RawServer

TEXT = b"Subject: hello\n\n.A message.\n"


def trace(home: RemoteHome, *arguments: str) -> tuple[bytes, list[str]]:
    """Run it; return the reports, and the lines of the trace without their times."""
    done = run_program("queue-remote", *arguments, given=TEXT)
    assert done.returncode == 0
    lines = done.stderr.decode().splitlines()
    assert all(re.fullmatch(r" *\d+ ms  .*", line) for line in lines), lines
    return done.stdout, [line.partition(" ms  ")[2] for line in lines]


def test_the_dialogue_is_shown_in_order(home: RemoteHome) -> None:
    def script(peer: Peer) -> None:
        peer.greet(b"PIPELINING")
        peer.take_message(b"250 taken\x1b[2J")
        assert peer.hear() == b"QUIT"
        peer.say(b"221 bye")

    with RawServer(script) as server:
        home.control("smtproutes", f":localhost:{server.port}")
        reports, lines = trace(home, "--trace", "--home", str(home.path), "b.example", "f@a.example", "to@b.example")
    assert reports.startswith(b"r\0K127.0.0.1 (localhost) accepted message.\n")
    start = lines.index(f"*  connecting to 127.0.0.1 (localhost), port {server.port}")
    assert lines[0] == f"*  smtproutes: :localhost:{server.port}"
    assert lines[start:] == [
        f"*  connecting to 127.0.0.1 (localhost), port {server.port}",
        "S: 220 raw.example",
        "C: EHLO client.example",
        "S: 250-raw.example",
        "S: 250 PIPELINING",
        "C: MAIL FROM:<f@a.example>",
        "C: RCPT TO:<to@b.example>",
        "C: DATA",
        "S: 250 ok",
        "S: 250 ok",
        "S: 354 go",
        "C: (35 bytes of message)",
        "S: 250 taken\\x1b[2J",
        "C: QUIT",
        "S: 221 bye",
    ]


def test_tls_is_shown_with_its_version_and_whether_the_peer_is_verified(home: RemoteHome) -> None:
    def script(peer: Peer) -> None:
        peer.greet_under_tls(server_context())
        peer.take_message()

    server_context()
    with RawServer(script) as server:
        home.route_all_to(server.port)
        reports, lines = trace(home, "--home", str(home.path), "--trace", "b.example", "f@a", "to@b")
    assert reports.startswith(b"r\0K")
    start = lines.index("S: 220 go")
    assert re.fullmatch(r"\*  TLS: TLSv1\.3 TLS_\w+, not verified: policy may", lines[start + 1])
    assert lines[start + 2] == "C: EHLO client.example"


def test_a_host_that_cannot_be_reached_is_shown_with_the_reason(home: RemoteHome) -> None:
    with RawServer(lambda peer: None) as server:
        port = server.port
    home.route_all_to(port)
    reports, lines = trace(home, "--home", str(home.path), "--trace", "b.example", "f@a", "to@b")
    assert reports.startswith(b"ZSorry")
    assert lines[-1:] == ["*  not connected: connection refused"]


def test_each_host_that_would_not_do_is_shown_with_the_reason(home: RemoteHome) -> None:
    """The report has that of the last one only."""
    first, last = RawServer(lambda peer: peer.say(b"554 go away")), RawServer(lambda peer: peer.say(b"421 later"))
    with first, last:
        home.control("smtproutes", f":127.0.0.1:{first.port},127.0.0.1:{last.port}")
        _, lines = trace(home, "--home", str(home.path), "--trace", "b.example", "f@a", "to@b")
    assert "*  Connected to 127.0.0.1 but greeting failed. Remote host said: 554 go away" in lines


def test_passwords_are_not_shown(capfd: pytest.CaptureFixture[str]) -> None:
    shown = Trace(2)
    shown.said(b"AUTH PLAIN c2VjcmV0\r\n", True)
    shown.said(b"AUTH LOGIN\r\n", True)
    shown.said(b"c2VjcmV0\r\n", True)
    shown.said(b"EHLO me\r\n", False)
    lines = [line.partition(" ms  ")[2] for line in capfd.readouterr().err.splitlines()]
    assert lines == ["C: AUTH PLAIN ***", "C: AUTH LOGIN", "C: ***", "C: EHLO me"]


def test_a_reply_that_never_ends_is_shown_as_far_as_it_goes(capfd: pytest.CaptureFixture[str]) -> None:
    shown = Trace(2)
    for _ in range(300):
        shown.heard(b"x" * 10)
    shown.closed()
    out = capfd.readouterr().err
    assert 2000 < out.count("x") <= 3000
