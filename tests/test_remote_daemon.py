"""queue-remote as a daemon: a real process on pipes, real SMTP servers on loopback."""

import signal
import threading
import time
from pathlib import Path

import pytest

from queue_wire.job import Job, pack_job
from queue_wire.netstring import pack_netstring
from queue_wire.report import HOST_SCOPE, MESSAGE_SCOPE
from support.raw_server import Peer, RawServer
from support.remote_daemon import RemoteDaemon, RemoteHome
from support.smtp_server import SmtpServer

TEXT = b"Subject: hello\n\nA message.\n"
NOT_CONNECTED = b"Sorry, I wasn't able to establish an SMTP connection. (#4.4.1)\n"


@pytest.fixture
def home(tmp_path: Path) -> RemoteHome:
    return RemoteHome(tmp_path, timeoutconnect="5", timeoutremote="20")


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
        assert server.mail_options == [[f"SIZE={len(TEXT)}"]]


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
        b"a bare \r inside\n",
        b".\n" * 70_000,
    ],
    ids=["empty", "unfinished", "blank", "dots", "bytes", "cr", "chunks"],
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
        peer.greet()
        for answer in (b"250 ok", b"250 ok", b"354 go"):
            peer.hear()
            peer.say(answer)
        peer.hear()

    with RawServer(script) as server:
        home.route_all_to(server.port)
        with RemoteDaemon(home) as daemon:
            report = daemon.deliver(home.message(b"x" * 80 + b"\n" + TEXT * 400_000), b"to@b.example")
    assert report.scope == MESSAGE_SCOPE
    assert report.verdicts == [(b"Z", b"Connected to 127.0.0.1 but connection died. (#4.4.2)\n")]


def test_a_greeting_of_421_is_the_hosts_trouble(home: RemoteHome) -> None:
    heard = []

    def script(peer: Peer) -> None:
        peer.say(b"421 too busy")
        heard.append(peer.hear())

    with RawServer(script) as server:
        home.route_all_to(server.port)
        with RemoteDaemon(home) as daemon:
            report = daemon.deliver(home.message(TEXT), b"to@b.example", b"also@b.example")
    text = b"Connected to 127.0.0.1 but greeting failed.\nRemote host said: 421 too busy\n"
    assert report.scope == HOST_SCOPE
    assert report.verdicts == [(b"Z", text)] * 2
    assert heard == [b"QUIT"]


def test_nobody_listening_is_the_hosts_trouble(home: RemoteHome) -> None:
    with RawServer(lambda peer: None) as server:
        port = server.port
    home.route_all_to(port)
    with RemoteDaemon(home) as daemon:
        report = daemon.deliver(home.message(TEXT), b"to@b.example")
    assert (report.scope, report.verdicts) == (HOST_SCOPE, [(b"Z", NOT_CONNECTED)])


def test_a_server_that_says_nothing_costs_timeoutremote(home: RemoteHome) -> None:
    home.control("timeoutremote", "1")
    with RawServer(lambda peer: [peer.wait_for_end()][1:]) as server:  # type: ignore[arg-type, return-value]
        home.route_all_to(server.port)
        with RemoteDaemon(home) as daemon:
            report = daemon.deliver(home.message(TEXT), b"to@b.example")
    died = b"Connected to 127.0.0.1 but connection died. (#4.4.2)\n"
    assert (report.scope, report.verdicts) == (HOST_SCOPE, [(b"Z", died)])


def test_a_reply_that_drips_byte_by_byte_does_not_outlast_timeoutremote(home: RemoteHome) -> None:
    home.control("timeoutremote", "1")

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
    home.control("timeoutremote", "1")

    def script(peer: Peer) -> None:
        peer.greet()
        for answer in (b"250 ok", b"250 ok", b"354 go"):
            peer.hear()
            peer.say(answer)
        reported.wait(20)

    reported = threading.Event()
    with RawServer(script) as server:
        home.route_all_to(server.port)
        with RemoteDaemon(home) as daemon:
            report = daemon.deliver(home.message(TEXT * 800_000), b"to@b.example")
            reported.set()
    assert report.verdicts == [(b"Z", b"Connected to 127.0.0.1 but connection died. (#4.4.2)\n")]


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


def test_a_message_that_cannot_be_opened_is_deferred(home: RemoteHome) -> None:
    with RemoteDaemon(home) as daemon:
        report = daemon.deliver(b"mess/0/99", b"to@b.example", b"also@b.example")
    text = b"Unable to read message. (#4.3.0)\nmess/0/99: no such file or directory\n"
    assert (report.scope, report.verdicts) == (MESSAGE_SCOPE, [(b"Z", text)] * 2)


def test_bad_control_files_defer_with_their_name_until_they_are_mended(home: RemoteHome) -> None:
    with SmtpServer() as server:
        home.route_all_to(server.port)
        home.control("timeoutremote", "soon")
        with RemoteDaemon(home) as daemon:
            path = home.message(TEXT)
            report = daemon.deliver(path, b"to@b.example")
            assert report.scope == MESSAGE_SCOPE
            assert report.verdicts[0][0] == b"Z"
            assert report.verdicts[0][1].startswith(b"Unable to read control files. (#4.3.0)\n")
            assert b"timeoutremote" in report.verdicts[0][1]
            home.control("timeoutremote", "20")
            assert daemon.deliver(path, b"to@b.example").verdicts[0][0] == b"K"
            _, errors = daemon.end()
        assert errors.startswith(b"queue-remote: alert: unable to parse ")


@pytest.mark.parametrize(
    ("name", "text"),
    [("smtproutes", ":relay:port"), ("helohost", "two words"), ("nameservers", "not-an-address"), ("me", "")],
)
def test_a_control_file_that_makes_no_sense_defers(home: RemoteHome, name: str, text: str) -> None:
    home.control(name, text)
    with RemoteDaemon(home) as daemon:
        report = daemon.deliver(home.message(TEXT), b"to@b.example")
    assert report.verdicts[0][0] == b"Z"
    assert f"control/{name}".encode() in report.verdicts[0][1]


def test_hup_rereads_the_control_files(home: RemoteHome) -> None:
    with SmtpServer() as old, SmtpServer() as new:
        home.route_all_to(old.port)
        path = home.message(TEXT)
        with RemoteDaemon(home) as daemon:
            assert daemon.deliver(path, b"to@b.example").verdicts[0][0] == b"K"
            home.route_all_to(new.port)
            daemon.process.send_signal(signal.SIGHUP)
            deadline = time.monotonic() + 20
            while not new.received:
                assert daemon.deliver(path, b"to@b.example").verdicts[0][0] == b"K"
                assert time.monotonic() < deadline
        assert old.received


def test_term_int_and_hup_do_not_end_it(home: RemoteHome) -> None:
    with SmtpServer() as server:
        home.route_all_to(server.port)
        with RemoteDaemon(home) as daemon:
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                daemon.process.send_signal(number)
            assert daemon.deliver(home.message(TEXT), b"to@b.example").verdicts[0][0] == b"K"
            assert daemon.end() == (0, b"")


def test_the_end_of_its_jobs_ends_it_at_once_whatever_is_in_flight(home: RemoteHome) -> None:
    connected = threading.Event()

    def script(peer: Peer) -> None:
        connected.set()
        peer.wait_for_end()

    with RawServer(script) as server:
        home.route_all_to(server.port)
        with RemoteDaemon(home) as daemon:
            daemon.start(home.message(TEXT), b"to@b.example")
            assert connected.wait(20)
            assert daemon.end() == (0, b"")


def test_bytes_that_are_no_netstring_end_it_with_111_and_an_alert(home: RemoteHome) -> None:
    with RemoteDaemon(home) as daemon:
        daemon.write(b"what is this?")
        code, errors = daemon.end()
    assert code == 111
    assert errors.startswith(b"queue-remote: alert: unable to read jobs: ")
    assert errors.count(b"\n") == 1


@pytest.mark.parametrize(
    "payload", [b"", b"x\0mess/0/23\0f@a\0b\0t@b", b"1\0../../etc/passwd\0f@a\0b\0t@b", b"1\0mess/0/23\0f@a\0b"]
)
def test_a_job_that_makes_no_sense_is_logged_and_the_next_one_done(home: RemoteHome, payload: bytes) -> None:
    with SmtpServer() as server:
        home.route_all_to(server.port)
        with RemoteDaemon(home) as daemon:
            daemon.write(pack_netstring(payload))
            assert daemon.deliver(home.message(TEXT), b"to@b.example").verdicts[0][0] == b"K"
            code, errors = daemon.end()
    assert code == 0
    assert errors.startswith(b"queue-remote: alert: unable to read a job: ")
    assert errors.count(b"\n") == 1


def test_jobs_may_arrive_in_pieces(home: RemoteHome) -> None:
    with SmtpServer() as server:
        home.route_all_to(server.port)
        path = home.message(TEXT)
        with RemoteDaemon(home) as daemon:
            for byte in pack_job(Job(77, path, b"f@a.example", b"b.example", [b"to@b.example"])):
                daemon.write(bytes([byte]))
            assert daemon.report(77).verdicts[0][0] == b"K"


def test_an_address_that_would_break_the_line_never_reaches_the_server(home: RemoteHome) -> None:
    with SmtpServer() as server:
        home.route_all_to(server.port)
        with RemoteDaemon(home) as daemon:
            report = daemon.deliver(home.message(TEXT), b"x\r\nRSET\r\n@b.example", b"two words@b.example")
        assert [letter for letter, _ in report.verdicts] == [b"D", b"K"]
        assert server.wait_for(1)[0].recipients == ['"two words"@b.example']
