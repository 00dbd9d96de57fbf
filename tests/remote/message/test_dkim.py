"""queue-remote signs: what real servers get has good signatures, and mail whose key is no good waits."""

import os
import time
from pathlib import Path

import pytest

from queue_wire.pipes.report import MESSAGE_SCOPE, SUCCESS, TEMPORARY
from support.processes.forked import run_program
from support.processes.remote_daemon import RemoteDaemon, RemoteHome
from support.servers.dkim_keys import DkimZone, put_key, wire
from support.servers.smtp.smtp_server import SmtpServer

MAIL = b"From: Ann <ann@example.org>\nTo: bob@example.net\nSubject: hello\n\n.a dot\n\nA  message. \nno end"
ZONE = DkimZone()
RSA = ZONE.rsa("one@example.org")
ED25519 = ZONE.ed25519("two@example.org")


@pytest.fixture
def home(tmp_path: Path) -> RemoteHome:
    made = RemoteHome(tmp_path, dkim="example.org:one:rsa.pem\nexample.org:two:ed.pem", timeoutremote="60")
    put_key(tmp_path / "control", "rsa.pem", RSA)
    put_key(tmp_path / "control", "ed.pem", ED25519)
    return made


def test_what_a_server_gets_is_signed_and_the_queue_is_not_changed(home: RemoteHome) -> None:
    with SmtpServer() as server:
        home.route_all_to(server.port)
        path = home.message(MAIL)
        with RemoteDaemon(home) as daemon:
            for nexthop in (b"one.example", b"two.example"):
                assert daemon.deliver(path, b"x@b", nexthop=nexthop).verdicts[0][0] == SUCCESS
            other = daemon.deliver(home.message(MAIL.replace(b"example.org", b"other.example"), 24), b"y@b")
            assert other.verdicts[0][0] == SUCCESS
        first, second, third = [message.content for message in server.received]
        sizes = [int(option.removeprefix("SIZE=")) for [option] in server.mail_options]
    assert ZONE.judge(first) == [True, True]
    assert first == second
    assert sizes[0] == len(first)
    assert b"DKIM-Signature" not in third
    assert (home.path / "queue" / os.fsdecode(path)).read_bytes() == MAIL


def test_what_changes_on_its_way_out_is_signed_as_it_goes(home: RemoteHome) -> None:
    """Line ends of both kinds, other CRs, NUL, 8-bit bytes, and a last line that does not end."""
    stored = MAIL.replace(b"hello", b"hel\rlo").replace(b".net\n", b".net\r\n") + b"\r\r\n\0\xe4\r.\r\n. \r\n\nx\r"
    with SmtpServer() as server:
        home.route_all_to(server.port)
        with RemoteDaemon(home) as daemon:
            assert daemon.deliver(home.message(stored), b"x@b.example").verdicts[0][0] == SUCCESS
        content = server.received[0].content
    assert ZONE.judge(content) == [True, True]
    assert content.endswith(wire(stored))


def test_alone_it_signs_what_comes_on_a_pipe(home: RemoteHome) -> None:
    with SmtpServer() as server:
        home.route_all_to(server.port)
        done = run_program("queue-remote", "--home", str(home.path), "b.example", "", "x@b.example", given=MAIL)
        assert (done.returncode, done.stdout[:3], done.stderr) == (0, b"r\0K", b"")
        assert ZONE.judge(server.received[0].content) == [True, True]


def test_mail_waits_while_its_key_is_no_good_and_other_mail_goes(home: RemoteHome) -> None:
    key = home.path / "control" / "ed.pem"
    key.chmod(0o644)
    with SmtpServer() as server:
        home.route_all_to(server.port)
        path, other = home.message(MAIL), home.message(MAIL.replace(b"example.org", b"other.example"), 24)
        with RemoteDaemon(home) as daemon:
            alert = daemon.wait_for_error(b"of that domain is deferred")
            assert b"alert: unable to sign for example.org: %s: everybody can use it" % os.fsencode(key) in alert
            refused = daemon.deliver(path, b"x@b")
            assert daemon.deliver(other, b"x@b").verdicts[0][0] == SUCCESS
            assert len(server.received) == 1
            key.chmod(0o600)
            deadline = time.monotonic() + 60
            while daemon.deliver(path, b"x@b").verdicts[0][0] != SUCCESS:
                assert time.monotonic() < deadline
        assert ZONE.judge(server.received[-1].content) == [True, True]
    assert (refused.scope, refused.verdicts[0][0]) == (MESSAGE_SCOPE, TEMPORARY)
    assert refused.verdicts[0][1].startswith(b"Unable to sign message. (#4.3.5)\nexample.org: ")


def test_a_large_message_takes_little_memory_and_stalls_nobody(home: RemoteHome) -> None:
    """30 MB, which is signed for two while small mail of others goes. Both in memory would be over the limit."""
    line = b"0123456789abcdef  " * 4 + b"\n"
    large = home.message(MAIL + b"\n" + line * (30_000_000 // len(line)))
    small = home.message(b"Subject: small\n\nx\n", 24)
    with SmtpServer() as server:
        home.route_all_to(server.port)
        with RemoteDaemon(home) as daemon:
            assert daemon.deliver(small, b"x@b").verdicts[0][0] == SUCCESS
            jobs = [daemon.start(large, b"x@b", nexthop=b"n%d.example" % number) for number in range(2)]
            assert daemon.deliver(small, b"x@b").verdicts[0][0] == SUCCESS
            assert [message.stored for message in server.received] == [b"Subject: small\n\nx\n"] * 2
            assert [daemon.report(job, 200).verdicts[0][0] for job in jobs] == [SUCCESS] * 2
            status = Path(f"/proc/{daemon.process.pid}/status").read_text()
            peak = int(status.partition("VmHWM:")[2].split()[0])
        contents = {message.content for message in server.received[2:]}
    assert len(contents) == 1
    assert ZONE.judge(contents.pop()) == [True, True]
    assert peak < 100_000
