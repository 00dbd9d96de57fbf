"""queue-remote delivers by LMTP, over a Unix socket or TCP: the daemon as a real process, an LMTP server of ours."""

import socket
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from queue_wire.pipes.report import HOST_SCOPE, MESSAGE_SCOPE, Report
from support.inject.smuggling import PUBLISHED, SMUGGLED, bodies
from support.processes.remote_daemon import RemoteDaemon, RemoteHome
from support.servers.smtp.lmtp_server import LmtpServer

TEXT = b"Subject: hello\n\nA message.\n"
WIRE = TEXT.replace(b"\n", b"\r\n") + b".\r\n"


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "lmtp")


@pytest.fixture
def server(path: str) -> Iterator[LmtpServer]:
    with LmtpServer(path) as server:
        yield server


def letters(report: Report) -> bytes:
    return b"".join(letter for letter, _ in report.verdicts)


def test_messages_share_a_connection_to_a_socket(home: RemoteHome, server: LmtpServer, path: str) -> None:
    home.control("smtproutes", f"b.example:lmtp:{path}")
    server.after_data = {b"full": b"552 5.2.2 quota", b"later": b"451 4.3.0 busy"}
    server.at_rcpt = {b"no": b"550 5.1.1 unknown"}
    who = [b"a@b.example", b"no@b.example", b"full@b.example", b"later@b.example"]
    with RemoteDaemon(home) as daemon:
        first = daemon.deliver(home.message(TEXT), *who)
        # A message that is not small, and one that is.
        second = daemon.deliver(home.message(TEXT + b"x" * 90 + b"\n" * 70_000, 24), b"a@b.example")
        third = daemon.deliver(home.message(TEXT, 25), b"a@b.example", b"full@b.example")
        assert (first.scope, letters(first), letters(second), letters(third)) == (MESSAGE_SCOPE, b"KDDZ", b"K", b"KD")
    told = path.encode()
    assert [text for _, text in first.verdicts] == [
        b"%s accepted message.\nRemote host said: 250 2.0.0 a saved\n" % told,
        b"%s does not like recipient.\nRemote host said: 550 5.1.1 unknown\nGiving up on %s.\n" % (told, told),
        b"%s failed after I sent the message.\nRemote host said: 552 5.2.2 quota\n" % told,
        b"%s failed after I sent the message.\nRemote host said: 451 4.3.0 busy\n" % told,
    ]
    assert server.connections == 1
    assert server.commands[0] == b"LHLO client.example"
    assert server.taken[0].recipients == [b"TO:<a@b.example>", b"TO:<full@b.example>", b"TO:<later@b.example>"]
    assert server.taken[0].content == WIRE


def test_a_server_on_tcp_gets_mail_without_a_password_for_all_relays(home: RemoteHome) -> None:
    home.control("smtpauth", ":user:password")
    (home.path / "control" / "smtpauth").chmod(0o600)
    with LmtpServer() as server:
        home.control("smtproutes", f":lmtp:127.0.0.1:{server.port}")
        with RemoteDaemon(home) as daemon:
            assert letters(daemon.deliver(home.message(TEXT), b"a@b.example")) == b"K"
    assert server.commands[0].startswith(b"LHLO ")


def test_a_connection_that_ends_between_the_replies_defers_those_that_have_none(
    home: RemoteHome, server: LmtpServer, path: str
) -> None:
    home.control("smtproutes", f":lmtp:{path}")
    server.most = 1
    with RemoteDaemon(home) as daemon:
        report = daemon.deliver(home.message(TEXT), b"a@b.example", b"c@b.example")
    assert (report.scope, letters(report)) == (MESSAGE_SCOPE, b"KZ")
    assert b"but connection died. Possible duplicate! (#4.4.2)" in report.verdicts[1][1]


def test_a_reply_too_many_is_the_end_of_the_connection_only(home: RemoteHome, server: LmtpServer, path: str) -> None:
    home.control("smtproutes", f":lmtp:{path}")
    server.more = [b"550 and one more"]
    with RemoteDaemon(home) as daemon:
        for number in (1, 2):
            assert letters(daemon.deliver(home.message(TEXT, number), b"a@b.example")) == b"K"
    assert server.connections == 2


@pytest.mark.parametrize(
    ("exists", "why"), [(False, b"no such file or directory"), (True, b"connection refused")], ids=["absent", "dead"]
)
def test_a_socket_that_nobody_listens_at_defers_with_its_path(
    home: RemoteHome, path: str, exists: bool, why: bytes
) -> None:
    home.control("smtproutes", f":lmtp:{path}")
    if exists:
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(path)
    with RemoteDaemon(home) as daemon:
        report = daemon.deliver(home.message(TEXT), b"a@b.example")
    text = b"Sorry, I wasn't able to establish an LMTP connection. (#4.4.1)\n%s: connect: %s\n" % (path.encode(), why)
    assert (report.scope, report.verdicts) == (HOST_SCOPE, [(b"Z", text)])


def test_local_recipients_go_where_localroutes_says(home: RemoteHome, server: LmtpServer, path: str) -> None:
    home.control("localroutes", f"b.example:lmtp:{path}\nc.example:lmtp:{path}.absent")
    # A route of remote mail changes nothing.
    home.control("smtproutes", ":127.0.0.1:1")
    who = [b"a@b.example", b"x@c.example", b"x@d.example", b"d@b.example"]
    with RemoteDaemon(home) as daemon:
        report = daemon.deliver(home.message(TEXT), *who, nexthop=who[0])
    assert (report.scope, letters(report)) == (MESSAGE_SCOPE, b"KZZK")
    assert path.encode() + b".absent: connect: no such file or directory" in report.verdicts[1][1]
    assert report.verdicts[2][1] == b"Sorry, control/localroutes has no server for x@d.example. (#4.3.5)\n"
    assert server.taken[0].recipients == [b"TO:<a@b.example>", b"TO:<d@b.example>"]


def test_local_mail_is_not_signed_and_remote_mail_is(home: RemoteHome, server: LmtpServer, path: str) -> None:
    home.control("localroutes", f"b.example:lmtp:{path}")
    home.control("smtproutes", f":lmtp:{path}")
    # Mail that must be signed waits.
    home.control("dkim", "example.org:one:absent.pem")
    mail = b"From: ann@example.org\n" + TEXT
    who = b"a@b.example"
    with RemoteDaemon(home) as daemon:
        small = daemon.deliver(home.message(mail), who, nexthop=who)
        large = daemon.deliver(home.message(mail + b"x" * 90 + b"\n" * 70_000, 24), who, nexthop=who)
        remote = daemon.deliver(home.message(mail, 25), who)
    assert (letters(small), letters(large), letters(remote)) == (b"K", b"K", b"Z")
    assert b"absent.pem" in remote.verdicts[0][1]


def test_a_domain_of_remote_mail_cannot_name_a_socket(home: RemoteHome, server: LmtpServer, path: str) -> None:
    home.control("localroutes", f":lmtp:{path}")
    with RemoteDaemon(home) as daemon:
        report = daemon.deliver(home.message(TEXT), b"a@lmtp:" + path.encode())
    assert letters(report) == b"D"
    assert server.connections == 0


def test_smuggled_messages_stay_one_message(home: RemoteHome, server: LmtpServer, path: str) -> None:
    home.control("smtproutes", f":lmtp:{path}")
    corpus = list(islice(bodies(), len(PUBLISHED)))
    with RemoteDaemon(home) as daemon:
        for body in corpus:
            assert letters(daemon.deliver(home.message(b"Subject: corpus\n\n" + body), b"a@b.example")) == b"K"
    assert len(server.taken) == len(corpus)
    assert not [line for line in server.commands if SMUGGLED in line]
