"""queue-remote's deliveries: the daemon as a real process, real SMTP servers on loopback, good and bad."""

import threading
from pathlib import Path

import pytest

from queue_wire.pipes.report import HOST_SCOPE, MESSAGE_SCOPE
from support.processes.remote_daemon import RemoteDaemon, RemoteHome
from support.servers.smtp.raw_server import Peer, RawServer
from support.servers.smtp.smtp_server import SmtpServer

TEXT = b"Subject: hello\n\nA message.\n"
WIRE_SIZE = len(TEXT.replace(b"\n", b"\r\n"))
NOT_CONNECTED = (
    b"Sorry, I wasn't able to establish an SMTP connection. (#4.4.1)\n127.0.0.1: connect: connection refused\n"
)


def test_a_message_is_delivered_and_reported_in_qmails_words(home: RemoteHome) -> None:
    with SmtpServer() as server:
        home.route_all_to(server.port)
        with RemoteDaemon(home) as daemon:
            report = daemon.deliver(home.message(TEXT), b"to@b.example")
        assert report.scope == MESSAGE_SCOPE
        assert report.verdicts == [(b"K", b"127.0.0.1 accepted message.\nRemote host said: 250 ok\n")]
        [received] = server.wait_for(1)
        assert (received.sender, received.recipients) == ("from@a.example", ["to@b.example"])
        assert received.stored == TEXT
        assert server.hello_names == ["client.example"]
        assert server.mail_options == [[f"SIZE={WIRE_SIZE}"]]


def test_each_recipient_gets_the_verdict_that_the_server_gave_it(home: RemoteHome) -> None:
    with SmtpServer() as server:
        server.recipient_answers = {"no@b.example": "550 no such user", "later@b.example": "451 try again"}
        home.route_all_to(server.port)
        with RemoteDaemon(home) as daemon:
            report = daemon.deliver(home.message(TEXT), b"yes@b.example", b"no@b.example", b"later@b.example")
        assert report.scope == MESSAGE_SCOPE
        assert report.verdicts == [
            (b"K", b"127.0.0.1 accepted message.\nRemote host said: 250 ok\n"),
            (
                b"D",
                b"127.0.0.1 does not like recipient.\nRemote host said: 550 no such user\nGiving up on 127.0.0.1.\n",
            ),
            (b"Z", b"127.0.0.1 does not like recipient.\nRemote host said: 451 try again\nGiving up on 127.0.0.1.\n"),
        ]
        assert server.wait_for(1)[0].recipients == ["yes@b.example"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no final newline",
        b"\n",
        b".\n..\n...\n.x\n\n.\n",
        b"\0 NUL and all: " + bytes(byte for byte in range(256) if byte not in b"\n\r") + b"\n",
        b".\n" * 70_000,
    ],
    ids=["empty", "unfinished", "blank", "dots", "bytes", "chunks"],
)
def test_a_message_arrives_byte_for_byte(home: RemoteHome, content: bytes) -> None:
    with SmtpServer() as server:
        home.route_all_to(server.port)
        with RemoteDaemon(home) as daemon:
            report = daemon.deliver(home.message(content), b"to@b.example")
        assert [letter for letter, _ in report.verdicts] == [b"K"]
        whole = content if content.endswith(b"\n") or not content else content + b"\n"
        assert server.wait_for(1)[0].stored == whole


def test_a_message_of_30_megabytes_arrives_and_is_not_held_in_memory(home: RemoteHome) -> None:
    content = b"".join(b"%07d .%s\n" % (number, b"x" * 90) for number in range(300_000))
    with SmtpServer() as server:
        home.route_all_to(server.port)
        with RemoteDaemon(home) as daemon:
            report = daemon.report(daemon.start(home.message(content), b"to@b.example"), seconds=120)
            status = Path(f"/proc/{daemon.process.pid}/status").read_text()
        assert [letter for letter, _ in report.verdicts] == [b"K"]
        assert server.wait_for(1)[0].stored == content
        peak = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
        assert peak < 64 * 1024


def test_a_server_that_drops_us_in_the_middle_of_the_message_defers_it(home: RemoteHome) -> None:
    def script(peer: Peer) -> None:
        peer.take_envelope()
        peer.hear()

    with RawServer(script) as server:
        home.route_all_to(server.port)
        with RemoteDaemon(home) as daemon:
            report = daemon.deliver(home.message(b"x" * 80 + b"\n" + TEXT * 400_000), b"to@b.example")
    assert report.scope == MESSAGE_SCOPE
    died = b"Connected to 127.0.0.1 but connection died. (#4.4.2)\nAt message: "
    [(letter, text)] = report.verdicts
    assert (letter, text[: len(died)]) == (b"Z", died)


def test_a_server_that_is_lost_after_the_dot_may_have_the_message(home: RemoteHome) -> None:
    def script(peer: Peer) -> None:
        peer.take_envelope()
        peer.hear_message()

    with RawServer(script) as server:
        home.route_all_to(server.port)
        with RemoteDaemon(home) as daemon:
            report = daemon.deliver(home.message(TEXT), b"to@b.example")
    text = (
        b"Connected to 127.0.0.1 but connection died. Possible duplicate! (#4.4.2)\n"
        b"At end of message: it closed the connection\n"
    )
    assert (report.scope, report.verdicts) == (MESSAGE_SCOPE, [(b"Z", text)])


def test_a_server_without_pipelining_or_ehlo_gets_what_it_understands(home: RemoteHome) -> None:
    heard = []

    def script(peer: Peer) -> None:
        peer.say(b"220 old.example")
        for answer in (b"500 what?", b"250 old.example", b"250 ok", b"250 ok", b"250 ok", b"354 go"):
            heard.append(peer.hear())
            peer.say(answer)
        peer.hear_message()
        peer.say(b"250 done")
        heard.append(peer.hear())

    with RawServer(script) as server:
        home.route_all_to(server.port)
        with RemoteDaemon(home) as daemon:
            report = daemon.deliver(home.message(TEXT), b"one@b.example", b"two@b.example")
            assert daemon.end() == (0, b"")
    assert [letter for letter, _ in report.verdicts] == [b"K", b"K"]
    assert heard == [
        b"EHLO client.example",
        b"HELO client.example",
        b"MAIL FROM:<from@a.example>",
        b"RCPT TO:<one@b.example>",
        b"RCPT TO:<two@b.example>",
        b"DATA",
        b"QUIT",
    ]


def test_nobody_listening_is_the_hosts_trouble(home: RemoteHome) -> None:
    with RawServer(lambda peer: None) as server:
        port = server.port
    home.route_all_to(port)
    with RemoteDaemon(home) as daemon:
        report = daemon.deliver(home.message(TEXT), b"to@b.example")
    assert (report.scope, report.verdicts) == (HOST_SCOPE, [(b"Z", NOT_CONNECTED)])


def say_nothing(peer: Peer) -> None:
    peer.wait_for_end()


def test_a_server_that_says_nothing_costs_timeoutremote(home: RemoteHome) -> None:
    home.control("timeoutremote", "1")
    with RawServer(say_nothing) as server:
        home.route_all_to(server.port)
        with RemoteDaemon(home) as daemon:
            report = daemon.deliver(home.message(TEXT), b"to@b.example")
    died = b"Connected to 127.0.0.1 but connection died. (#4.4.2)\nAt greeting: no answer in time\n"
    assert (report.scope, report.verdicts) == (HOST_SCOPE, [(b"Z", died)])


def test_a_reply_that_drips_byte_by_byte_does_not_outlast_timeoutremote(home: RemoteHome) -> None:
    home.control("timeoutremote", "3")

    def script(peer: Peer) -> None:
        peer.greet()
        assert peer.hear().startswith(b"MAIL")
        while True:
            peer.drip(b"2", 0.1)

    with RawServer(script) as server:
        home.route_all_to(server.port)
        with RemoteDaemon(home) as daemon:
            report = daemon.deliver(home.message(TEXT), b"to@b.example")
    assert (report.scope, report.verdicts[0][0]) == (MESSAGE_SCOPE, b"Z")


def test_a_server_that_does_not_read_the_message_costs_timeoutremote(home: RemoteHome) -> None:
    home.control("timeoutremote", "3")

    def script(peer: Peer) -> None:
        peer.take_envelope()
        reported.wait(60)

    reported = threading.Event()
    with RawServer(script) as server:
        home.route_all_to(server.port)
        with RemoteDaemon(home) as daemon:
            report = daemon.deliver(home.message(TEXT * 800_000), b"to@b.example")
            reported.set()
    text = (
        b"Connected to 127.0.0.1 but connection died. (#4.4.2)\n"
        b"At message: the message did not get off in time\n"
    )
    assert report.verdicts == [(b"Z", text)]


def test_garbage_from_a_server_is_temporary_and_the_daemon_lives_on(home: RemoteHome) -> None:
    with RawServer(lambda peer: peer.say(b"\xff\0" * 300, b"HTTP/1.1 400")) as server, SmtpServer() as good:
        home.control("smtproutes", f"bad.example:127.0.0.1:{server.port}\n:127.0.0.1:{good.port}")
        with RemoteDaemon(home) as daemon:
            report = daemon.deliver(home.message(TEXT), b"to@bad.example")
            assert (report.scope, report.verdicts[0][0]) == (HOST_SCOPE, b"Z")
            assert daemon.deliver(home.message(TEXT), b"to@good.example").verdicts[0][0] == b"K"


def test_200_deliveries_run_at_once(home: RemoteHome) -> None:
    with SmtpServer() as server:
        home.route_all_to(server.port)
        path = home.message(TEXT)
        with RemoteDaemon(home) as daemon:
            assert daemon.ready >= 200
            numbers = [daemon.start(path, b"to%d@b.example" % count) for count in range(200)]
            letters = {daemon.report(number, seconds=60).verdicts[0][0] for number in numbers}
        assert letters == {b"K"}
        recipients = {received.recipients[0] for received in server.wait_for(200)}
        assert recipients == {f"to{count}@b.example" for count in range(200)}


def test_an_address_that_would_break_the_line_never_reaches_the_server(home: RemoteHome) -> None:
    with SmtpServer() as server:
        home.route_all_to(server.port)
        with RemoteDaemon(home) as daemon:
            report = daemon.deliver(home.message(TEXT), b"x\r\nRSET\r\n@b.example", b"two words@b.example")
        assert [letter for letter, _ in report.verdicts] == [b"D", b"K"]
        assert server.wait_for(1)[0].recipients == ['"two words"@b.example']
