"""queue-local by users/cdb: who gets the mail, what is never done, and a users/cdb that cannot be used."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from queue_local.local_delivery import deliver
from queue_wire.pipes.job import Job
from support.local.assigned import assign
from support.local.deliveries import run
from support.local.local_daemon import LocalDaemon
from support.local.mailboxes import UID, MailHome, give, new_mail
from support.tools import need_root

OK = (b"K", b"did 1+0+0\n")
GID = UID if os.geteuid() == 0 else os.getgid()


def box(mail: MailHome, name: str) -> Path:
    """Make a home with a maildir and a .qmail-default below HOME; return the maildir."""
    home = mail.path / name
    home.mkdir()
    for path in (home / "Maildir", *(home / "Maildir" / kind for kind in ("tmp", "new", "cur"))):
        path.mkdir()
        give(path)
    (home / ".qmail-default").write_text("./Maildir/\n")
    give(home)
    return home / "Maildir"


def test_mail_goes_to_the_home_dash_and_ext_of_the_assignment(mail: MailHome) -> None:
    ann, rest = box(mail, "ann"), box(mail, "rest")
    (ann.parent / ".qmail-default").unlink()
    (ann.parent / ".qmail+list:x-default").write_text("./Maildir/\n")
    lines = f"+Ann-:ann:{UID}:{GID}:{mail.path}/ann:+:list.:\n+:rest:{UID}:{GID}:{mail.path}/rest:-::\n"
    assign(mail.home, lines)
    with LocalDaemon(mail.home) as daemon:
        daemon.ready()
        assert daemon.verdict(1, mail.message(b"one\n"), b"ANN-X-Y@host.example") == OK
        assert daemon.verdict(2, mail.message(b"two\n"), b"postmaster@host.example") == OK
        assert daemon.verdict(3, mail.message(b"x"), b"ann-q@host.example")[0] == b"D"
        assert daemon.end() == (0, b"")
    assert [message[-4:] for message in new_mail(ann)] == [b"one\n"]
    assert [message[-4:] for message in new_mail(rest)] == [b"two\n"]


def test_a_new_file_counts_for_the_next_delivery(mail: MailHome) -> None:
    one, two = box(mail, "one"), box(mail, "two")
    with LocalDaemon(mail.home) as daemon:
        daemon.ready()
        for name in ("one", "two"):
            assign(mail.home, f"+:x:{UID}:{GID}:{mail.path}/{name}:-::\n")
            assert daemon.verdict(1, mail.message(b"x"), b"info@host.example") == OK
    assert (len(new_mail(one)), len(new_mail(two))) == (1, 1)


def test_nothing_is_delivered_as_root_even_where_root_owns_everything(mail: MailHome) -> None:
    assign(mail.home, f"=adm:root:0:0:{mail.alias}:-::\n")
    with LocalDaemon(mail.home) as daemon:
        daemon.ready()
        verdict = daemon.verdict(1, mail.message(b"x"), b"adm@host.example")
    assert verdict == (b"Z", b"Not allowed to perform deliveries as root. (#4.7.0)\n")


def damaged(cdb: Path) -> None:
    cdb.write_bytes(cdb.read_bytes()[:-100])


def empty(cdb: Path) -> None:
    cdb.write_bytes(bytes(2048))


def no_assignment(cdb: Path) -> None:
    cdb.write_bytes(cdb.read_bytes().replace(b"\0/", b":/"))


def writable(cdb: Path) -> None:
    cdb.chmod(0o664)


def below_writable(cdb: Path) -> None:
    cdb.parent.chmod(0o777)


def directory(cdb: Path) -> None:
    cdb.unlink()
    cdb.mkdir()


def circle(cdb: Path) -> None:
    cdb.unlink()
    cdb.symlink_to("cdb")


@pytest.mark.parametrize(
    ("harm", "why"),
    [
        (damaged, "it is damaged: it names "),
        (empty, "it is damaged: it has no record of wildcards"),
        (no_assignment, "it is damaged: a record has 5 fields and not 6"),
        (writable, "its group or others may write there"),
        (below_writable, "its group or others may write there"),
        (directory, "it is not a file"),
        (circle, "too many levels of symbolic links"),
    ],
)
def test_a_users_cdb_that_cannot_be_used_defers_with_one_alert(
    mail: MailHome, harm: Callable[[Path], None], why: str
) -> None:
    cdb = assign(mail.home, f"+:joe:{UID}:{GID}:/home/joe:-::\n=a:a:1:1:/a:::\n")
    harm(cdb)
    with LocalDaemon(mail.home) as daemon:
        daemon.ready()
        for number in range(3):
            letter, text = daemon.verdict(number, mail.message(b"x"), b"nobody@host.example")
            assert letter == b"Z" and text.startswith(b"Trouble reading users/cdb: " + why.encode()), text
        code, errors = daemon.end()
    assert code == 0 and errors.count(b"\n") == 1
    path = cdb.parent if harm is below_writable else cdb
    assert errors.startswith(f"queue-local: alert: unable to use {path}: {why}".encode())


def test_a_file_of_another_owner_is_not_believed(mail: MailHome) -> None:
    need_root()
    os.chown(assign(mail.home, f"+:joe:{UID}:{GID}:/home/joe:-::\n"), UID, -1)
    with LocalDaemon(mail.home) as daemon:
        daemon.ready()
        verdict = daemon.verdict(1, mail.message(b"x"), b"joe@host.example")
    why = f"it belongs to uid {UID}; it must belong to root"
    assert verdict == (b"Z", f"Trouble reading users/cdb: {why}. (#4.3.0)\n".encode())


def test_who_owns_the_queue_gets_no_file_written_where_root_delivers(mail: MailHome) -> None:
    need_root()
    mail.maildir()
    mail.qmail(".qmail-default", b"# no forward\n./Maildir/\n")
    os.chown(mail.home.queue, UID, UID)
    path = mail.path / "queue" / mail.message(b"x").decode()
    job = Job(7, b"mess/0/1", b"a@b", b"info@host.example", [b"info@host.example"])
    letter, text = run(lambda message: deliver(mail.home, job, message, b"./Maildir/\n"), path)
    assert letter == b"Z"
    assert text.startswith(f"Not allowed to carry out a maildir line of {mail.alias}/.qmail-default as ".encode())
    os.chown(mail.home.queue, 0, 0)
    assert run(lambda message: deliver(mail.home, job, message, b"./Maildir/\n"), path) == OK
