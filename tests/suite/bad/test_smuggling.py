"""SMTP smuggling: no variant of an end of data in a body becomes a second message, at three receivers."""

import re
from pathlib import Path

import pytest

from support.inject.smuggling import SMUGGLED, bodies, padded
from support.processes.remote_daemon import RemoteDaemon, RemoteHome
from support.servers.postfix import Postfix
from support.servers.smtp.smtp_server import SmtpServer
from support.servers.smtp.smtp_sink import SmtpSink

HEADER = b"From: a@a.example\nSubject: corpus %06d\n\n"
CORPUS = [*bodies(), *padded(len(HEADER % 0))]
LINE_MOST = 998


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
    if letter == b"D" and b"ine too long" in text and max(map(len, CORPUS[number].split(b"\n"))) > LINE_MOST:
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
