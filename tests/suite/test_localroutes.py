"""control/localroutes in the whole suite: an LMTP server holds the mailboxes, queue-local only what is left to it."""

import subprocess
from pathlib import Path

import pytest

from queue_base.home import Home
from queue_base.queue.layout import open_layout
from support.local.good_mail import GoodMail
from support.processes.suite import Suite, enqueue, program
from support.servers.smtp.lmtp_server import LmtpServer

pytestmark = pytest.mark.both_ways
TEXT = b"Subject: hello\n\nA message.\n"
JOE = b"joe@me.example.org"
VIRTUAL = b"ann@v.example"


@pytest.fixture(name="path")
def fixture_path(mail: GoodMail) -> str:
    """Return the path of the socket that the routes name: for all of two domains but one recipient."""
    path = f"{mail.home.path}/lmtp"
    mail.control("virtualdomains", "v.example:vmail\n")
    mail.control("localroutes", f"me.example.org:lmtp:{path}\nv.example:lmtp:{path}\nboss@me.example.org:\n")
    return path


def send(home: Home, *recipients: bytes) -> None:
    done = enqueue(home, b"from@me.example.org", list(recipients), TEXT)
    assert done.returncode == 0, done.stderr


def queuectl(home: Home, *words: str) -> str:
    done = subprocess.run(
        [*program("queuectl"), "--home", home.path, *words], capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout


def test_local_recipients_share_a_transaction_and_each_has_its_verdict(mail: GoodMail, path: str) -> None:
    with LmtpServer(path) as server, Suite(mail.home) as suite:
        server.after_data = {b"full": b"552 5.2.2 quota exceeded"}
        send(mail.home, JOE, VIRTUAL, b"boss@me.example.org", b"full@me.example.org")
        suite.wait_for(r"^delivery \d+: success: .*lmtp_accepted_message./Remote_host_said:_250_2.0.0_joe_saved/")
        suite.wait_for("^delivery .*: success: .*ann_saved/")
        suite.wait_for("^delivery .*: success: did_1[+]0[+]0/")
        suite.wait_for(r"^delivery \d+: failure: .*lmtp_failed_after_I_sent_the_message.*552_5.2.2_quota_exceeded/")
        suite.wait_for("^starting delivery .* to local vmail-ann@v.example$")
        # The bounce goes to a recipient of the same server.
        suite.wait_for("^end msg ", times=2)
        assert suite.count("^starting delivery .* to remote ") == 0
        first = next(each for each in server.taken if each.mail.startswith(b"FROM:<from@me.example.org>"))
        assert first.recipients == [b"TO:<%s>" % each for each in (JOE, VIRTUAL, b"full@me.example.org")]
    assert [message.endswith(TEXT) for message in mail.site.delivered()] == [True]


def test_without_its_server_local_mail_waits_in_local_as_qmail_has_it(mail: GoodMail, path: str) -> None:
    with Suite(mail.home) as suite:
        send(mail.home, VIRTUAL)
        line = suite.wait_for(r"^delivery \d+: deferral: ")
        assert f"{path}:_connect:_no_such_file_or_directory" in line
        message = int(suite.wait_for("^new msg ").split()[2])
        shown = queuectl(mail.home, "destinations")
        assert f"lmtp:{path}" in shown
    layout = open_layout(mail.home.queue)
    assert Path(layout.hashed("local", message)).read_bytes() == b"Tvmail-ann@v.example\0"
    assert not Path(layout.hashed("remote", message)).exists()
    with LmtpServer(path) as server, Suite(mail.home) as suite:
        queuectl(mail.home, "flush", "--all")
        suite.wait_for("^end msg ")
        assert server.taken[0].recipients == [b"TO:<ann@v.example>"]


def test_a_file_that_cannot_be_used_at_the_start_defers_local_mail(mail: GoodMail, path: str) -> None:
    mail.control("localroutes", "me.example.org:mx.example\n")
    with Suite(mail.home) as suite:
        suite.wait_for("alert: .*localroutes line 1: .*; local mail is deferred until it is mended")
        send(mail.home, JOE)
        suite.wait_for(r"^delivery \d+: deferral: Unable_to_read_control_files")
        assert not mail.site.delivered()
        mail.control("localroutes", "")
        suite.process.send_signal(1)
        suite.wait_for("^config localroutes")
        queuectl(mail.home, "flush", "--all")
        suite.wait_for("^end msg ")
    assert len(mail.site.delivered()) == 1
