"""Real programs call bin/sendmail as they call any sendmail; their mail is delivered here and at another host."""

import email
import email.policy
import os
import shlex
import subprocess
from collections.abc import Iterator
from email.message import EmailMessage
from pathlib import Path
from typing import NamedTuple

import pytest

from support.processes.suite import Suite, program, wait_until
from support.servers.smtp.sink import Sink
from support.site import LOCAL, Site, mail_site
from support.tools import need, need_file

SENDER = f"joe@{LOCAL}"
FAR = "far@remote.example"
TYPED = "Dear all,\n.\n..\n.dots\n\nGr\u00fc\u00dfe \u2026\nFrom here on\n"


class Given(NamedTuple):
    """What a program passed to sendmail: the arguments, as one string, and the standard input."""

    arguments: str
    message: bytes


class Place:
    """A running suite, and a sendmail that records what it is given; each test has a directory."""

    def __init__(self, site: Site, sink: Sink, directory: Path) -> None:
        self.site = site
        self.sink = sink
        self.directory = directory
        self.near = f"near-{directory.name}@{LOCAL}"
        self.maildir = site.user_maildir(f"near-{directory.name}")
        self._before = len(sink.taken)
        self.sendmail = str(directory / "sendmail")
        given, words = shlex.quote(str(directory / "given")), shlex.join(program("sendmail"))
        script = f'#!/bin/sh\nexport QUEUE_HOME={shlex.quote(site.home.path)}\necho "$*" >{given}.words\n'
        Path(self.sendmail).write_text(f'{script}tee {given} | {words} "$@"\n')
        Path(self.sendmail).chmod(0o755)

    def run(self, *words: str, text: str = "", **environment: str) -> None:
        """Run a program with a text on its stdin; it must succeed, and sendmail must not print anything."""
        done = subprocess.run(
            [need(words[0]), *words[1:]],
            input=text.encode(),
            env={**os.environ, "LC_ALL": "C.UTF-8", "HOME": str(self.directory), **environment},
            cwd=self.directory,
            capture_output=True,
            timeout=60,
        )
        assert done.returncode == 0 and b"sendmail:" not in done.stderr, done

    def given(self) -> Given:
        """Return what the program passed to sendmail."""
        words, message = self.directory / "given.words", self.directory / "given"
        return Given(words.read_text().strip(), message.read_bytes())

    def arrived(self, sender: str = SENDER) -> EmailMessage:
        """Wait until the message is delivered to both recipients; check that it is the same, and return it."""
        wait_until(lambda: list((self.maildir / "new").iterdir()), 60, "the local copy")
        [path] = (self.maildir / "new").iterdir()
        [taken] = self.sink.wait_for(self._before + 1)[self._before :]
        lines = path.read_bytes().split(b"\n", 2)
        assert lines[:2] == [f"Return-Path: <{sender}>".encode(), f"Delivered-To: {self.near}".encode()]
        assert (taken.sender, taken.recipients) == (sender.encode(), [FAR.encode()])
        assert taken.content.partition(b"\n")[2].rstrip(b"\n") == lines[2].partition(b"\n")[2].rstrip(b"\n")
        self.bytes = lines[2].partition(b"\n")[2]
        return email.message_from_bytes(self.bytes, _class=EmailMessage, policy=email.policy.default)


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[Site, Sink]]:
    with mail_site() as site, Sink() as sink:
        site.route(sink.port)
        with Suite(site.home):
            yield site, sink


@pytest.fixture
def place(running: tuple[Site, Sink], tmp_path: Path) -> Place:
    return Place(*running, tmp_path)


def body_of(message: bytes) -> bytes:
    """Return the body."""
    return message.partition(b"\n\n")[2]


def test_mutt(place: Place) -> None:
    (place.directory / "muttrc").write_text(
        f'set sendmail="{place.sendmail} -oem -oi"\nset from="{SENDER}" use_envelope_from=yes use_8bitmime=yes\n'
        'set dsn_notify="failure,delay" dsn_return=hdrs copy=no\nset charset=utf-8 send_charset=utf-8\n'
    )
    place.run("mutt", "-n", "-F", "muttrc", "-s", "Gr\u00fc\u00dfe", "-b", FAR, "--", place.near, text=TYPED)

    found = place.arrived()
    assert "-B8BITMIME" in place.given().arguments and "-N failure,delay -R hdrs" in place.given().arguments
    assert (found["Subject"], found["Bcc"], found.get_content()) == ("Gr\u00fc\u00dfe", None, TYPED)
    # Complete headers are left byte for byte as they are.
    assert place.bytes == place.given().message


@pytest.mark.parametrize("encoding", ["8b", "quoted-printable"])
def test_s_nail_with_its_default_arguments(place: Place, encoding: str) -> None:
    settings = (f"mta={place.sendmail}", f"from={SENDER}", "ttycharset=utf-8", "sendcharsets=utf-8", "sendwait")
    words = [word for each in (*settings, f"mime-encoding={encoding}") for word in ("-S", each)]
    place.run("s-nail", "-n", *words, "-r", SENDER, "-s", "typed", place.near, FAR, text=TYPED)

    found = place.arrived()
    assert place.given().arguments == f"-i -f {SENDER} -- {place.near} {FAR}"
    assert found.get_content() == TYPED and body_of(place.bytes) == body_of(place.given().message)


def test_bsd_mailx(place: Place) -> None:
    (place.directory / ".mailrc").write_text(f"set sendmail={place.sendmail}\nset sendwait\n")
    place.run("bsd-mailx", "-s", "typed", "-r", SENDER, "-b", FAR, place.near, text=TYPED)

    found = place.arrived()
    assert place.given().arguments == f"-i -t -f {SENDER}"
    assert b"\nBcc: " in place.given().message and found["Bcc"] is None
    assert body_of(place.bytes) == body_of(place.given().message)


def test_git_send_email(place: Place) -> None:
    need_file("/usr/lib/git-core/git-send-email")
    need_file("/usr/share/perl5/Mail/Address.pm")
    settings = ["-c", f"user.email={SENDER}", "-c", "user.name=Joe", "-c", f"sendemail.sendmailCmd={place.sendmail}"]
    (place.directory / "file").write_text(TYPED)
    for command in (["init", "-q"], ["add", "file"], ["commit", "-q", "-m", "A change\n\nwith a reason"]):
        place.run("git", *settings, *command)
    place.run(
        "git", *settings, "send-email", "-1", "--root", "--confirm=never", "--quiet", f"--to={place.near}",
        f"--cc={FAR}", f"--envelope-sender={SENDER}", "--suppress-cc=self", "--transfer-encoding=8bit",
    )  # fmt: skip

    found = place.arrived()
    assert place.given().arguments == f"-f {SENDER} -i {place.near} {FAR}"
    assert found["Subject"] == "[PATCH] A change" and place.bytes == place.given().message
    (place.directory / "patch").write_bytes(place.bytes)
    place.run("git", "apply", "--reverse", "--check", "patch")


def test_php_mail(place: Place) -> None:
    code = (
        f'if (!mail("{place.near}", "Hello", "one\\r\\n.\\ntwo\\n", "From: {SENDER}\\r\\nX-A: b\\r\\nBcc: {FAR}",'
        f' "-f{SENDER}")) exit(1);'
    )
    place.run("php", "-d", f"sendmail_path={place.sendmail} -t -i", "-r", code)

    found = place.arrived()
    assert b"\r\n" in place.given().message and b"\r" not in place.bytes
    assert (found["X-A"], found["Bcc"]) == ("b", None) and body_of(place.bytes).rstrip(b"\n") == b"one\n.\ntwo"


def test_a_program_that_pipes_a_message_with_t_as_into_msmtp(place: Place) -> None:
    message = f"From: Joe <{SENDER}>\nTo: {place.near}\nCc: Far <{FAR}>\nSubject: t\n"
    message += f"Date: Fri, 20 Nov 2026 10:00:00 +0000\nMessage-ID: <1@{LOCAL}>\n\n{TYPED}"
    place.run("sh", "-c", f"{shlex.quote(place.sendmail)} -oi -t -f {SENDER}", text=message)

    place.arrived()
    assert place.bytes == message.encode()


def test_a_python_program(place: Place) -> None:
    message = EmailMessage(policy=email.policy.SMTP)
    message["To"], message["From"], message["Subject"] = f"{place.near}, {FAR}", SENDER, "Gr\u00fc\u00dfe"
    message.set_content(TYPED)
    subprocess.run([place.sendmail, "-t", "-oi", f"-f{SENDER}"], input=message.as_bytes(), check=True, timeout=60)

    found = place.arrived()
    assert found["Subject"] == "Gr\u00fc\u00dfe" and found.get_content() == TYPED
