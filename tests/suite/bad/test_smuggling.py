"""SMTP smuggling: no variant of an end of data in a body becomes a second message, here or at three receivers."""

import itertools
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from queue_wire.pipes.qmtp import SOCKET
from support.inject.smuggling import SMUGGLED, bodies, padded
from support.intake.intake_daemon import Client, qmtp
from support.plugins.amount import amount
from support.processes.remote_daemon import RemoteDaemon, RemoteHome
from support.processes.suite import Suite, wait_until
from support.servers.postfix import Postfix, Stored
from support.servers.smtp.smtp_server import SmtpServer
from support.servers.smtp.smtp_sink import SmtpSink
from support.site import Site
from support.smtpd.smtpd_daemon import SmtpdDaemon

HEADER = b"From: a@a.example\nSubject: corpus %06d\n\n"
CORPUS = [*bodies(), *padded(len(HEADER % 0))]
LINE_MAX = 998


@pytest.fixture
def home(tmp_path: Path) -> RemoteHome:
    return RemoteHome(tmp_path, connectionidle="30", connectionmessages="1000")


def send(home: RemoteHome, port: int) -> list[bytes]:
    """Send the corpus, over connections that go on after each message; return the subjects of those that were taken.

    A server may refuse what has long lines.
    """
    home.route_all_to(port)
    with RemoteDaemon(home) as daemon:
        taken: list[bytes] = []
        flying: list[tuple[int, int]] = []
        for number, body in enumerate(CORPUS):
            path = home.message(HEADER % number + body, number)
            flying.append((daemon.start(path, b"to@b.example"), number))
            if len(flying) > 8:
                taken += found(daemon, *flying.pop(0))
        for job, number in flying:
            taken += found(daemon, job, number)
    return taken


def found(daemon: RemoteDaemon, job: int, number: int) -> list[bytes]:
    [(letter, text)] = daemon.report(job, 60).verdicts
    if letter == b"D" and b"ine too long" in text and max(map(len, CORPUS[number].split(b"\n"))) > LINE_MAX:
        return []
    assert letter == b"K", (text, CORPUS[number][-200:])
    return [b"Subject: corpus %06d" % number]


def subjects(contents: list[bytes]) -> list[bytes]:
    return sorted(content.splitlines()[1] for content in contents)


def test_postfix_gets_each_message_of_the_corpus_once_and_no_other(home: RemoteHome) -> None:
    # A strict receiver would hide what a lax one takes; this one takes bare LF as line end.
    with Postfix(main=["smtpd_forbid_bare_newline = no", "smtpd_forbid_unauth_pipelining = no"]) as postfix:
        sent = send(home, postfix.port)
        assert len(sent) == len(CORPUS)
        postfix.wait_for(len(CORPUS), 120)
        stored = postfix.settle()
        assert subjects([message.content for message in stored]) == sent
        assert {message.sender for message in stored} == {b"from@a.example"}
        log = postfix.log()
    assert SMUGGLED.decode() not in log
    assert len(re.findall(r" from=<from@a\.example>, size=", log)) == len(CORPUS)
    assert "non-SMTP command" not in log
    assert "improper command pipelining" not in log


def test_aiosmtpd_gets_each_message_of_the_corpus_once_and_no_other_command(home: RemoteHome) -> None:
    with SmtpServer() as server:
        sent = send(home, server.port)
        # A smuggled MAIL has no SIZE. An envelope that waits behind a message of a slow server is sent again.
        assert len(server.mail_options) >= len(CORPUS)
        assert all(options and options[0].startswith("SIZE=") for options in server.mail_options)
        assert subjects([message.content for message in server.received]) == sent
        assert {message.sender for message in server.received} == {"from@a.example"}
        assert all(re.search(rb"\r(?!\n)|(?<!\r)\n", message.content) is None for message in server.received)


@pytest.mark.parametrize("options", [(), ("-e", "-p")], ids=["esmtp", "old"])
def test_smtp_sink_gets_each_message_of_the_corpus_once_and_no_other(
    home: RemoteHome, options: tuple[str, ...]
) -> None:
    with SmtpSink(*options) as sink:
        sent = send(home, sink.port)
        taken = sink.messages()
    assert len(sent) == len(CORPUS)
    assert subjects([message.content for message in taken]) == sent
    assert all(message.mail.startswith(b"<from@a.example>") for message in taken)


def through(port: int, body: bytes, number: int) -> bool:
    """Send a message that is not made for SMTP, and whatever follows it; return whether queue-smtpd has taken it."""
    envelope = b"EHLO c.example\r\nMAIL FROM:<from@a.example>\r\nRCPT TO:<to@aio.example>\r\nRCPT TO:<to@b.example>\r\n"
    with socket.create_connection(("127.0.0.1", port), 60) as client, client.makefile("rb") as replies:
        header = (HEADER % number).replace(b"\n", b"\r\n")
        client.sendall(envelope + b"DATA\r\n" + header + body + b"\r\n.\r\nQUIT\r\n")
        said = replies.read()
    assert said.count(b"\r\n354 ") == 1 and b"\r\n221 " in said, (body, said)
    return b"\r\n250 2.6.0 " in said


@pytest.mark.home(relayclients="127.0.0.1", smtpdlimits="exempt 127.0.0.0/8")
def test_what_comes_in_by_smtp_goes_out_as_one_message_or_was_refused(site: Site) -> None:
    # The real end of a message would be one here, too, and what is behind it the sender's own words.
    corpus = [body for body in dict.fromkeys(bodies()) if len(body) < LINE_MAX and b"\r\n.\r\n" not in body]
    corpus = corpus[:: amount(5, 1)]
    lax = ["smtpd_forbid_bare_newline = no", "smtpd_forbid_unauth_pipelining = no"]
    with SmtpServer() as aiosmtpd, Postfix(main=lax) as postfix:
        site.route(aiosmtpd.port, b=postfix.port)
        with Suite(site.home), SmtpdDaemon(site.home, ["mx", "mx bare"]) as daemon:
            wait_until(Path(site.home.queue, SOCKET).exists, why="queue-intake")
            taken: list[bytes] = []
            for number, body in enumerate(corpus):
                strict, bare = (through(port, body, number) for port in daemon.ports)
                clean = re.search(rb"\r(?!\n)|(?<!\r)\n", body) is None
                assert (strict, bare) == (clean, True), body
                taken += [b"Subject: corpus %06d" % number] * (strict + bare)
                daemon.said(b"")
            wait_until(site.is_empty, 120, "the queue to be empty")
        postfix.wait_for(len(taken), 120)
        stored = postfix.settle()
        log = postfix.log()

    assert len(taken) > len(corpus) > 50
    check_taken(taken, stored, aiosmtpd, log)


def check_taken(taken: list[bytes], stored: list[Stored], aiosmtpd: SmtpServer, log: str) -> None:
    """Compare what was queued with what Postfix and aiosmtpd have got."""

    def subject(content: bytes) -> bytes:
        return bytes(re.findall(rb"(?m)^Subject: corpus \d+", content)[0])

    assert sorted(subject(message.content) for message in stored) == sorted(taken)
    assert sorted(subject(message.content) for message in aiosmtpd.received) == sorted(taken)
    assert all(re.search(rb"\r(?!\n)|(?<!\r)\n", message.content) is None for message in aiosmtpd.received)
    assert {message.sender for message in stored} == {b"from@a.example"}
    assert {message.sender for message in aiosmtpd.received} == {"from@a.example"}
    assert SMUGGLED.decode() not in log and "non-SMTP command" not in log


def packages(body: bytes, number: int) -> Iterator[tuple[bytes, bool]]:
    """Yield a message as packages of QMTP, and whether it is clean: its lines end with LF, or with CR LF."""
    recipients = [b"to@aio.example", b"to@b.example"]
    yield qmtp(HEADER % number + body, b"from@a.example", recipients), b"\r" not in body
    header = (HEADER % number).replace(b"\n", b"\r\n")
    clean = re.search(rb"\r(?!\n)|(?<!\r)\n", body) is None
    yield qmtp(header + body, b"from@a.example", recipients, begin=b"\r"), clean


def pieces(package: bytes, body: bytes) -> Iterator[bytes]:
    """Yield a package in pieces: what is behind the text of its body byte by byte, up to the smuggled commands."""
    start = package.index(body)
    end = min(package.find(b"MAIL FROM", start) % (1 << 30), start + 40)
    yield package[:start]
    yield from (package[place : place + 1] for place in range(start, min(end, len(package))))
    yield package[min(end, len(package)) :]


@pytest.mark.exhaustive
@pytest.mark.home(relayclients="127.0.0.1", smtpdlimits="exempt 127.0.0.0/8")
def test_what_comes_in_by_qmtp_goes_out_as_one_message(site: Site) -> None:
    corpus = [body for body in dict.fromkeys(bodies()) if len(body) < LINE_MAX]
    lax = ["smtpd_forbid_bare_newline = no", "smtpd_forbid_unauth_pipelining = no"]
    with SmtpServer() as aiosmtpd, Postfix(main=lax) as postfix:
        site.route(aiosmtpd.port, b=postfix.port)
        with Suite(site.home), SmtpdDaemon(site.home, ["mx", "qmtp"]) as daemon:
            taken: list[bytes] = []
            for number, body in enumerate(corpus):
                for (package, clean), strange in itertools.product(packages(body, number), (False, True)):
                    with Client(daemon.connect(1) if strange else site.home) as client:
                        if strange:
                            client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                        for piece in pieces(package, body):
                            client.send(piece)
                        letters = {answer[:1] for answer in client.answers(2)}
                    # A stranger's bare CR or LF is refused, as by SMTP.
                    assert letters == {b"K"} or (letters == {b"D"} and strange and not clean), body
                    taken += [b"Subject: corpus %06d" % number] * (b"K" in letters)
                daemon.said(b"")
            wait_until(site.is_empty, 120, "the queue to be empty")
        postfix.wait_for(len(taken), 120)
        stored = postfix.settle()
        log = postfix.log()

    assert len(taken) > 2 * len(corpus) > 50
    check_taken(taken, stored, aiosmtpd, log)
