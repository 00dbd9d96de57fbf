"""queue-smtpd with role qmtp as a process: mail of strangers by QMTP comes into the queue by the rules of SMTP."""

import os
import re
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from queue_wire.pipes.qmtp import AnswerReader, pack_package
from support.inject.injectors import only, queued, shared_home
from support.intake.intake_daemon import IntakeDaemon, netstring
from support.smtpd.milter_server import MilterServer
from support.smtpd.smtpd_daemon import SmtpdDaemon
from support.smtpd.smtpd_process import GivenSession

ANN, BOB, JOE, OUT = b"ann@example.net", b"bob@example.org", b"joe@example.org", b"x@elsewhere.example"
TEXT = b"From: ann@example.net\nDate: 20 Nov 2026 13:00:00 -0000\nSubject: hello\n\nHow are you?\n"
HEADER = b"PROXY TCP4 198.51.100.7 192.0.2.1 40000 209\r\n"
DENIED = b"DRelaying denied: that domain is not in the list of allowed rcpthosts (#5.7.1)"


@pytest.fixture(scope="module")
def daemon() -> Iterator[SmtpdDaemon]:
    with ExitStack() as stack:
        home = stack.enter_context(shared_home(0))
        for name, text in (
            ("rcpthosts", "example.org"), ("checkrcpt", "0"), ("proxyclients", "127.0.0.1"),
            ("databytes", "300000"),
        ):  # fmt: skip
            Path(home.control, name).write_text(text + "\n")
        stack.enter_context(IntakeDaemon(home))
        yield stack.enter_context(SmtpdDaemon(home, ["qmtp", "qmtp proxy priority=bulk"]))


@pytest.fixture(autouse=True)
def empty_queue(daemon: SmtpdDaemon) -> None:
    for each in queued(daemon.home):
        for place in ("mess", "todo", "priority"):
            for path in Path(daemon.home.queue, place).rglob(str(each.number)):
                path.unlink()


def answers(connection: socket.socket, count: int) -> list[bytes]:
    """Return so many answers."""
    reader, found = AnswerReader(), list[bytes]()
    while len(found) < count:
        data = connection.recv(65536)
        assert data, found
        found += [each.letter + each.text for each in reader.feed(data)]
    return found


def test_packages_of_a_stranger_are_queued_and_each_recipient_is_answered(daemon: SmtpdDaemon) -> None:
    large = TEXT + b"x" * 70 + (b"\n" + b"y" * 70) * 2000
    with daemon.connect() as client:
        # All that the client has to send goes out at once, and then its half of the connection is closed.
        client.sendall(pack_package(TEXT, ANN, [BOB, OUT, JOE]) + pack_package(large, b"", [JOE]))
        client.sendall(pack_package(TEXT + b"z" * 300000, ANN, [BOB]))
        client.shutdown(socket.SHUT_WR)
        found = answers(client, 5)
        assert client.recv(1) == b""
    assert [each[:1] for each in found] == [b"K", b"D", b"K", b"K", b"D"]
    assert (found[1], found[4]) == (DENIED, b"DMessage is too large (#5.3.4)")
    first, second = sorted(queued(daemon.home), key=lambda each: len(each.message))
    assert (first.envelope.sender, first.envelope.recipients) == (ANN, [BOB, JOE])
    begin = rb"Received: from unknown \(unknown \[127\.0\.0\.1\]\)\n  by \S+ with QMTP id %d;\n  [^\n]*\n"
    assert re.fullmatch(begin % first.number + re.escape(TEXT), first.message)
    assert second.message.endswith(large)
    daemon.wait_for(b" end QUIT: messages 2 errors 2 ")
    long_id = found[0].rpartition(b" ")[2]
    assert long_id.startswith(b"%d-" % first.number) and daemon.said(b" queued " + long_id)


def test_what_is_no_qmtp_is_hung_up_on(daemon: SmtpdDaemon) -> None:
    with daemon.connect() as client:
        client.sendall(b"EHLO c.example\r\n")
        assert client.recv(1) == b""
    daemon.wait_for(b" refused package: 521_5.5.2_netstring:_no_length:_")


def test_behind_a_balancer_the_client_is_that_of_the_header(daemon: SmtpdDaemon) -> None:
    with daemon.connect(1) as client:
        client.sendall(HEADER + pack_package(TEXT, ANN, [JOE]))
        assert [each[:1] for each in answers(client, 1)] == [b"K"]
    assert b"(unknown [198.51.100.7])" in only(daemon.home).message
    assert daemon.said(b" connect 198.51.100.7:40000 unknown to 192.0.2.1:209")


def test_milters_are_asked_as_by_smtp_though_the_message_comes_first(daemon: SmtpdDaemon) -> None:
    home = daemon.home
    with ExitStack() as stack:
        milter = stack.enter_context(MilterServer(Path(home.path, "milter")))
        Path(home.control, "milters").write_text(f"unix:{milter.path} qmtp\n")
        try:
            filtered = stack.enter_context(SmtpdDaemon(home, ["qmtp"]))
        finally:
            Path(home.control, "milters").unlink()
        refusal = b"y550 5.7.9 not bob\0"
        milter.begin({b"R": lambda data: [refusal if b"bob" in data else b"c"], b"E": [b"hX-Seen\0yes\0", b"c"]})
        client = stack.enter_context(filtered.connect())
        client.sendall(pack_package(TEXT, ANN, [BOB, OUT, JOE]))
        found = answers(client, 3)
        assert (found[0], found[1], found[2][:1]) == (b"Dnot bob (#5.7.9)", DENIED, b"K")
        assert b"\nX-Seen: yes\n\nHow" in only(home).message
        # The second one is at a relayed host, and no business of the milter's.
        assert milter.commands.replace(b"D", b"").endswith(b"CMRRTLLLNBE")
        filtered.wait_for(b" refuses RCPT: 550_5.7.9_not_bob")
        filtered.wait_for(b" accepts message")
        for stage, letter in ((b"M", b"D"), (b"T", b"D"), (b"E", b"D")):
            milter.begin({stage: [b"r"]})
            client.sendall(pack_package(TEXT, ANN, [JOE, JOE]))
            assert [each[:1] for each in answers(client, 2)] == [letter] * 2, stage
        milter.begin({b"E": [b"d"]})
        client.sendall(pack_package(TEXT, ANN, [JOE]))
        assert answers(client, 1) == [b"KMessage accepted"]
        assert len(queued(home)) == 1
        filtered.wait_for(b": discarded bytes ")


def test_it_runs_under_a_super_server_and_says_nothing_that_is_no_answer(daemon: SmtpdDaemon) -> None:
    variables = {"TCPREMOTEIP": "198.51.100.7", "RELAYCLIENT": ""}
    with GivenSession(daemon.home, "qmtp", variables=variables) as session:
        session.client.sendall(pack_package(TEXT, ANN, [OUT]))
        assert [each[:1] for each in answers(session.client, 1)] == [b"K"]
        code, lines = session.wait()
    assert code == 0 and " end QUIT: messages 1 errors 0 " in lines[-1]
    Path(daemon.home.control, "relayclients").write_text("nonsense\n")
    try:
        with GivenSession(daemon.home, "qmtp", variables=variables) as session:
            assert session.rest() == b""
            assert session.wait()[0] == 111
    finally:
        Path(daemon.home.control, "relayclients").unlink()


def test_a_stop_ends_a_package_that_has_begun_and_nothing_else(daemon: SmtpdDaemon) -> None:
    with SmtpdDaemon(daemon.home, ["qmtp"]) as other:
        package = pack_package(TEXT, ANN, [JOE])
        with other.connect() as idle, other.connect() as busy:
            idle.sendall(netstring(b"\n")[:1])
            busy.sendall(package[:-1])
            other.wait_for(b" connect 127.0.0.1:%d " % busy.getsockname()[1])
            answer = other.connect()
            answer.sendall(package)
            # Until then the busy one has been read, too.
            assert answers(answer, 1)[0][:1] == b"K"
            answer.close()
            os.kill(other.process.pid, signal.SIGTERM)
            assert idle.recv(1) == b""
            busy.sendall(package[-1:])
            assert answers(busy, 1)[0][:1] == b"K"
            assert busy.recv(1) == b""
        assert other.process.wait(60) == 0
    assert len(queued(daemon.home)) == 2
