"""queue-local as a process, with every kind of line at once: what arrives, what is forwarded, what is reported."""

import os
from collections import Counter

import pytest

from queue_wire.pipes.job import Job, pack_job
from support.inject.injectors import queued
from support.local.local_daemon import LocalDaemon
from support.local.mailboxes import UID, MailHome, new_mail
from support.local.mbox import payloads

TO = b"info@host.example"
HEAD = b"Return-Path: <a@b>\nDelivered-To: info@host.example\n"
BODY = b"Subject: x\n\nFrom here\n"


def test_one_file_delivers_in_every_way_and_the_report_counts_them(mail: MailHome) -> None:
    maildir = mail.maildir()
    mail.qmail(".qmail-info", b"c@d.example\n./Maildir/\n./box\n|cat >seen; echo said\n&e@f.example\n./box\n")
    mail.qmail(".qmail-info-owner", b"#\n")
    with LocalDaemon(mail.home) as daemon:
        daemon.ready()
        letter, text = daemon.verdict(1, mail.message(BODY), TO)
        assert daemon.end() == (0, b"")
    said, did, qp, long_id = text.splitlines()
    assert (letter, said, did) == (b"K", b"said", b"did 3+2+1")
    assert qp.startswith(b"qp ") and long_id.startswith(b"id ")
    assert new_mail(maildir) == [HEAD + BODY]
    box = (mail.alias / "box").read_bytes()
    assert box.startswith(b"From a@b ") and box.count(HEAD + b"Subject: x\n\n>From here\n\n") == 2
    assert (mail.alias / "seen").read_bytes() == BODY
    (forward,) = queued(mail.home)
    assert forward.message == b"Delivered-To: info@host.example\n" + BODY
    assert forward.envelope.sender == b"info-owner@host.example"
    assert forward.envelope.recipients == [b"c@d.example", b"e@f.example"]
    assert forward.envelope.uid == UID


@pytest.mark.parametrize(
    ("lines", "letter"), [(b"&c@d.example\n./no/\n", b"Z"), (b"&c@d.example\n|exit 100\n", b"D")]
)
def test_a_line_that_fails_forwards_nothing(mail: MailHome, lines: bytes, letter: bytes) -> None:
    mail.qmail(".qmail-info", lines)
    with LocalDaemon(mail.home) as daemon:
        daemon.ready()
        assert daemon.verdict(1, mail.message(BODY), TO)[0] == letter
        assert daemon.end() == (0, b"")
    assert queued(mail.home) == []


def test_many_deliveries_at_once_to_one_mbox_are_all_there(mail: MailHome) -> None:
    mail.qmail(".qmail-info", b"./box\n")
    bodies = [b"%d\n" % number * 5_000 for number in range(40)]
    with LocalDaemon(mail.home) as daemon:
        daemon.ready()
        jobs = [Job(number, mail.message(body), b"a@b", TO, [TO]) for number, body in enumerate(bodies)]
        daemon.write(b"".join(pack_job(job) for job in jobs))
        assert {daemon.report().verdicts[0] for _ in bodies} == {(b"K", b"did 1+0+0\n")}
        assert daemon.end() == (0, b"")
    found = [message.removeprefix(HEAD) for message in payloads(mail.alias / "box", HEAD)]
    assert Counter(found) == Counter(bodies) and "box.lock" not in os.listdir(mail.alias)


def test_a_delivery_over_its_time_leaves_the_mbox_as_it_was(mail: MailHome) -> None:
    mail.qmail(".qmail-info", b"./box\n|exec sleep 1000\n")
    mail.qmail("box.lock", b"0")
    (mail.path / "control/localtimeout").write_text("1\n")
    with LocalDaemon(mail.home) as daemon:
        daemon.ready()
        assert daemon.verdict(1, mail.message(BODY), TO) == (b"Z", b"Timeout on delivery. (#4.3.0)\n")
        assert (mail.alias / "box").read_bytes() == b""
        (mail.alias / "box.lock").unlink()
        assert daemon.verdict(2, mail.message(BODY), TO)[0] == b"Z"
        assert daemon.end() == (0, b"")
    assert len(payloads(mail.alias / "box", HEAD)) == 1


def test_a_full_disk_defers_leaves_nothing_half_and_spares_the_next(mail: MailHome) -> None:
    mail.qmail(".qmail-info", b"./box\n")
    with LocalDaemon(mail.home, file_size=100_000) as daemon:
        daemon.ready()
        assert daemon.verdict(1, mail.message(BODY), TO)[0] == b"K"
        before = (mail.alias / "box").read_bytes()
        big = mail.path / "queue/mess/0/99999"
        with big.open("wb") as file:
            file.truncate(300_000)
        deferral = (b"Z", b"Unable to write ./box: file too large. (#4.3.0)\n")
        assert daemon.verdict(2, b"mess/0/99999", TO) == deferral
        assert (mail.alias / "box").read_bytes() == before
        assert daemon.verdict(3, mail.message(b"y"), TO) == (b"K", b"did 1+0+0\n")
        assert daemon.end() == (0, b"")
    assert len(payloads(mail.alias / "box", HEAD)) == 2
