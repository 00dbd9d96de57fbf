"""queue-local with programs and forwards in .qmail files: many at once, hanging ones, and what is in the reports."""

import os
from pathlib import Path

import psutil
import pytest

from queue_wire.pipes.job import Job, pack_job
from support.faults.strace import read_trace, strace_command
from support.inject.injectors import queued
from support.local.local_daemon import LocalDaemon
from support.local.mailboxes import UID, MailHome, new_mail
from support.processes.programs import Stopwatch, pid_in, wait_for_end
from support.processes.suite import wait_until

TO = b"info@host.example"
# A delivery that waits for nobody is done long before.
SOON = 30.0


pytestmark = pytest.mark.home(concurrencylocal="200")


def jobs(name: bytes, count: int, message: bytes) -> bytes:
    """Return that many jobs to addresses of their own, NAME-N@host.example, numbered from 1."""
    recipients = [b"%s-%d@host.example" % (name, number) for number in range(1, count + 1)]
    made = [Job(number, message, b"a@b", each, [each]) for number, each in enumerate(recipients, 1)]
    return b"".join([pack_job(job) for job in made])


def processes(daemon: LocalDaemon) -> list[psutil.Process]:
    """Return every process below the daemon."""
    return list(psutil.Process(daemon.process.pid).children(recursive=True))


def kill_all(daemon: LocalDaemon) -> None:
    """Kill what the daemon has started, the deliveries first."""
    for process in processes(daemon):
        try:
            process.kill()
        except psutil.NoSuchProcess:
            pass


def test_a_hundred_hanging_programs_do_not_delay_a_maildir(mail: MailHome) -> None:
    maildir = mail.maildir()
    mail.qmail(".qmail-hang-default", b"|exec sleep 1000\n")
    mail.qmail(".qmail-info", b"./Maildir/\n")
    message = mail.message(b"x")
    with LocalDaemon(mail.home) as daemon:
        assert daemon.ready() == 200
        daemon.write(jobs(b"hang", 100, message))
        # The deliveries, their programs, the forwarder and the recipient checker.
        wait_until(lambda: len(processes(daemon)) >= 202, why="a hundred programs")
        watch = Stopwatch()
        for number in range(200, 220):
            assert daemon.verdict(number, message, TO) == (b"K", b"did 1+0+0\n")
        assert watch.seconds < SOON
        kill_all(daemon)
        reports = [daemon.report() for _ in range(100)]
    assert {report.verdicts[0][0] for report in reports} == {b"Z"} and len(new_mail(maildir)) == 20


def test_thirty_programs_run_at_once(mail: MailHome) -> None:
    # Each ends only when all have started.
    wait = b"|echo >>started; while test `wc -l <started` -lt 30; do sleep 0.05; done; echo $EXT2\n"
    mail.qmail(".qmail-meet-default", wait)
    with LocalDaemon(mail.home) as daemon:
        daemon.ready()
        daemon.write(jobs(b"meet", 30, mail.message(b"x")))
        reports = [daemon.report() for _ in range(30)]
    assert {report.number: report.verdicts[0] for report in reports} == {
        number: (b"K", b"%d\ndid 0+0+1\n" % number) for number in range(1, 31)
    }


def test_a_hanging_program_is_deferred_at_localtimeout_and_gone_then(mail: MailHome) -> None:
    mail.qmail(".qmail-info", b"|trap '' TERM; echo $$ >pid; sleep 1000; sleep 1000\n")
    (mail.path / "control/timeoutlocal").write_text("1000\n")
    (mail.path / "control/localtimeout").write_text("1\n")
    watch = Stopwatch()
    with LocalDaemon(mail.home) as daemon:
        daemon.ready()
        letter, text = daemon.verdict(1, mail.message(b"x"), TO)
    assert letter == b"Z" and watch.seconds < SOON
    assert text == b"Timeout on delivery: killed trap '' TERM; echo $$ >pid; sleep 1000; sleep 1000. (#4.3.0)\n"
    wait_for_end(int((mail.alias / "pid").read_text()))


def test_a_hanging_program_ends_at_its_time_even_if_queue_local_is_gone(mail: MailHome) -> None:
    mail.qmail(".qmail-info", b"|trap '' TERM; echo $$ >pid; while :; do sleep 0.1; done\n")
    (mail.path / "control/localtimeout").write_text("1\n")
    with LocalDaemon(mail.home) as daemon:
        daemon.ready()
        daemon.send(1, mail.message(b"x"), TO)
        pid = pid_in(mail.alias / "pid")
        daemon.process.kill()
        wait_for_end(pid)


def test_programs_run_as_the_user_with_the_message_and_a_clean_environment(mail: MailHome) -> None:
    mail.qmail(".qmail-info", b"|id -u; pwd; umask; echo $SENDER $LOCAL $HOST; cat\n")
    with LocalDaemon(mail.home) as daemon:
        daemon.ready()
        letter, text = daemon.verdict(1, mail.message(b"the message\n"), TO, b"a@b")
    assert (letter, text) == (
        b"K",
        b"%d\n%s\n0077\na@b info host.example\nthe message\ndid 0+0+1\n" % (UID, os.fsencode(mail.alias)),
    )


@pytest.mark.parametrize(("code", "letter"), [(0, b"K"), (99, b"K"), (100, b"D"), (65, b"D"), (111, b"Z"), (1, b"Z")])
def test_a_program_s_exit_code_decides(mail: MailHome, code: int, letter: bytes) -> None:
    mail.qmail(".qmail-info", b"|printf 'sorry\\0\\033 Gr\\374\\303\\237e\\n'; exit %d\n" % code)
    with LocalDaemon(mail.home) as daemon:
        daemon.ready()
        verdict = daemon.verdict(1, mail.message(b"x"), TO)
    assert verdict == (letter, b"sorry__ Gr?\xc3\x9fe\n" + (b"did 0+0+1\n" if letter == b"K" else b""))


def test_a_forward_is_in_the_queue_before_its_report_with_what_programs_said(mail: MailHome) -> None:
    mail.qmail(".qmail-info", b"&one@far.example\n|echo said\ntwo\n./Maildir/\n")
    mail.maildir()
    with LocalDaemon(mail.home) as daemon:
        daemon.ready()
        path = mail.message(b"Subject: x\n\nbody\n")
        letter, text = daemon.verdict(1, path, TO, b"a@b")
        (mail.path / "queue" / path.decode()).unlink()
        (made,) = queued(mail.home)
    assert made.message == b"Delivered-To: info@host.example\nSubject: x\n\nbody\n"
    envelope = made.envelope
    assert (envelope.uid, envelope.sender, envelope.recipients) == (UID, b"a@b", [b"one@far.example", b"two"])
    assert letter == b"K" and text.startswith(b"said\ndid 1+2+1\nqp %d\nid %d-" % (envelope.pid, made.number))
    assert b" invoked by uid %d)" % UID in made.received


def test_a_forward_is_synced_before_anybody_hears_of_it(mail: MailHome, tmp_path: Path) -> None:
    mail.qmail(".qmail-info", b"&one@far.example\n")
    with LocalDaemon(mail.home, wrapper=tuple(strace_command(tmp_path / "trace", []))) as daemon:
        daemon.ready()
        assert daemon.verdict(1, mail.message(b"Subject: x\n\nbody\n"), TO)[0] == b"K"
        assert daemon.end()[0] == 0
    steps = []
    for call in read_trace(tmp_path / "trace"):
        if call.name in ("fsync", "syncfs") and not call.began:
            steps.append("sync " + Path(call.descriptor(0)[1]).relative_to(mail.path / "queue").parts[0])
        elif call.name in ("link", "linkat") and not call.began:
            where = Path(call.path(-2 if call.name == "linkat" else -1))
            steps += ["link todo"] * (where.parts[-3] == "todo")
        elif call.name == "write" and b"did 0+1+0\nqp " in call.data(1):
            # Once, from when it began, where strace shows it in two pieces.
            steps += ["report"] * (steps[-1:] != ["report"])
    # The text and the envelope by descriptors that were opened in pid/ and intd/, before they had names.
    assert steps == ["sync pid", "sync intd", "sync mess", "link todo", "sync todo", "report"]


def test_a_line_that_fails_makes_no_forward(mail: MailHome) -> None:
    mail.qmail(".qmail-info", b"&one@far.example\n|exit 100\n")
    with LocalDaemon(mail.home) as daemon:
        daemon.ready()
        path = mail.message(b"x")
        assert daemon.verdict(1, path, TO)[0] == b"D"
        (mail.path / "queue" / path.decode()).unlink()
    assert queued(mail.home) == []


def test_a_killed_queue_local_leaves_no_forwarder_and_no_recipient_checker(mail: MailHome) -> None:
    with LocalDaemon(mail.home) as daemon:
        daemon.ready()
        forwarder, checker = processes(daemon)
        daemon.process.kill()
        wait_for_end(forwarder.pid)
        wait_for_end(checker.pid)


def test_memory_stays_flat_over_many_programs(mail: MailHome) -> None:
    mail.qmail(".qmail-talk-default", b"|head -c 100000 /dev/zero\n")
    message = mail.message(b"x")
    with LocalDaemon(mail.home) as daemon:
        daemon.ready()

        def round_of(count: int) -> int:
            daemon.write(jobs(b"talk", count, message))
            assert {daemon.report().verdicts[0][0] for _ in range(count)} == {b"K"}
            return int(psutil.Process(daemon.process.pid).memory_info().rss)

        first = round_of(100)
        assert round_of(400) - first < 2_000_000
        assert not [name for name in os.listdir(f"/proc/{daemon.process.pid}/fd") if int(name) > 12]
