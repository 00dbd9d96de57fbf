"""queue-remote under TLS: STARTTLS as it is by default, and what is done where it breaks."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from ssl import PROTOCOL_TLS_CLIENT, SSLContext

import pytest

from queue_remote.tls.contexts import Contexts
from queue_wire.pipes.report import HOST_SCOPE
from support.processes.remote_daemon import RemoteDaemon, RemoteHome
from support.servers.certificate import server_context
from support.servers.smtp.raw_server import Peer, RawServer

TEXT = b"Subject: hello\n\nA message.\n"
ACCEPTED = [(b"K", b"127.0.0.1 accepted message.\nRemote host said: 250 done\n")]


@pytest.fixture
def home(tmp_path: Path) -> RemoteHome:
    server_context()
    return RemoteHome(tmp_path, timeoutconnect="5", timeoutremote="20", connectionidle="0")


def begin_tls(peer: Peer, answer: bytes = b"220 go ahead") -> None:
    """Greet, offer STARTTLS, and say `answer` to it."""
    peer.greet(b"SIZE 1000000", b"STARTTLS")
    assert peer.hear() == b"STARTTLS"
    peer.say(answer)


def greet_again(peer: Peer, *extensions: bytes) -> None:
    assert peer.hear().startswith(b"EHLO ")
    names = [b"raw.example", *extensions]
    peer.say(*[b"250%s%s" % (b" " if name is names[-1] else b"-", name) for name in names])


def deliver(home: RemoteHome, *scripts: Callable[[Peer], None]) -> list[tuple[bytes, bytes]]:
    """Deliver a message to a server whose connections follow the scripts, one after the other; return the verdicts."""
    left = list(scripts)
    with RawServer(lambda peer: left.pop(0)(peer)) as server:
        home.route_all_to(server.port)
        with RemoteDaemon(home) as daemon:
            report = daemon.deliver(home.message(TEXT), b"to@b.example")
            daemon.end()
    assert left == []
    return report.verdicts


def test_starttls_is_used_where_it_is_offered_and_what_was_said_before_is_forgotten(home: RemoteHome) -> None:
    heard: list[bytes] = []

    def script(peer: Peer) -> None:
        begin_tls(peer)
        peer.start_tls(server_context())
        greet_again(peer)
        heard.append(peer.hear())
        peer.say(b"250 ok")
        for said in (b"250 ok", b"354 go"):
            peer.hear()
            peer.say(said)
        heard.append(peer.hear_message())
        peer.say(b"250 done")
        heard.append(peer.hear())

    assert deliver(home, script) == ACCEPTED
    assert heard == [b"MAIL FROM:<from@a.example>", TEXT.replace(b"\n", b"\r\n") + b".\r\n", b"QUIT"]


def in_clear(peer: Peer) -> None:
    peer.greet(b"STARTTLS")
    peer.take_message()


def no_handshake(peer: Peer) -> None:
    begin_tls(peer)
    peer.say(b"this is no TLS" * 100)
    peer.wait_for_end()


def end_at_handshake(peer: Peer) -> None:
    begin_tls(peer)


def inject(peer: Peer) -> None:
    begin_tls(peer, b"220 go ahead\r\n250-raw.example\r\n250 AUTH PLAIN")
    peer.wait_for_end()


def end_after_handshake(peer: Peer) -> None:
    begin_tls(peer)
    peer.start_tls(server_context())
    assert peer.hear().startswith(b"EHLO ")


def end_at_starttls(peer: Peer) -> None:
    peer.greet(b"STARTTLS")
    assert peer.hear() == b"STARTTLS"


def no_reply_to_starttls(peer: Peer) -> None:
    end_at_starttls(peer)
    peer.say(b"what?")
    peer.wait_for_end()


def dismiss_at_starttls(peer: Peer) -> None:
    begin_tls(peer, b"421 4.7.0 TLS not available, closing")


@pytest.mark.parametrize(
    "broken",
    [
        *(no_handshake, end_at_handshake, inject, end_after_handshake, end_at_starttls, no_reply_to_starttls),
        dismiss_at_starttls,
    ],
)
def test_where_opportunistic_tls_breaks_the_mail_goes_in_clear_over_a_fresh_connection(
    home: RemoteHome, broken: Callable[[Peer], None]
) -> None:
    assert deliver(home, broken, in_clear) == ACCEPTED


@pytest.mark.parametrize("reply", [b"454 not today", b"502 what?"])
def test_where_starttls_is_refused_the_mail_goes_in_clear_over_the_same_connection(
    home: RemoteHome, reply: bytes
) -> None:
    def script(peer: Peer) -> None:
        begin_tls(peer, reply)
        peer.take_message()

    assert deliver(home, script) == ACCEPTED


@pytest.mark.parametrize(
    "begin", [begin_tls, end_at_starttls, dismiss_at_starttls], ids=["the handshake", "STARTTLS", "421 to STARTTLS"]
)
def test_silence_after_starttls_and_421_to_it_cost_a_connection_once(
    home: RemoteHome, begin: Callable[[Peer], None]
) -> None:
    home.control("timeoutconnect", "2")
    home.control("timeoutremote", "600")
    home.control("connectionidle", "0")
    reported = threading.Event()
    heard: list[bytes] = []

    def silent(peer: Peer) -> None:
        begin(peer)
        reported.wait(60)

    def clear(peer: Peer) -> None:
        peer.greet(b"STARTTLS")
        heard.append(peer.hear())
        peer.say(b"451 not now")

    left = [silent, in_clear, clear]
    with RawServer(lambda peer: left.pop(0)(peer)) as server:
        home.route_all_to(server.port)
        with RemoteDaemon(home) as daemon:
            begun = time.monotonic()
            assert daemon.deliver(home.message(TEXT), b"to@b.example").verdicts == ACCEPTED
            assert time.monotonic() - begun < 30
            daemon.deliver(home.message(TEXT), b"to@b.example")
            reported.set()
    # The server is remembered: the next connection does not ask it for TLS.
    assert heard == [b"MAIL FROM:<from@a.example>"]


def test_a_handshake_that_never_ends_costs_timeoutremote_where_tls_is_required(home: RemoteHome) -> None:
    home.control("timeoutconnect", "1")
    home.control("timeoutremote", "3")
    home.control("tlspolicy", ":encrypt")

    def script(peer: Peer) -> None:
        begin_tls(peer)
        peer.wait_for_end()

    begun = time.monotonic()
    [(letter, _)] = deliver(home, script)
    assert letter == b"Z"
    assert time.monotonic() - begun > 2.5


def test_tls_that_dies_in_the_message_defers_it(home: RemoteHome) -> None:
    def script(peer: Peer) -> None:
        begin_tls(peer)
        peer.start_tls(server_context())
        greet_again(peer)
        for said in (b"250 ok", b"250 ok"):
            peer.hear()
            peer.say(said)

    [(letter, text)] = deliver(home, script)
    assert letter == b"Z"
    assert text.startswith(b"Connected to 127.0.0.1 but connection died. (#4.4.2)\nAt DATA: ")


def test_a_clear_attempt_that_fails_too_is_the_hosts_trouble(home: RemoteHome) -> None:
    left: list[Callable[[Peer], None]] = [end_at_handshake, lambda peer: peer.say(b"554 go away")]
    with RawServer(lambda peer: left.pop(0)(peer)) as server:
        home.route_all_to(server.port)
        with RemoteDaemon(home) as daemon:
            report = daemon.deliver(home.message(TEXT), b"to@b.example")
    assert report.scope == HOST_SCOPE
    assert b"554 go away" in report.verdicts[0][1]


@pytest.mark.parametrize("kind", ["opportunistic", "required", "verified", "https"])
def test_no_server_may_choose_the_size_of_a_finite_field(kind: str) -> None:
    """Diffie-Hellman over one of 10,000 bits takes a second of CPU time, in which nothing else is delivered."""
    context = getattr(Contexts(), kind)()
    names = [cipher["name"] for cipher in context.get_ciphers()]
    assert any(name.startswith("ECDHE-") for name in names)
    assert not [name for name in names if name.startswith("DHE-") and "PSK" not in name]
    # It is the same otherwise.
    assert context.security_level == (0 if kind == "opportunistic" else SSLContext(PROTOCOL_TLS_CLIENT).security_level)
