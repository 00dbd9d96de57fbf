"""queue-remote and a real Dovecot, by LMTP: a full mailbox, an unknown user, a mailbox that cannot be opened now."""

from collections.abc import Iterator

import pytest

from queue_wire.pipes.report import HOST_SCOPE, MESSAGE_SCOPE
from support.local.local_daemon import LocalDaemon
from support.local.mailboxes import MailHome
from support.local.recipient_client import RecipientClient
from support.processes.remote_daemon import RemoteDaemon, RemoteHome
from support.servers.dovecot import Dovecot
from support.smtpd.smtpd_daemon import SmtpdDaemon

pytestmark = pytest.mark.together  # They share a Dovecot.
TEXT = b"Subject: hello\n\nA message.\n.\n..\n"
WHO = [b"joe@d.example", b"nobody@d.example", b"full@d.example", b"ann@d.example", b"broken@d.example"]


@pytest.fixture(name="dovecot", scope="module")
def fixture_dovecot() -> Iterator[Dovecot]:
    with Dovecot() as dovecot:
        yield dovecot


def test_each_recipient_has_its_own_verdict_by_one_connection(remote_home: RemoteHome, dovecot: Dovecot) -> None:
    remote_home.control("localroutes", f"d.example:lmtp:{dovecot.socket}")
    with RemoteDaemon(remote_home) as daemon:
        report = daemon.deliver(remote_home.message(TEXT), *WHO, nexthop=WHO[0])
        again = daemon.deliver(remote_home.message(TEXT, 24), b"joe@d.example", nexthop=b"joe@d.example")
    assert (report.scope, b"".join(letter for letter, _ in report.verdicts)) == (MESSAGE_SCOPE, b"KDDKZ")
    assert [text for _, text in report.verdicts][1].endswith(b"\nGiving up on %s.\n" % dovecot.socket.encode())
    codes = ("2.0.0", "5.1.1", "5.2.2", "2.0.0", "4.2.0")
    for (_, text), code in zip(report.verdicts, codes, strict=True):
        assert f" {code} <".encode() in text
    assert again.verdicts[0][0] == b"K"
    assert dovecot.log().count(": Connect from ") == 1
    assert (dovecot.mailbox("joe"), dovecot.mailbox("ann"), dovecot.mailbox("full")) == ([TEXT, TEXT], [TEXT], [])


def test_mail_for_a_route_of_smtproutes_goes_by_tcp(remote_home: RemoteHome, dovecot: Dovecot) -> None:
    before = len(dovecot.mailbox("ann"))
    remote_home.control("smtproutes", f"d.example:lmtp:127.0.0.1:{dovecot.port}")
    with RemoteDaemon(remote_home) as daemon:
        report = daemon.deliver(remote_home.message(TEXT), b"ann@d.example")
    assert report.verdicts[0][0] == b"K"
    assert len(dovecot.mailbox("ann")) == before + 1


def test_mail_waits_while_dovecot_does_not_run(remote_home: RemoteHome) -> None:
    with Dovecot() as dovecot:
        remote_home.control("smtproutes", f":lmtp:{dovecot.socket}")
        dovecot.stop()
        with RemoteDaemon(remote_home) as daemon:
            report = daemon.deliver(remote_home.message(TEXT), b"joe@d.example")
        assert report.scope == HOST_SCOPE
        assert report.verdicts[0][1].endswith(f"\n{dovecot.socket}: connect: no such file or directory\n".encode())


def test_queue_smtpd_refuses_at_rcpt_whom_dovecot_does_not_know(mail: MailHome, dovecot: Dovecot) -> None:
    for name, text in (
        *(("locals", "d.example\n"), ("rcpthosts", "d.example\n")),
        ("localroutes", f"d.example:lmtp:{dovecot.socket},lmtp:127.0.0.1:{dovecot.port}\n"),
    ):
        (mail.path / "control" / name).write_text(text)
    codes = []
    with LocalDaemon(mail.home) as local, RecipientClient(mail.home), SmtpdDaemon(mail.home) as daemon:
        local.ready()
        for recipient in WHO:
            with daemon.smtp() as client:
                client.ehlo("c")
                client.mail("a@far.example")
                codes.append(client.rcpt(recipient.decode())[0])
    # Whether the mailbox is full, or can be opened, is known when it has the message.
    assert codes == [250, 550, 250, 250, 250]
