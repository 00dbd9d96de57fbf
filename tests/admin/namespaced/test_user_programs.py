"""What users run from their .qmail files: procmail, maildrop and vacation, as a user, and the mail that these send.

Run by tests/admin/test_accounts.py inside a mount namespace whose /etc is private, as root: our sendmail is bound over
that of the machine, since vacation and procmail look there alone.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from queue_base.home import Home
from support.processes.forked import BIN
from support.processes.suite import Suite, enqueue, program, wait_until
from support.tools import need, need_file

SENDMAIL = Path("/usr/sbin/sendmail")
# qmail's preline.
PRELINE = '(printf %s "$UFLINE$RPLINE$DTLINE"; cat) | '


class Users:
    """alice, who has programs, and bob, who writes to her; each with a Maildir."""

    def __init__(self, place: Path) -> None:
        self.place = place
        for name in ("alice", "bob"):
            self.run([need("useradd"), "-m", "-d", str(place / name), "-s", "/bin/sh", name])
            for box in ("new", "cur", "tmp"):
                (place / name / "Maildir" / box).mkdir(parents=True)
            self.own(name, place / name / "Maildir")
        words = [*program("queuectl"), "init", str(place / "home"), "--me", "me.example", "--local", "me.example"]
        self.run(words)
        self.home = Home(str(place / "home"))

    def run(self, words: list[str]) -> None:
        """Run a command that must succeed."""
        subprocess.run(words, check=True, capture_output=True)

    def own(self, name: str, path: Path) -> None:
        """Give a file or a tree to a user."""
        self.run(["chown", "-R", f"{name}:", str(path)])

    def write(self, name: str, text: str) -> None:
        """Write a file of alice's."""
        path = self.place / "alice" / name
        path.write_text(text)
        path.chmod(0o600)
        self.own("alice", path)

    def mail(self, name: str, box: str = "Maildir") -> list[str]:
        """Return a user's new mail."""
        new = self.place / name / box / "new"
        return [path.read_text() for path in new.iterdir()] if new.exists() else []

    def send(self, subject: str) -> None:
        """Send a message from bob to alice."""
        header = f"From: bob@me.example\nTo: alice@me.example\nSubject: {subject}\nMessage-ID: <{subject}@me.example>\n"
        done = enqueue(self.home, b"bob@me.example", [b"alice@me.example"], header.encode() + b"\nbody\n")
        assert done.returncode == 0, done.stderr

    def wait_for_end(self) -> None:
        """Wait until nothing is left in the queue, nor in maildrop/."""
        top = Path(self.home.queue)
        # What is taken from maildrop/ while this looks is in mess/ then.
        kinds = ("maildrop", "mess", "todo", "info")
        wait_until(lambda: not [path for kind in kinds for path in (top / kind).rglob("*") if path.is_file()])


@pytest.fixture
def users(place: Path) -> Iterator[Users]:
    try:
        yield Users(place)
    finally:
        for user in ("alice", "bob"):
            # By force: another run's user may have the same number, and processes.
            subprocess.run(["userdel", "--force", user], check=False, capture_output=True)


@pytest.fixture
def our_sendmail(users: Users) -> Iterator[None]:
    """Our sendmail is /usr/sbin/sendmail, with the libraries that an installed one finds by itself."""
    need_file(str(SENDMAIL))  # One to bind over.
    script = users.place / "sendmail"
    search, home = os.pathsep.join(sys.path), users.home.path
    script.write_text(
        f'#!/bin/sh\nPYTHONPATH={search} QUEUE_HOME={home}\nexport PYTHONPATH QUEUE_HOME\n'
        f'exec {sys.executable} {BIN}/sendmail "$@"\n'
    )
    script.chmod(0o755)
    subprocess.run(["mount", "--bind", str(script), str(SENDMAIL)], check=True)
    yield
    subprocess.run(["umount", str(SENDMAIL)], check=True)


def test_vacation_answers_the_sender_once(users: Users, our_sendmail: None) -> None:
    users.write(".vacation.msg", "From: alice@me.example\nSubject: away\n\nI am away: $SUBJECT\n")
    users.write(".qmail", f"./Maildir/\n|{PRELINE}{need('vacation')} alice\n")
    with Suite(users.home) as suite:
        for subject in ("first", "second"):
            users.send(subject)
            wait_until(lambda subject=subject: any(subject in mail for mail in users.mail("alice")))  # type: ignore[misc]
            users.wait_for_end()
        suite.wait_for(r"success: did_1\+0\+1/$", times=2)
    (reply,) = users.mail("bob")
    assert "Subject: away\n" in reply and "\nI am away: first\n" in reply
    assert len(users.mail("alice")) == 2


def test_procmail_sorts_forwards_and_refuses(users: Users, our_sendmail: None) -> None:
    users.write(
        ".procmailrc",
        "DEFAULT=$HOME/Maildir/\n:0\n* ^Subject:.*spam\n$HOME/spam/\n"
        ":0\n* ^Subject:.*copy\n! bob@me.example\n"
        ":0\n* ^Subject:.*unwanted\n{\n  EXITCODE=77\n  HOST=\n}\n",
    )
    users.write(".qmail", f"|{PRELINE}{need('procmail')} -p\n")
    with Suite(users.home) as suite:
        for subject in ("plain", "spam", "copy", "unwanted"):
            users.send(subject)
        suite.wait_for(r"success: did_0\+0\+1", times=3)
        suite.wait_for(r"failure: ")
        users.wait_for_end()
    assert ["Subject: plain" in mail for mail in users.mail("alice")] == [True]
    assert ["Subject: spam" in mail for mail in users.mail("alice", "spam")] == [True]
    copy, bounce = sorted(users.mail("bob"), key=lambda mail: "multipart/report" in mail)
    assert "Subject: copy\n" in copy and "\nbody\n" in copy
    assert "<alice@me.example>:\nProgram ended with exit code 77." in bounce


def test_maildrop_sorts_forwards_and_defers(users: Users, our_sendmail: None) -> None:
    users.write(
        ".mailfilter",
        'DEFAULT="$HOME/Maildir/"\nif (/^Subject: spam/)\n{\n  to "$HOME/spam/"\n}\n'
        'if (/^Subject: copy/)\n{\n  to "!bob@me.example"\n}\n'
        "if (/^Subject: later/)\n{\n  EXITCODE=75\n  exit\n}\n",
    )
    users.write(".qmail", f"|{PRELINE}{need('maildrop')}\n")
    users.run(["su", "alice", "-c", f"cp -r {users.place}/alice/Maildir {users.place}/alice/spam"])
    with Suite(users.home) as suite:
        for subject in ("plain", "spam", "copy"):
            users.send(subject)
        suite.wait_for(r"success: did_0\+0\+1", times=3)
        users.wait_for_end()
        users.send("later")
        suite.wait_for(r"deferral: Program_ended_with_exit_code_75\._\(#4\.3\.0\)/$")
    assert ["Subject: plain" in mail for mail in users.mail("alice")] == [True]
    assert ["Subject: spam" in mail for mail in users.mail("alice", "spam")] == [True]
    assert ["\nbody\n" in mail for mail in users.mail("bob")] == [True]


def test_programs_and_forwards_are_the_user_s_not_the_queue_s(users: Users) -> None:
    users.write(".qmail", "|id -un >who; test ! -r \"$QUEUE_HOME/queue/info\"\n&bob@me.example\n")
    with Suite(users.home) as suite:
        users.send("hello")
        suite.wait_for(r"success: did_0\+1\+1/qp_\d+/id_\S+/$")
        users.wait_for_end()
        uid = (users.place / "alice").stat().st_uid
        suite.wait_for(rf"info msg \d+: bytes \d+ from <bob@me\.example> qp \d+ uid {uid}$")
    assert (users.place / "alice/who").read_text() == "alice\n"
    (mail,) = users.mail("bob")
    assert f"invoked by uid {uid})" in mail and "Delivered-To: alice@me.example\n" in mail
