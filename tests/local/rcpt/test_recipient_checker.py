"""The recipient checker of queue-local: which recipients exist, who may ask, and what is undecided."""

import os
import pwd
import signal
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from queue_base.accounts import queue_owner
from queue_local.rcpt.lmtp_question import become_sender
from queue_local.srs.srs_address import DAYS_MAX, rewrite_sender
from support.inject.injectors import OWNER, USER, shared_home
from support.local.assigned import assign
from support.local.hanging_home import hanging
from support.local.local_daemon import LocalDaemon
from support.local.mailboxes import UID, MailHome, give
from support.local.recipient_client import RecipientClient
from support.processes.suite import wait_until
from support.tools import need_root

EXISTS = (b"K", b"")
UNKNOWN = (b"D", b"Sorry, no mailbox here by that name. (#5.1.1)")
GID = UID if os.geteuid() == 0 else os.getgid()


def private_home(mail: MailHome, name: str, *files: str, mode: int = 0o700) -> Path:
    """Make a home below HOME that only its user may search, with .qmail files."""
    home = mail.path / name
    home.mkdir()
    for file in files:
        (home / file).write_text("./Maildir/\n")
        give(home / file)
    give(home)
    home.chmod(mode)
    return home


def assign_to(mail: MailHome, *names: str) -> Path:
    """Give each user the home of that name, with extensions."""
    kinds = (("=", "", ""), ("+", "-", "-"))
    lines = [f"{kind}{n}{end}:{n}:{UID}:{GID}:{mail.path}/{n}:{dash}::\n" for n in names for kind, end, dash in kinds]
    return assign(mail.home, "".join(lines))


def test_aliases_exist_by_their_files(mail: MailHome) -> None:
    mail.qmail(".qmail-postmaster", b"&x@far.example\n")
    mail.qmail(".qmail-abuse-default", b"&x@far.example\n")
    mail.qmail(".qmail-joe:shmoe", b"")
    with LocalDaemon(mail.home) as daemon, RecipientClient(mail.home) as client:
        daemon.ready()
        for local in (b"postmaster", b"POSTMASTER", b"abuse-x-y", b"Joe.Shmoe", b""):
            assert client.ask(local + b"@host.example") == EXISTS
        for local in (b"nobody-here", b"abuse", b"postmaster-x", b"joe:shmoex", b"../alias/.qmail-postmaster", b"\xff"):
            assert client.ask(local + b"@host.example") == UNKNOWN
        assert client.ask(b"postmaster")[0] == b"D"


def test_a_default_file_takes_everybody(mail: MailHome) -> None:
    mail.qmail(".qmail-default", b"&x@far.example\n")
    with LocalDaemon(mail.home), RecipientClient(mail.home) as client:
        assert client.ask(b"whoever@host.example") == EXISTS


def test_a_home_that_only_its_user_may_search_is_looked_into_as_that_user(mail: MailHome) -> None:
    private_home(mail, "ann", ".qmail-list", ".qmail-lists-default")
    assign_to(mail, "ann")
    with LocalDaemon(mail.home), RecipientClient(mail.home) as client:
        for local in (b"ann", b"Ann", b"ann-list", b"ann-lists-x"):
            assert client.ask(local + b"@host.example") == EXISTS
        assert client.ask(b"ann-other@host.example") == UNKNOWN


def test_the_dash_and_not_the_extension_decides_whether_a_file_is_needed(mail: MailHome) -> None:
    home = private_home(mail, "ann")
    lines = [f"+{n}:ann:{UID}:{GID}:{home}:{dash}:{ext}:\n" for n, dash, ext in (("x", "-", ""), ("y", "", "list"))]
    assign(mail.home, "".join(lines))
    with LocalDaemon(mail.home), RecipientClient(mail.home) as client:
        assert client.ask(b"x@host.example") == UNKNOWN
        assert client.ask(b"y@host.example") == EXISTS


def test_the_files_are_not_read(mail: MailHome) -> None:
    home = private_home(mail, "ann")
    (home / ".qmail-list").write_text("\n\n")  # A delivery defers it.
    (home / ".qmail-list").chmod(0o400)
    give(home / ".qmail-list")
    assign_to(mail, "ann")
    with LocalDaemon(mail.home), RecipientClient(mail.home) as client:
        assert client.ask(b"ann-list@host.example") == EXISTS


def sticky(home: Path) -> None:
    home.chmod(0o1700)


def writable(home: Path) -> None:
    home.chmod(0o722)


def gone(home: Path) -> None:
    home.rename(f"{home}.moved")


def of_root(home: Path) -> None:
    need_root()
    os.chown(home, 0, 0)


def writable_file(home: Path) -> None:
    (home / ".qmail-other").write_text("")
    give(home / ".qmail-other")
    (home / ".qmail-other").chmod(0o622)


@pytest.mark.parametrize("spoil", [sticky, writable, gone, of_root, writable_file])
def test_what_a_delivery_would_be_deferred_for_is_undecided_and_not_kept(
    mail: MailHome, spoil: Callable[[Path], None]
) -> None:
    home = private_home(mail, "ann")
    assign_to(mail, "ann")
    spoil(home)
    with LocalDaemon(mail.home), RecipientClient(mail.home) as client:
        letter, text = client.ask(b"ann-other@host.example")
        assert letter == b"Z" and text
        if not home.exists():
            (home.parent / "ann.moved").rename(home)
        home.chmod(0o700)
        give(home)
        (home / ".qmail-other").unlink(missing_ok=True)
        assert client.ask(b"ann-other@host.example") == UNKNOWN


@pytest.mark.parametrize("trouble", ["damaged", "others may write", "a directory"])
def test_a_users_cdb_that_cannot_be_used_decides_nothing(mail: MailHome, trouble: str) -> None:
    private_home(mail, "ann")
    cdb = assign_to(mail, "ann")
    if trouble == "damaged":
        cdb.write_bytes(cdb.read_bytes()[:-100])
    elif trouble == "a directory":
        cdb.unlink()
        cdb.mkdir()
    else:
        cdb.chmod(0o666)
    with LocalDaemon(mail.home), RecipientClient(mail.home) as client:
        for local in (b"ann", b"nobody-here"):
            letter, text = client.ask(local + b"@host.example")
            assert letter == b"Z" and text.startswith(b"Trouble reading users/cdb: ")


def test_an_alias_directory_that_is_missing_decides_nothing(mail: MailHome) -> None:
    mail.alias.rmdir()
    with LocalDaemon(mail.home), RecipientClient(mail.home) as client:
        assert client.ask(b"nobody-here@host.example")[0] == b"Z"


def test_addresses_of_srs_are_refused_if_they_are_forged_or_too_old(mail: MailHome) -> None:
    (mail.path / "control/srs").write_text("srs.example\n")
    secrets = mail.path / "control/srssecrets"
    secrets.write_text("secret\n")
    secrets.chmod(0o600)
    now = time.time()

    def made(days: int = 0, secret: bytes = b"secret") -> bytes:
        return rewrite_sender(b"joe@example.net", b"srs.example", secret, now - days * 86400)

    with LocalDaemon(mail.home), RecipientClient(mail.home) as client:
        assert client.ask(made()) == EXISTS
        assert client.ask(made(DAYS_MAX - 1).lower()) == EXISTS
        for address, why in (
            (made(secret=b"other"), b"its hash is wrong"),
            (made(DAYS_MAX + 2), b"it has expired"),
            (b"SRS0=x@srs.example", b"no whole address"),
        ):
            letter, text = client.ask(address)
            assert letter == b"D" and why in text and text.endswith(b"(#5.1.1)")
        # Of another domain it is a local part as any other.
        assert client.ask(made().replace(b"@srs.example", b"@host.example")) == UNKNOWN
        secrets.chmod(0o644)
        letter, text = client.ask(made(1))
        assert letter == b"Z" and b"everybody can use it" in text


def test_a_new_file_counts_when_the_verdict_is_kept_no_longer(mail: MailHome) -> None:
    with LocalDaemon(mail.home), RecipientClient(mail.home) as client:
        assert client.ask(b"new@host.example") == UNKNOWN
        mail.qmail(".qmail-new", b"")
        wait_until(lambda: client.ask(b"new@host.example") == EXISTS, 60, "the verdict to be forgotten")


def test_questions_on_one_connection_are_all_answered(mail: MailHome) -> None:
    mail.qmail(".qmail-a-default", b"")
    addresses = [b"%s-%d@host.example" % (kind, number) for number in range(100) for kind in (b"a", b"b")]
    with LocalDaemon(mail.home), RecipientClient(mail.home) as client:
        client.send(*addresses)
        found = {verdict.number: verdict.letter for verdict in (client.next() for _ in addresses)}
    assert [found[number] for number in range(1, 201)] == [b"K", b"D"] * 100


def test_a_home_that_hangs_is_undecided_in_time_and_delays_nobody_else(mail: MailHome) -> None:
    home = private_home(mail, "ann")
    assign_to(mail, "ann")
    mail.qmail(".qmail-info", b"")
    with hanging(home), LocalDaemon(mail.home) as daemon, RecipientClient(mail.home) as client:
        daemon.ready()
        # Far more than lookups at once.
        client.send(*[b"ann-%d@host.example" % number for number in range(100)])
        with RecipientClient(mail.home) as other:
            begun = time.monotonic()
            assert other.ask(b"info@host.example") == EXISTS
            assert other.ask(b"nobody-here@host.example") == UNKNOWN
            assert time.monotonic() - begun < 5
        # queue-local itself has nothing to do with it.
        assert daemon.verdict(1, mail.message(b"x"), b"nobody-here@host.example")[0] == b"D"
        assert {client.next().letter for _ in range(100)} == {b"Z"}
        assert time.monotonic() - begun < 30
        # The lookups are killed.
        (checker,) = checkers(daemon)
        wait_until(lambda: not checker.children(recursive=True), 60, "the end of lookups that hang")
        assert client.ask(b"info@host.example") == EXISTS


def checkers(daemon: LocalDaemon) -> list[psutil.Process]:
    """Return the processes below queue-local that listen."""
    found = psutil.Process(daemon.process.pid).children()
    return [process for process in found if process.net_connections("unix")]


def test_a_checker_that_died_is_started_again(mail: MailHome) -> None:
    with LocalDaemon(mail.home) as daemon:
        daemon.ready()
        with RecipientClient(mail.home) as client:
            assert client.ask(b"x@host.example") == UNKNOWN
            pid = checkers(daemon)[0].pid
            os.kill(pid, signal.SIGKILL)
            assert client.socket.recv(1) == b""
        # Its socket may be closed a moment later.
        wait_until(lambda: not psutil.pid_exists(pid), 60, "the end of the checker")
        with RecipientClient(mail.home) as client:
            assert client.ask(b"x@host.example") == UNKNOWN
        code, said = daemon.end()
    assert code == 0
    assert said == b"queue-local: alert: the recipient checker ended with signal 9; it starts again\n"


@pytest.mark.parametrize("data", [b"x", b"3:abc,", b"99999:", b"2:1\0;"])
def test_what_is_no_question_ends_the_connection_and_no_other(mail: MailHome, data: bytes) -> None:
    with LocalDaemon(mail.home), RecipientClient(mail.home) as client, RecipientClient(mail.home) as bad:
        bad.socket.sendall(data)
        assert bad.socket.recv(1) == b""
        assert client.ask(b"x@host.example") == UNKNOWN


def test_other_users_may_not_ask(mail: MailHome) -> None:
    need_root()
    with LocalDaemon(mail.home) as daemon, RecipientClient(mail.home):
        pid = os.fork()
        if not pid:
            code = 1
            try:
                os.setgid(UID)
                os.setuid(UID)
                with RecipientClient(mail.home) as client:
                    code = 0 if client.socket.recv(1) == b"" else 2
            except (ConnectionResetError, BrokenPipeError):
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        _, said = daemon.end()
    assert b"warning: uid %d may not ask the recipient checker" % UID in said


def test_the_socket_belongs_to_the_owner_of_the_queue(mail: MailHome) -> None:
    need_root()
    for directory, _, _ in os.walk(mail.home.queue):
        os.chown(directory, 4711, 4711)
    with LocalDaemon(mail.home), RecipientClient(mail.home) as client:
        found = os.stat(f"{mail.home.queue}/intake/recipients")
        assert (found.st_uid, found.st_gid) == (4711, 4711)
        assert client.ask(b"x@host.example") == UNKNOWN


def test_an_lmtp_server_is_asked_as_the_account_that_delivers(monkeypatch: pytest.MonkeyPatch) -> None:
    need_root()
    entry = pwd.struct_passwd(("queuer", "x", USER, USER, "", "/", "/bin/sh"))
    monkeypatch.setattr(pwd, "getpwnam", lambda name: entry)
    with shared_home(OWNER) as home:
        owner = queue_owner(home)
        pid = os.fork()
        if not pid:
            try:
                become_sender(home)
                same = (os.getresuid(), os.getresgid(), os.getgroups()) == ((USER,) * 3, (owner.gid,) * 3, [])
                os._exit(0 if owner.uid == OWNER and same else 1)
            finally:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
