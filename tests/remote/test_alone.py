"""queue-remote alone: qmail-remote's arguments and reports, with a real process and a real server."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.processes.forked import run_program
from support.processes.remote_daemon import PROGRAM, RemoteHome
from support.servers.smtp.raw_server import Peer, RawServer
from support.servers.smtp.smtp_server import SmtpServer

TEXT = b"Subject: hello\n\nA message.\n"
WIRE_SIZE = len(TEXT.replace(b"\n", b"\r\n"))
ACCEPTED = b"K127.0.0.1 accepted message.\nRemote host said: 250 ok\n\0"


def run(home: RemoteHome, *arguments: str | bytes, message: bytes = TEXT) -> bytes:
    """Run it with the message on a pipe; return its reports. It exits 0 and says nothing on stderr."""
    done = run_program("queue-remote", "--home", str(home.path), *arguments, given=message)
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout


def test_recipients_and_message_are_reported_in_order(home: RemoteHome) -> None:
    with SmtpServer() as server:
        server.recipient_answers = {"no@b": "550 no such user", "later@b": "451 try again"}
        home.route_all_to(server.port)
        reports = run(home, "b.example", "from@a", "yes@b", "no@b", "later@b")
        assert reports == (
            b"r\0"
            b"h127.0.0.1 does not like recipient.\nRemote host said: 550 no such user\n\0"
            b"s127.0.0.1 does not like recipient.\nRemote host said: 451 try again\n\0" + ACCEPTED
        )
        [received] = server.wait_for(1)
        assert (received.sender, received.recipients, received.stored) == ("from@a", ["yes@b"], TEXT)


def test_the_message_may_be_a_file_or_empty(home: RemoteHome) -> None:
    with SmtpServer() as server:
        home.route_all_to(server.port)
        path = home.message(TEXT)
        with (home.path / "queue" / os.fsdecode(path)).open("rb") as file:
            command = [sys.executable, str(PROGRAM), f"--home={home.path}", "b", "", "to@b"]
            done = subprocess.run(command, stdin=file, capture_output=True, timeout=30)
        assert (done.returncode, done.stdout) == (0, b"r\0" + ACCEPTED)
        assert run(home, "b", "", "to@b", message=b"") == b"r\0" + ACCEPTED
        assert [received.stored for received in server.wait_for(2)] == [TEXT, b""]
        assert server.mail_options == [[f"SIZE={WIRE_SIZE}"], []]


def test_when_nobody_is_accepted_it_gives_up(home: RemoteHome) -> None:
    with SmtpServer() as server:
        server.recipient_answers = {"no@b": "550 no"}
        home.route_all_to(server.port)
        reports = run(home, "b", "from@a", "no@b").split(b"\0")
    assert [report[:1] for report in reports] == [b"h", b"D", b""]
    assert reports[1] == b"DGiving up on 127.0.0.1.\n"


def test_a_refused_sender_has_no_recipient_reports(home: RemoteHome) -> None:
    def script(peer: Peer) -> None:
        peer.greet()
        peer.hear()
        peer.say(b"553 not you")

    with RawServer(script) as server:
        home.route_all_to(server.port)
        reports = run(home, "b", "from@a", "to@b")
    assert reports == b"DConnected to 127.0.0.1 but sender was rejected.\nRemote host said: 553 not you\n\0"


def test_a_recipient_that_cannot_be_sent_is_reported_in_its_place(home: RemoteHome) -> None:
    with SmtpServer() as server:
        home.route_all_to(server.port)
        reports = run(home, "b", "from@a", "yes@b", "a\nb@b", b"\xc3\xa9@b", "also@b").split(b"\0")
        assert [report[:1] for report in reports] == [b"r", b"h", b"h", b"r", b"K", b""]
        assert server.wait_for(1)[0].recipients == ["yes@b", "also@b"]


def test_nobody_listening_is_a_message_report(home: RemoteHome) -> None:
    with RawServer(lambda peer: None) as server:
        port = server.port
    home.route_all_to(port)
    text = b"ZSorry, I wasn't able to establish an SMTP connection. (#4.4.1)\n"
    assert run(home, "b", "from@a", "to@b") == text + b"127.0.0.1: connect: connection refused\n\0"


@pytest.mark.parametrize("operands", [["host"], ["host", "sender"]])
def test_too_few_arguments_are_a_permanent_report(home: RemoteHome, operands: list[str]) -> None:
    assert run(home, *operands) == b"DI (queue-remote) was invoked improperly. (#5.3.5)\n\0"


def test_unreadable_control_files_are_a_temporary_report(home: RemoteHome) -> None:
    (home.path / "control" / "me").unlink()
    reports = run(home, "b", "from@a", "to@b")
    assert reports.startswith(b"ZUnable to read control files. (#4.3.0)\n")
    assert b"control/me" in reports
    assert reports.count(b"\0") == 1


def test_a_message_that_cannot_be_read_is_temporary(home: RemoteHome) -> None:
    with SmtpServer() as server:
        home.route_all_to(server.port)
        command = [sys.executable, str(PROGRAM), "--home", str(home.path), "b", "f@a", "to@b"]
        with Path(os.devnull).open("wb") as not_for_reading:
            done = subprocess.run(command, stdin=not_for_reading, capture_output=True, timeout=30)
        assert server.received == []
    assert done.stdout == b"ZUnable to read message. (#4.3.0)\nbad file descriptor\n\0"


def test_a_closed_standard_input_is_not_an_empty_message(home: RemoteHome) -> None:
    with SmtpServer() as server:
        home.route_all_to(server.port)
        script = f'exec "{sys.executable}" "$@" <&-'
        command = ["sh", "-c", script, "sh", str(PROGRAM), "--home", str(home.path), "b", "f@a", "to@b"]
        done = subprocess.run(command, capture_output=True, timeout=30)
        assert server.received == []
    assert done.stdout == b"ZUnable to read message. (#4.3.0)\nbad file descriptor\n\0"


def test_help_and_wrong_options(home: RemoteHome) -> None:
    shown = run_program("queue-remote", "--help")
    assert (shown.returncode, shown.stdout[:19]) == (0, b"usage: queue-remote")
    wrong = run_program("queue-remote", "--frobnicate")
    assert wrong.returncode == 100
    assert wrong.stderr == b"queue-remote: fatal: --frobnicate is not an option; try --help\n"
