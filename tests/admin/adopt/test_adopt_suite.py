"""A stock qmail queue, taken over: the whole suite finishes its mail, or does half and qmail gets the rest."""

import os
import stat
import time
from pathlib import Path

from queue_admin.home.adoption import adopt, undo
from queue_admin.home.modes import QmailAccounts
from queue_admin.system_accounts import myself
from queue_base.queue.layout import Presence, open_layout
from queue_wire.files.recipients import unpack_recipients
from support.inject.qmail_queue import QmailQueue, qmail_accounts, snapshot
from support.processes.suite import Suite, wait_until
from support.servers.smtp.smtp_server import SmtpServer


def stock(path: Path, server: SmtpServer, birth_ns: int) -> QmailQueue:
    """Make a stock home with messages in S2 to S5, whose remote mail goes to the server and local mail to alias/."""
    qmail = QmailQueue(path, birth_ns)
    qmail.fill()
    control = path / "control"
    (control / "locals").write_bytes(b"example.org\n")
    (control / "smtproutes").write_bytes(b":127.0.0.1:%d\n" % server.port)
    (path / "alias" / ".qmail-default").write_bytes(b"./Maildir/\n")
    for name in ("tmp", "new", "cur"):
        (path / "alias" / "Maildir" / name).mkdir(parents=True)
    # In this test the suite runs as one user, so alias/ is that user's too.
    for directory, names, files in os.walk(path / "alias"):
        for each in (".", *names, *files):
            os.chown(Path(directory) / each, os.geteuid(), os.getegid())
    return qmail


def left_in(qmail: QmailQueue) -> list[str]:
    """Return the paths of what is left in the queue, lock/, marks and stamp excepted."""
    ours = {"lock", "marks", "stamp"}
    found = [path for path in qmail.queue.rglob("*") if path.is_file() and not {path.name, path.parent.name} & ours]
    return [str(path.relative_to(qmail.queue)) for path in found]


def test_an_adopted_queue_is_finished(tmp_path: Path) -> None:
    with SmtpServer() as server:
        qmail = stock(tmp_path / "qmail", server, 1_700_000_000_123_456_789)
        finished = {str(qmail.messages["S4"]), str(qmail.messages["S5"])}
        # Never queued, so not mail; swept when 36 hours have passed since their last change, which was just now.
        rest = sorted(path for path in left_in(qmail) if not set(path.split("/")) & finished)
        adopt(qmail.home, myself())
        with Suite(qmail.home) as suite:
            suite.wait_for(rf"^bounce msg {qmail.messages['S5']} ")
            wait_until(lambda: sorted(left_in(qmail)) == rest, why="a queue with no mail")
            suite.stop()
        remote = sorted((message.recipients, message.stored) for message in server.received)
    new = [path.read_bytes() for path in (tmp_path / "qmail/alias/Maildir/new").iterdir()]
    # Done recipients (D) got nothing; those left got their message once, byte for byte.
    assert [recipients for recipients, _ in remote] == [["jane@example.net"], ["jane@example.net"]]
    for state in ("S4", "S5"):
        body = b"Subject: %s\n\nbody of %s\n.\n" % (state.encode(), state.encode())
        assert sum(message.endswith(body) for _, message in remote) == 1
        assert sum(message.endswith(body) and b"Delivered-To: joe@example.org\n" in message for message in new) == 1
    bounces = [message for message in new if b"Delivered-To: sender@example.org\n" in message]
    assert len(bounces) == 1
    assert b"Sorry, no mailbox here." in bounces[0]
    assert len(new) == 3


def test_a_queue_half_done_by_us_is_given_back_in_qmails_form(tmp_path: Path) -> None:
    accounts: QmailAccounts = qmail_accounts()
    with SmtpServer() as server:
        server.recipient_answers["jane@example.net"] = "451 later"
        qmail = stock(tmp_path / "qmail", server, time.time_ns() - 3600 * 10**9)
        bytes_before = {state: (qmail.queue / "mess" / str(message % 23) / str(message)).read_bytes()
                        for state, message in qmail.messages.items()}
        adopt(qmail.home, myself())
        with Suite(qmail.home) as suite:
            suite.wait_for(r"success", times=2)
            suite.wait_for(r"deferral", times=2)
            suite.stop()
    undo(qmail.home, accounts)
    layout = open_layout(qmail.home.queue)
    states = {state: Presence(layout, message).state() for state, message in qmail.messages.items()}
    assert states == {"S2": 2, "S3": 3, "S4": 5, "S5": 5}
    for state, message in qmail.messages.items():
        assert Path(layout.mess(message)).read_bytes() == bytes_before[state]
    for state, done in (("S4", []), ("S5", [b"gone@example.net", b"ok@example.net"])):
        remote = unpack_recipients(Path(layout.hashed("remote", qmail.messages[state])).read_bytes())
        assert [address for _, is_done, address in remote if is_done] == done
        assert [address for _, is_done, address in remote if not is_done] == [b"jane@example.net"]
    assert Path(layout.bounce(qmail.messages["S5"])).read_bytes() == b"<gone@example.net>:\nSorry, no mailbox here.\n\n"
    assert_is_qmails(tmp_path, qmail, accounts)


def assert_is_qmails(tmp_path: Path, qmail: QmailQueue, accounts: QmailAccounts) -> None:
    """Compare with a stock home: directories one by one, files with their kind."""
    expected = snapshot(QmailQueue(tmp_path / "stock").queue)
    found = snapshot(qmail.queue)
    for name, known in expected.items():
        assert (name, found[name][:3]) == (name, known[:3])
    for name in found.keys() - expected.keys():
        is_qmailqs = name.split("/")[0] in ("mess", "pid", "intd", "todo")
        account, mode = ("qmailq", 0o644) if is_qmailqs else ("qmails", 0o600)
        assert (name, found[name][:3]) == (name, (oct(stat.S_IFREG | mode), accounts.uids[account], accounts.gid))
