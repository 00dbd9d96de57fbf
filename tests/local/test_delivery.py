"""One delivery in a process of its own: as which user, in which home, by which .qmail file."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from queue_local.local_delivery import deliver_as
from queue_local.result import Outcome
from queue_wire.mailbox import Account, Mailbox
from support.local.deliveries import JOB, run
from support.local.mailboxes import UID, MailHome, new_mail


def as_joe(
    mail: MailHome, extension: bytes | None = None, *, uid: int = UID, default: bytes = b"./Maildir/\n"
) -> bytes:
    """Deliver a message to joe, whose home is alias/ here; return letter and text in one."""
    dash = b"" if extension is None else b"-"
    mailbox = Mailbox(Account("joe", uid, uid, str(mail.alias)), dash, extension or b"")
    path = mail.path / "queue" / mail.message(b"Subject: x\n\nto joe\n").decode()
    letter, text = run(lambda message: deliver_as(mail.home, mailbox, JOB.sender, JOB.nexthop, message, default), path)
    return letter + text


def test_a_delivery_runs_as_the_mailbox_s_user_and_nothing_else(mail: MailHome) -> None:
    maildir = mail.maildir()

    gid = UID if os.geteuid() == 0 else os.getgid()
    groups = [] if os.geteuid() == 0 else os.getgroups()

    def work(message: int) -> str:
        mailbox = Mailbox(Account("joe", UID, gid, str(mail.alias)), b"", b"")
        deliver_as(mail.home, mailbox, b"", b"joe@host", message, b"./Maildir/\n")
        return f"{os.getresuid()} {os.getresgid()} {os.getgroups()} {Path.cwd()}"

    letter, text = run(work, mail.path / "control/me")
    assert (letter, text) == (b"K", f"{(UID,) * 3} {(gid,) * 3} {groups} {mail.alias}\n".encode())
    assert [file.stat().st_uid for file in (maildir / "new").iterdir()] == [UID]


def test_the_plain_user_without_a_file_gets_the_default_delivery(mail: MailHome) -> None:
    maildir = mail.maildir()
    assert as_joe(mail) == b"Kdid 1+0+0\n"
    head = b"Return-Path: <from@far.example>\nDelivered-To: joe@host.example\n"
    assert new_mail(maildir) == [head + b"Subject: x\n\nto joe\n"]


def test_an_extension_without_a_file_is_no_mailbox(mail: MailHome) -> None:
    mail.maildir()
    assert as_joe(mail, b"list") == b"DSorry, no mailbox here by that name. (#5.1.1)\n"


def test_an_empty_file_means_the_default_delivery_even_if_it_is_executable(mail: MailHome) -> None:
    maildir = mail.maildir()
    mail.qmail(".qmail-list", b"", 0o744)
    assert as_joe(mail, b"List") == b"Kdid 1+0+0\n"
    assert len(new_mail(maildir)) == 1


def test_the_most_specific_file_wins(mail: MailHome) -> None:
    first, second = mail.maildir("first"), mail.maildir("second")
    mail.qmail(".qmail-a:b-default", b"./first/\n")
    mail.qmail(".qmail-default", b"./second/\n")
    assert as_joe(mail, b"A.B-c") == as_joe(mail, b"a.c") == b"Kdid 1+0+0\n"
    assert (len(new_mail(first)), len(new_mail(second))) == (1, 1)


def test_every_maildir_line_is_delivered_to(mail: MailHome) -> None:
    maildirs = [mail.maildir(name) for name in ("one", "two", "three")]
    mail.qmail(".qmail", b"./one/\n# comment\n./two/\n%s/\n" % os.fsencode(maildirs[2]))
    assert as_joe(mail) == b"Kdid 3+0+0\n"
    assert [len(new_mail(maildir)) for maildir in maildirs] == [1, 1, 1]


def test_a_line_that_fails_defers_the_whole_delivery(mail: MailHome) -> None:
    mail.maildir()
    mail.qmail(".qmail", b"./Maildir/\n./missing/\n")
    assert as_joe(mail) == b"ZUnable to chdir to maildir. (#4.2.1)\n"


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o757])
def test_a_home_that_group_or_others_may_write_defers(mail: MailHome, mode: int) -> None:
    mail.alias.chmod(mode)
    assert as_joe(mail) == b"ZUh-oh: home directory is writable. (#4.7.0)\n"


def test_a_sticky_home_defers(mail: MailHome) -> None:
    mail.alias.chmod(0o1755)
    assert as_joe(mail) == b"ZHome directory is sticky: user is editing his .qmail file. (#4.2.1)\n"


def test_a_missing_home_defers(mail: MailHome) -> None:
    mail.alias.rename(mail.path / "elsewhere")
    assert as_joe(mail).startswith(b"ZUnable to switch to ")


@pytest.mark.parametrize("mode", [0o666, 0o664, 0o646])
def test_a_file_that_group_or_others_may_write_defers(mail: MailHome, mode: int) -> None:
    mail.qmail(".qmail-x", b"./Maildir/\n", mode)
    assert as_joe(mail, b"x") == b"ZUh-oh: .qmail file is writable. (#4.7.0)\n"


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_what_is_not_a_regular_file_is_passed_over(mail: MailHome, make: Callable[[str], None]) -> None:
    mail.maildir()
    make(f"{mail.alias}/.qmail-x")
    assert as_joe(mail, b"x")[:1] == b"D"
    mail.qmail(".qmail-default", b"./Maildir/\n")
    assert as_joe(mail, b"x") == b"Kdid 1+0+0\n"


def test_a_link_that_leads_in_a_circle_defers(mail: MailHome) -> None:
    (mail.alias / ".qmail-x").symlink_to(".qmail-x")
    assert as_joe(mail, b"x").startswith(b"ZUnable to open .qmail-x: ")


def test_a_blank_first_line_defers(mail: MailHome) -> None:
    mail.qmail(".qmail", b"\n./Maildir/\n")
    assert as_joe(mail) == b"ZUh-oh: first line of .qmail file is blank. (#4.2.1)\n"


@pytest.mark.parametrize("extension", [b"../../etc/passwd", b"/etc/passwd", b"x" * 900, b"\xff\n`id`", b"..", b"."])
def test_a_hostile_extension_finds_no_mailbox(mail: MailHome, extension: bytes) -> None:
    assert as_joe(mail, extension) == b"DSorry, no mailbox here by that name. (#5.1.1)\n"


def test_a_message_that_comes_back_is_refused(mail: MailHome) -> None:
    maildir = mail.maildir()
    path = mail.path / "queue" / mail.message(b"Delivered-To: joe@host.example\n\nagain\n").decode()
    mailbox = Mailbox(Account("joe", UID, UID, str(mail.alias)), b"", b"")
    verdict = run(lambda message: deliver_as(mail.home, mailbox, b"", JOB.nexthop, message, b"./Maildir/\n"), path)
    assert verdict == (b"D", b"This message is looping: it already has my Delivered-To line. (#5.4.6)\n")
    assert new_mail(maildir) == []


def test_root_is_never_delivered_to(mail: MailHome) -> None:
    mail.maildir()
    assert as_joe(mail, uid=0).startswith(b"ZNot allowed to perform deliveries as root. (#4.7.0)")


def test_who_owns_the_whole_queue_gets_mail_as_himself_even_if_he_is_root(mail: MailHome) -> None:
    maildir = mail.maildir()
    if os.geteuid() == 0:
        for path in [mail.alias, *mail.alias.rglob("*")]:
            os.chown(path, 0, 0)
    account = Account("alias", os.geteuid(), os.getegid(), str(mail.alias))
    mailbox = Mailbox(account, b"", b"")
    path = mail.path / "queue" / mail.message(b"Subject: x\n\n").decode()

    def work(message: int) -> Outcome:
        return deliver_as(mail.home, mailbox, b"", b"joe@host", message, b"./Maildir/\n", True)

    verdict = run(work, path)
    assert verdict == (b"K", b"did 1+0+0\n")
    assert len(new_mail(maildir)) == 1


def test_another_user_s_mail_waits_for_a_queue_local_that_root_started(mail: MailHome) -> None:
    mail.maildir()
    mailbox = Mailbox(Account("eve", UID + 1, UID + 1, str(mail.alias)), b"", b"")

    def work(message: int) -> Outcome:
        if os.geteuid() == 0:
            os.setuid(UID)
        return deliver_as(mail.home, mailbox, b"", b"eve@host", message, b"./Maildir/\n")

    letter, text = run(work, mail.path / "control/me")
    assert letter == b"Z" and b"Unable to deliver to eve as user eve" in text and b"start it as root" in text
