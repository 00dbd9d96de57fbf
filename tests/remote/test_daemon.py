"""queue-remote as a daemon: its pipes, its signals, its control files, and nonsense on any of them."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from queue_wire.pipes.framing import pack_netstring
from queue_wire.pipes.job import REREAD, Job, pack_job
from queue_wire.pipes.report import MESSAGE_SCOPE, SlowJob
from support.processes.remote_daemon import COMMAND, RemoteDaemon, RemoteHome
from support.processes.suite import wait_until
from support.servers.smtp.raw_server import Peer, RawServer
from support.servers.smtp.sink import Sink, Tarpit
from support.servers.smtp.smtp_server import SmtpServer

TEXT = b"Subject: hello\n\nA message.\n"


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
    [("smtproutes", ":relay:port"), ("helohost", "two words"), ("resolver", "not-an-address"), ("me", "")],
)
def test_a_control_file_that_makes_no_sense_defers(home: RemoteHome, name: str, text: str) -> None:
    home.control(name, text)
    with RemoteDaemon(home) as daemon:
        report = daemon.deliver(home.message(TEXT), b"to@b.example")
    assert report.verdicts[0][0] == b"Z"
    assert f"control/{name}".encode() in report.verdicts[0][1]


@pytest.mark.parametrize("hup", [True, False])
def test_changed_control_files_are_read_again_with_and_without_hup(home: RemoteHome, hup: bool) -> None:
    with SmtpServer() as old, SmtpServer() as new:
        home.route_all_to(old.port)
        path = home.message(TEXT)
        with RemoteDaemon(home) as daemon:
            assert daemon.deliver(path, b"to@b.example").verdicts[0][0] == b"K"
            home.route_all_to(new.port)
            if hup:
                daemon.process.send_signal(signal.SIGHUP)
            deadline = time.monotonic() + 60
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
            assert connected.wait(60)
            assert daemon.end() == (0, b"")


def test_a_line_of_smtproutes_that_counts_for_nothing_is_an_alert_that_shows_no_password(home: RemoteHome) -> None:
    home.control("smtproutes", "# a comment\nb.example:\nrelay.example ann secret")
    with RemoteDaemon(home) as daemon:
        assert daemon.end() == (
            0,
            b"queue-remote: alert: control/smtproutes line 3 has no colon and has no effect; "
            b"a relay for all mail is :relay\n",
        )


def test_bytes_that_are_no_netstring_end_it_with_111_and_an_alert(home: RemoteHome) -> None:
    with RemoteDaemon(home) as daemon:
        daemon.write(b"what is this?")
        code, errors = daemon.end()
    assert code == 111
    assert errors.startswith(b"queue-remote: alert: unable to read jobs: ")
    assert errors.count(b"\n") == 1


@pytest.mark.parametrize(
    "payload", [b"", b"x\0mess/0/23\0f@a\0b\0t@b", b"900\0../../etc/passwd\0f@a\0b\0t@b", b"900\0mess/0/23\0f@a\0b"]
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


def test_a_bad_job_with_a_number_is_deferred(home: RemoteHome) -> None:
    with RemoteDaemon(home) as daemon:
        daemon.write(pack_netstring(b"7\0mess/../23\0f@a\0b\0to@b\0also@b"))
        report = daemon.report(7)
    assert [letter for letter, _ in report.verdicts] == [b"Z", b"Z"]


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("/etc/hostname")])
def test_what_is_no_file_is_not_sent(home: RemoteHome, make: Callable[[Path], None]) -> None:
    make(home.path / "queue/mess/0/24")
    with RemoteDaemon(home) as daemon:
        report = daemon.deliver(b"mess/0/24", b"to@b.example")
    assert report.verdicts[0][0] == b"Z"
    assert report.verdicts[0][1].startswith(b"Unable to read message. (#4.3.0)\nmess/0/24: ")


def test_jobs_may_arrive_in_pieces(home: RemoteHome) -> None:
    with SmtpServer() as server:
        home.route_all_to(server.port)
        path = home.message(TEXT)
        with RemoteDaemon(home) as daemon:
            for byte in pack_job(Job(77, path, b"f@a.example", b"b.example", [b"to@b.example"])):
                daemon.write(bytes([byte]))
            assert daemon.report(77).verdicts[0][0] == b"K"


BROKEN = """
import sys
from queue_remote import main
from queue_remote.route.router import Router
async def bug(*arguments):
    raise ValueError("a bug\\nof two lines")
Router.find = bug
sys.exit(main.main(["queue-remote", "--home", sys.argv[1]]))
"""


def test_a_bug_in_one_job_is_a_deferral_and_an_alert(home: RemoteHome) -> None:
    with RemoteDaemon(home, [sys.executable, "-c", BROKEN]) as daemon:
        report = daemon.deliver(home.message(TEXT), b"to@b.example", b"also@b.example")
        code, errors = daemon.end()
    assert report.scope == MESSAGE_SCOPE
    assert [letter for letter, _ in report.verdicts] == [b"Z", b"Z"]
    assert b"ValueError: a bug" in report.verdicts[0][1]
    assert code == 0
    assert errors.startswith(b"queue-remote: alert: unable to deliver job 1: ValueError: a bug/of two lines")
    assert errors.count(b"\n") == 1


@pytest.mark.long
def test_a_job_that_hangs_is_told_of_with_the_address_on_a_new_connection_and_on_one_that_was_open(
    home: RemoteHome,
) -> None:
    with Sink() as sink, Tarpit() as tarpit:
        home.control("smtproutes", f"hangs.example:127.0.0.1:{tarpit.port}\nb.example:127.0.0.1:{sink.port}\n")
        path = home.message(TEXT)
        with RemoteDaemon(home) as daemon:
            assert daemon.deliver(path, b"to@b.example").verdicts[0][0] == b"K"
            sink.hold_after = 0
            jobs = {daemon.start(path, recipient) for recipient in (b"to@b.example", b"to@hangs.example")}
            assert {daemon.slow_job() for _ in jobs} == {SlowJob(number, b"127.0.0.1") for number in jobs}


def wait_for_end(peer: Peer) -> None:
    peer.wait_for_end()


def test_2000_hanging_deliveries_stay_small(home: RemoteHome) -> None:
    # Nobody accepts: the kernel completes the connections, and no greeting ever comes.
    with socket.create_server(("127.0.0.1", 0), backlog=4096) as listener:
        home.route_all_to(listener.getsockname()[1])
        path = home.message(TEXT)
        with RemoteDaemon(home) as daemon:
            for number in range(daemon.ready):
                daemon.start(path, b"to%d@b.example" % number)
            process = psutil.Process(daemon.process.pid)
            wait_until(lambda: process.num_fds() >= 2 * daemon.ready, why="all connections")
            assert process.memory_info().rss < 200 * 1024 * 1024


def limited(files: int) -> list[str]:
    return ["sh", "-c", f'ulimit -n {files}; exec "$@"', "sh", *COMMAND]


def test_the_jobs_at_once_follow_the_limit_on_open_files(home: RemoteHome) -> None:
    with RemoteDaemon(home, limited(250)) as daemon:
        assert daemon.ready == 100


def test_too_many_open_files_defers_and_is_not_the_hosts_trouble(home: RemoteHome) -> None:
    with RawServer(wait_for_end) as server:
        home.route_all_to(server.port)
        path = home.message(TEXT)
        with RemoteDaemon(home, limited(60)) as daemon:
            for number in range(80):
                daemon.start(path, b"to%d@b.example" % number)
            report = daemon.report_of_any()
            assert report.scope == MESSAGE_SCOPE
            assert report.verdicts[0][0] == b"Z"
            assert daemon.end()[0] == 0


def test_a_closed_report_pipe_ends_it_without_a_word(home: RemoteHome) -> None:
    with SmtpServer() as server:
        home.route_all_to(server.port)
        with RemoteDaemon(home) as daemon:
            assert daemon.process.stdout is not None
            daemon.process.stdout.close()
            daemon.start(home.message(TEXT), b"to@b.example")
            assert daemon.process.wait(60) == 0
            assert daemon.process.stderr is not None
            assert daemon.process.stderr.read() == b""


def test_without_a_pipe_for_jobs_it_says_so(home: RemoteHome) -> None:
    done = subprocess.run([*COMMAND, str(home.path)], stdin=subprocess.DEVNULL, capture_output=True, timeout=30)
    assert done.returncode == 111
    assert done.stderr.startswith(b"queue-remote: fatal: unable to watch fd 0: ")


@pytest.mark.parametrize("wanted", [True, False])
def test_the_daemon_of_queue_ondemand_starts_with_its_first_job(home: RemoteHome, wanted: bool) -> None:
    ours, its = socket.socketpair()
    with ours, its, subprocess.Popen(
        [*COMMAND, str(home.path)], stdin=its.fileno(), stdout=subprocess.PIPE, bufsize=0
    ) as process:
        its.close()
        assert process.stdout is not None
        if wanted:
            ours.sendall(pack_netstring(REREAD))
            assert b"ready" in process.stdout.read(1000)
        ours.close()
        assert process.wait(60) == 0
        if not wanted:
            assert process.stdout.read() == b"", "it has not even greeted"
