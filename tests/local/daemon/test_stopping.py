"""TERM, and deliveries that do not end: those that go well are finished, the others are ended and deferred in time."""

import os
import signal
import time

import pytest

from queue_base.home import Home
from queue_wire.control.registry import LOCALSTOPTIMEOUT
from queue_wire.pipes.report import Report
from support.inject.injectors import queued
from support.local.local_daemon import LocalDaemon
from support.local.mailboxes import MailHome, new_mail
from support.processes.programs import Stopwatch, lives, pid_in, wait_for_end
from support.processes.suite import Suite, enqueue, wait_until
from support.queues.queued import classified_message
from support.send.scripted_send import ScriptedSend
from support.site import LOCAL, Site
from support.tools import need

TO = b"info@host.example"
# What a delivery has to end at the most, once it is told to: 3 s for its program, then 10 s for itself.
SOON = 25.0
# Each writes the number of its shell, and does not end by itself.
ENDLESS = {
    "ignores TERM": "trap '' TERM; echo $$ >pid; while :; do sleep 1000; done",
    "is stopped": "echo $$ >pid; kill -STOP $$; sleep 1000",
    "stops the delivery and itself": "echo $$ >pid; kill -STOP $PPID; kill -STOP $$; sleep 1000",
    "has a child that ignores TERM and keeps its output": "(trap '' TERM; sleep 1000) & echo $$ >pid; exec sleep 1000",
}


@pytest.mark.parametrize("command", ENDLESS.values(), ids=ENDLESS)
def test_term_ends_a_delivery_that_does_not_end_and_defers_it(site: Site, command: str) -> None:
    assert LOCALSTOPTIMEOUT.value(None) == 60
    site.control("localstoptimeout", "1\n")
    site.mail.qmail(".qmail-endless", f"|{command}\n".encode())
    with Suite(site.home) as suite:
        assert enqueue(site.home, b"a@b", [f"endless@{LOCAL}".encode()], b"x\n").returncode == 0
        pid = pid_in(site.mail.alias / "pid")
        watch = Stopwatch()
        assert suite.stop() == 0
        assert 1 <= watch.seconds < SOON
        wait_for_end(pid)
        assert suite.count("^delivery 1: deferral: ") == 1 and suite.lines[-1] == "status: exiting"
        assert not suite.count("alert|warning")
    assert site.kinds()["local"] == 1, "the message is not in the queue any more"


def test_term_lets_a_delivery_that_takes_a_while_end_and_its_forward_as_well(site: Site) -> None:
    site.mail.qmail(".qmail-slow", b"|echo $$ >pid; while ! [ -e go ]; do sleep 0.05; done\n&else@far.example\n")
    with Suite(site.home) as suite:
        assert enqueue(site.home, b"a@b", [f"slow@{LOCAL}".encode()], b"x\n").returncode == 0
        pid_in(site.mail.alias / "pid")
        suite.signal(signal.SIGTERM)
        suite.wait_for("^status: local 1/10 .* exitasap")
        (site.mail.alias / "go").touch()
        assert suite.process.wait(60) == 0
        suite.wait_for("^status: exiting")
    assert suite.count(r"^delivery 1: success: did_0\+1\+1/qp_") == 1 and not suite.count("alert|warning")
    assert [each.envelope.recipients for each in queued(site.home)] == [[b"else@far.example"]]


def test_queue_send_closes_the_jobs_of_queue_local_at_term_and_those_of_queue_remote_at_its_end(home: Home) -> None:
    classified_message(home, local=[b"a@me.example.org"], remote=[b"b@c"])
    with ScriptedSend(home) as send:
        here, there = send.local.job(), send.remote.job()
        send.signal(signal.SIGTERM)
        assert send.local.receive() == b""
        assert send.remote.silent
        send.local.report(here, b"Kok")
        # It may end before queue-send does, and is not lost then.
        send.local.die()
        send.fence()
        send.remote.report(there, b"Kok")
        send.clean.removed()
        assert send.wait() == 0
        assert not [line for line in send.lines if "lost" in line]


def test_a_queue_local_that_ends_without_its_reports_is_lost_also_after_term(home: Home) -> None:
    classified_message(home, local=[b"a@me.example.org"])
    with ScriptedSend(home) as send:
        send.local.job()
        send.signal(signal.SIGTERM)
        assert send.local.receive() == b""
        send.local.die()
        assert send.wait() == 111
        assert "alert: oh no! lost queue-local connection! dying..." in send.lines


@pytest.mark.parametrize("jobs", [2, 3])
def test_the_end_of_the_jobs_is_seen_where_there_is_room_for_no_more_as_well(mail: MailHome, jobs: int) -> None:
    (mail.path / "control/localstoptimeout").write_text("1\n")
    mail.qmail(".qmail-info", b"|trap '' TERM; echo $$ >$SENDER; sleep 1000; sleep 1000\n")
    message = mail.message(b"x")
    limit = f"--nofile={32 + 2}"
    with LocalDaemon(mail.home, wrapper=(need("prlimit"), limit)) as daemon:
        assert daemon.ready() == 2
        for number in range(jobs):
            daemon.send(number, message, TO, b"%d" % number)
        pids = [pid_in(mail.alias / str(number)) for number in range(2)]
        watch = Stopwatch()
        daemon.stdin.close()
        reports = {daemon.report().number for _ in range(jobs)}
        assert (reports, daemon.wait()) == (set(range(jobs)), (0, b""))
        assert watch.seconds < SOON
    for pid in pids:
        wait_for_end(pid)


@pytest.mark.parametrize("gone", [False, True], ids=["queue-send waits", "queue-send is gone"])
def test_a_delivery_that_is_told_to_end_leaves_its_files_as_they_were(mail: MailHome, gone: bool) -> None:
    """It waits for a lock, behind a line that has been done: the repetition is qmail's."""
    (mail.path / "control/localstoptimeout").write_text("0\n")
    maildir = mail.maildir()
    mail.qmail(".qmail-info", b"./Maildir/\n./box\n")
    (mail.alias / "box.lock").touch()
    with LocalDaemon(mail.home) as daemon:
        daemon.ready()
        daemon.send(1, mail.message(b"x"), TO)
        wait_until(lambda: (mail.alias / "box").exists(), why="the second line")
        assert new_mail(maildir)
        watch = Stopwatch()
        if gone:
            daemon.stdout.close()
        daemon.stdin.close()
        if not gone:
            assert daemon.report() == Report(1, b"m", [(b"Z", b"Delivery process was told to end. (#4.3.0)\n")])
        assert daemon.wait() == (0, b"")
        assert watch.seconds < SOON
    assert sorted(os.listdir(mail.alias)) == [".qmail-info", "Maildir", "box", "box.lock"]
    assert (mail.alias / "box").read_bytes() == b"" and os.listdir(maildir / "tmp") == []


def test_a_time_that_cannot_be_read_is_the_usual_one_and_said(mail: MailHome) -> None:
    (mail.path / "control/localstoptimeout").write_text("soon\n")
    mail.qmail(".qmail-info", b"|echo $$ >pid; while ! [ -e go ]; do sleep 0.05; done\n")
    with LocalDaemon(mail.home) as daemon:
        daemon.ready()
        daemon.send(1, mail.message(b"x"), TO)
        pid_in(mail.alias / "pid")
        daemon.stdin.close()
        (mail.alias / "go").touch()
        assert daemon.report().verdicts == [(b"K", b"did 0+0+1\n")]
        code, said = daemon.wait()
    assert code == 0 and said.startswith(b"queue-local: warning: unable to parse ")
    why = b"not a number from 0 to 86400: 'soon'; deliveries in flight have 60 s to end\n"
    assert said.endswith(b"/control/localstoptimeout line 1: " + why)


def test_a_second_signal_does_not_break_off_what_a_delivery_cleans_up(mail: MailHome) -> None:
    """The time limit and the end of queue-send may come together."""
    mail.qmail(".qmail-info", b"|trap '' TERM; echo $PPID >pid; sleep 1000; sleep 1000\n./box\n")
    with LocalDaemon(mail.home) as daemon:
        daemon.ready()
        daemon.send(1, mail.message(b"x"), TO)
        pid = pid_in(mail.alias / "pid")
        os.kill(pid, signal.SIGTERM)
        for number in (signal.SIGALRM, signal.SIGTERM) * 5:
            time.sleep(0.05)
            if lives(pid):
                os.kill(pid, number)
        letter, text = daemon.report().verdicts[0]
        assert (letter, text[:40]) == (b"Z", b"Delivery process was told to end: killed")
        assert daemon.end() == (0, b"")
