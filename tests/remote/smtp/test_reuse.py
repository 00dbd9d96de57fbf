"""queue-remote's connections: kept for the next job to their nexthop, replaced where they have died, and ended well."""

import contextlib
import threading
import time
from collections.abc import Callable

import pytest

from queue_wire.pipes.report import HOST_SCOPE, MESSAGE_SCOPE
from support.processes.remote_daemon import COMMAND, RemoteDaemon, RemoteHome
from support.servers.smtp.raw_server import Peer, RawServer
from support.servers.smtp.smtp_server import SmtpServer

TEXT = b"Subject: hello\n\nA message.\n"


pytestmark = pytest.mark.home(connectionidle="20")


def letters(daemon: RemoteDaemon, path: bytes, count: int) -> list[bytes]:
    """Deliver a message so many times, one after the other; return the verdicts' letters."""
    return [daemon.deliver(path, b"to@b.example").verdicts[0][0] for _ in range(count)]


def test_one_connection_carries_message_after_message_and_says_quit_at_the_end(home: RemoteHome) -> None:
    heard: list[bytes] = []

    def script(peer: Peer) -> None:
        peer.greet(b"PIPELINING")
        for _ in range(3):
            peer.take_message()
        heard.append(peer.hear())

    with RawServer(script) as server:
        home.route_all_to(server.port)
        with RemoteDaemon(home) as daemon:
            assert letters(daemon, home.message(TEXT), 3) == [b"K"] * 3
            assert daemon.end() == (0, b"")
    assert server.connections == 1
    assert heard == [b"QUIT"]


def test_a_late_rest_of_a_loose_reply_refuses_nobody_of_the_next_message(home: RemoteHome) -> None:
    def script(peer: Peer) -> None:
        peer.greet(b"PIPELINING")
        answer = b"250ok"
        while line := peer.hear():
            if line.startswith(b"MAIL") and answer == b"250 ok":
                peer.say(b"250 queued as 1")
            if line == b"DATA":
                peer.say(b"354 go")
                peer.hear_message()
                peer.say(answer)
                answer = b"250 ok"
            elif line != b"QUIT":
                peer.say(b"550 no such user" if b"<no@" in line else b"250 ok")

    with RawServer(script) as server:
        home.route_all_to(server.port)
        with RemoteDaemon(home) as daemon:
            path = home.message(TEXT)
            assert daemon.deliver(path, b"to@b.example").verdicts[0][0] == b"K"
            report = daemon.deliver(path, b"to@b.example", b"no@b.example")
    assert [letter for letter, _ in report.verdicts] == [b"K", b"D"]


def test_a_connection_carries_no_more_than_connectionmessages(home: RemoteHome) -> None:
    home.control("connectionmessages", "2")
    with SmtpServer() as server:
        home.route_all_to(server.port)
        with RemoteDaemon(home) as daemon:
            assert letters(daemon, home.message(TEXT), 5) == [b"K"] * 5
    assert server.connections == 3


def test_an_idle_connection_ends_after_connectionidle(home: RemoteHome) -> None:
    home.control("connectionidle", "1")
    ended = threading.Event()

    def script(peer: Peer) -> None:
        peer.greet()
        peer.take_message()
        assert peer.hear() == b"QUIT"
        peer.say(b"221 bye")
        assert peer.wait_for_end() == b""
        ended.set()

    with RawServer(script) as server:
        home.route_all_to(server.port)
        with RemoteDaemon(home) as daemon:
            assert letters(daemon, home.message(TEXT), 1) == [b"K"]
            assert ended.wait(60)


def test_another_way_has_a_connection_of_its_own(home: RemoteHome) -> None:
    with SmtpServer() as server:
        home.control("smtproutes", f":127.0.0.1:{server.port}\nc.example:localhost:{server.port}")
        path = home.message(TEXT)
        with RemoteDaemon(home) as daemon:
            for nexthop in (b"b.example", b"c.example", b"b.example"):
                assert daemon.deliver(path, b"to@b.example", nexthop=nexthop).verdicts[0][0] == b"K"
    assert server.connections == 2


def test_a_refused_recipient_is_followed_by_rset_on_the_same_connection(home: RemoteHome) -> None:
    heard: list[bytes] = []

    def script(peer: Peer) -> None:
        peer.greet()
        for said in (b"250 ok", b"550 no such user", b"250 reset"):
            heard.append(peer.hear()[:4])
            peer.say(said)
        peer.take_message()

    with RawServer(script) as server:
        home.route_all_to(server.port)
        with RemoteDaemon(home) as daemon:
            assert letters(daemon, home.message(TEXT), 2) == [b"D", b"K"]
    assert heard == [b"MAIL", b"RCPT", b"RSET"]
    assert server.connections == 1


@pytest.mark.parametrize("goodbye", [b"", b"421 idle too long\r\n", b"250 what?\r\n", b"4"])
def test_a_connection_that_dies_or_speaks_while_it_waits_is_replaced(home: RemoteHome, goodbye: bytes) -> None:
    died = threading.Event()

    def script(peer: Peer) -> None:
        peer.greet()
        peer.take_message()
        if not died.is_set():
            peer.drip(goodbye, 0)
            if goodbye:
                # Until queue-remote has read it: after the next MAIL it would be the reply to that.
                peer.wait_for_more()
            died.set()

    with RawServer(script) as server:
        home.route_all_to(server.port)
        path = home.message(TEXT)
        with RemoteDaemon(home) as daemon:
            assert letters(daemon, path, 1) == [b"K"]
            assert died.wait(60)
            assert letters(daemon, path, 1) == [b"K"]
    assert server.connections == 2


@pytest.mark.parametrize("answer", [b"421 enough", None])
def test_a_used_connection_that_fails_at_mail_is_replaced_and_not_reported(
    home: RemoteHome, answer: bytes | None
) -> None:
    first = [True]

    def script(peer: Peer) -> None:
        peer.greet()
        peer.take_message()
        if first.pop() if first else False:
            assert peer.hear().startswith(b"MAIL")
            if answer is not None:
                peer.say(answer)

    with RawServer(script) as server:
        home.route_all_to(server.port)
        with RemoteDaemon(home) as daemon:
            assert letters(daemon, home.message(TEXT), 2) == [b"K", b"K"]
    assert server.connections == 2


@pytest.mark.parametrize(("answer", "scope"), [(b"421 enough", HOST_SCOPE), (b"550 not you", MESSAGE_SCOPE)])
def test_on_a_fresh_connection_421_to_mail_is_about_the_host_and_another_reply_is_not(
    home: RemoteHome, answer: bytes, scope: bytes
) -> None:
    def script(peer: Peer) -> None:
        peer.greet()
        assert peer.hear().startswith(b"MAIL")
        peer.say(answer)

    with RawServer(script) as server:
        home.route_all_to(server.port)
        with RemoteDaemon(home) as daemon:
            report = daemon.deliver(home.message(TEXT), b"to@b.example")
    assert report.scope == scope
    assert answer in report.verdicts[0][1]


def test_a_server_that_closes_at_ehlo_is_asked_again_with_helo(home: RemoteHome) -> None:
    hellos: list[bytes] = []

    def script(peer: Peer) -> None:
        peer.say(b"220 very.old.example")
        hellos.append(peer.hear())
        if hellos[-1].startswith(b"EHLO"):
            peer.say(b"500 what?")
            return
        peer.say(b"250 hello")
        peer.take_message()

    with RawServer(script) as server:
        home.route_all_to(server.port)
        with RemoteDaemon(home) as daemon:
            assert letters(daemon, home.message(TEXT), 1) == [b"K"]
    assert hellos == [b"EHLO client.example", b"HELO client.example"]


def test_where_few_may_be_open_the_connection_that_has_waited_longest_makes_room(home: RemoteHome) -> None:
    ended: list[bytes] = []

    def script(peer: Peer) -> None:
        peer.greet()
        peer.hear()
        peer.say(b"250 ok")
        recipient = peer.hear()
        peer.say(b"250 ok")
        peer.hear()
        peer.say(b"354 go")
        peer.hear_message()
        peer.say(b"250 done")
        peer.wait_for_end()
        ended.append(recipient)

    with RawServer(script) as server:
        home.route_all_to(server.port)
        # A name for each to say keeps them apart.
        home.control("helohost", "\n".join(f"h{number}.example:h{number}.example.org" for number in range(8)))
        path = home.message(TEXT)
        command = ["sh", "-c", 'ulimit -n 60; exec "$@"', "sh", *COMMAND]
        with RemoteDaemon(home, command) as daemon:
            assert daemon.ready == 5
            for number in range(8):
                recipient = b"to@h%d.example" % number
                assert daemon.deliver(path, recipient).verdicts[0][0] == b"K"
                deadline = time.monotonic() + 60
                while len(ended) < number - 4:
                    assert time.monotonic() < deadline
                assert ended == [b"RCPT TO:<to@h%d.example>" % old for old in range(number - 4)]
    assert server.connections == 8


def test_a_domain_with_limits_of_its_own_uses_the_connections_of_its_relay(home: RemoteHome) -> None:
    with SmtpServer() as server:
        home.control("destinationlimits", "c.example concurrency=1")
        home.route_all_to(server.port)
        path = home.message(TEXT)
        with RemoteDaemon(home) as daemon:
            for nexthop in (b"b.example", b"c.example", b"b.example"):
                assert daemon.deliver(path, b"to@" + nexthop, nexthop=nexthop).verdicts[0][0] == b"K"
    assert server.connections == 1


def judging(judge: Callable[[bytes, int], bytes]) -> Callable[[Peer], None]:
    """Return a script whose reply to MAIL is `judge`'s, which is told how many messages the connection has carried."""

    def script(peer: Peer) -> None:
        peer.greet(b"PIPELINING")
        taken, mail = 0, b""
        while line := peer.hear():
            if line.startswith(b"MAIL"):
                mail = judge(line, taken)
                peer.say(mail)
            elif mail.startswith(b"2") and line == b"DATA":
                peer.say(b"354 go")
                # An envelope that was sent behind a message may be taken back, with the connection.
                with contextlib.suppress(AssertionError):
                    peer.hear_message()
                taken, mail = taken + 1, b""
                peer.say(b"250 done")
            else:
                peer.say(b"250 ok" if mail.startswith(b"2") or line == b"RSET" else b"503 MAIL first")

    return script


@pytest.mark.parametrize("refusal", [b"550 5.7.0 too many messages", b"452 4.5.3 too many messages"])
@pytest.mark.parametrize("at_once", [1, 4])
def test_a_sender_that_is_refused_on_a_used_connection_is_tried_on_a_fresh_one(
    home: RemoteHome, refusal: bytes, at_once: int
) -> None:
    with RawServer(judging(lambda line, taken: refusal if taken == 3 else b"250 ok")) as server:
        home.route_all_to(server.port)
        with RemoteDaemon(home) as daemon:
            assert daemon.deliver_many(home.message(TEXT), 30, at_once) == 0
    assert server.connections >= 10


def test_a_sender_that_is_refused_on_a_fresh_connection_too_is_refused(home: RemoteHome) -> None:
    with RawServer(judging(lambda line, taken: b"550 5.1.8 nobody" if b"<bad@" in line else b"250 ok")) as server:
        home.route_all_to(server.port)
        with RemoteDaemon(home) as daemon:
            path = home.message(TEXT)
            assert letters(daemon, path, 2) == [b"K"] * 2
            [(letter, text)] = daemon.deliver(path, b"to@b.example", sender=b"bad@a.example").verdicts
    assert (letter, server.connections) == (b"D", 2)
    assert text == b"Connected to 127.0.0.1 but sender was rejected.\nRemote host said: 550 5.1.8 nobody\n"
