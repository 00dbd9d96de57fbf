"""queue-local as a process: its pipes, its deliveries to alias/, and what happens when it is killed."""

import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from queue_local.jobs import Jobs
from queue_wire.admin.settings import unpack_in_force
from queue_wire.files.envelope import unpack_todo
from queue_wire.pipes.framing import pack_netstring
from queue_wire.pipes.job import REREAD, Job, pack_job
from queue_wire.pipes.report import Report, SettingsReport
from support.faults.strace import read_trace, strace_command
from support.local.local_daemon import LocalDaemon
from support.local.mailboxes import MailHome, mail_home, new_mail

TO = b"info@host.example"
HEAD = b"Return-Path: <a@b>\nDelivered-To: info@host.example\n"
OK = (b"K", b"did 1+0+0\n")


@pytest.fixture
def mail() -> Iterator[MailHome]:
    with mail_home() as made:
        made.qmail(".qmail-default", b"./Maildir/\n")
        yield made


@pytest.mark.parametrize(
    "data",
    [b"", b"no final newline", b"a\0b\xff\xfe\x80\n", b".\n..\n...\n", os.urandom(1024) * 30_000],
    ids=["empty", "no final newline", "NULs and 8-bit", "dots", "30 MB"],
)
def test_a_message_arrives_byte_for_byte(mail: MailHome, data: bytes) -> None:
    maildir = mail.maildir()
    with LocalDaemon(mail.home) as daemon:
        assert daemon.ready() == 100
        assert daemon.verdict(1, mail.message(data), TO) == OK
        assert daemon.end() == (0, b"")
    arrived = new_mail(maildir)
    assert len(arrived) == 1 and arrived[0] == HEAD + data
    assert list((maildir / "tmp").iterdir()) == []


def test_a_list_of_several_megabytes_is_forwarded_whole(mail: MailHome) -> None:
    recipients = [b"member-%d@a-rather-long-name-of-a-host.example.net" % number for number in range(100_000)]
    mail.qmail(".qmail-info", b"")
    (mail.alias / ".qmail-info").write_bytes(b"".join(b"&%s\n" % recipient for recipient in recipients))
    with LocalDaemon(mail.home) as daemon:
        daemon.ready()
        letter, text = daemon.verdict(1, mail.message(b"x"), TO)
        assert letter == b"K" and text.startswith(b"did 0+100000+0\n")
        assert daemon.end() == (0, b"")
    (path,) = Path(mail.home.queue, "todo").glob("*/*")
    assert unpack_todo(path.read_bytes()).recipients == recipients


def test_an_address_that_alias_does_not_know_is_a_permanent_failure(mail: MailHome) -> None:
    (mail.alias / ".qmail-default").unlink()
    with LocalDaemon(mail.home) as daemon:
        daemon.ready()
        verdict = daemon.verdict(1, mail.message(b"x"), b"nobody-at-all@host.example")
    assert verdict == (b"D", b"Sorry, no mailbox here by that name. (#5.1.1)\n")


def test_a_verp_sender_is_that_of_the_recipient(mail: MailHome) -> None:
    maildir = mail.maildir()
    with LocalDaemon(mail.home) as daemon:
        daemon.ready()
        assert daemon.verdict(1, mail.message(b""), TO, b"owner-@list.example-@[]") == OK
    assert new_mail(maildir)[0].startswith(b"Return-Path: <owner-info=host.example@list.example>\n")


def test_a_default_delivery_counts_at_once_and_stays_while_another_file_is_wrong(mail: MailHome) -> None:
    mail.maildir()
    other = mail.maildir("other")
    mail.qmail(".qmail-info", b"")
    with LocalDaemon(mail.home) as daemon:
        daemon.ready()
        assert daemon.verdict(1, mail.message(b"x"), TO) == OK
        (mail.path / "control/defaultdelivery").write_bytes(b"./other/\n")
        assert daemon.verdict(2, mail.message(b"y"), TO) == OK
        (mail.path / "control/timeoutlocal").write_bytes(b"soon\n")
        assert daemon.verdict(3, mail.message(b"z"), TO) == OK
    assert sorted(new_mail(other)) == [HEAD + b"y", HEAD + b"z"]


def test_it_says_what_is_in_force_and_why_a_file_was_refused(mail: MailHome) -> None:
    limit = mail.path / "control/localtimeout"
    limit.write_bytes(b"60\n")
    with LocalDaemon(mail.home) as daemon:
        daemon.ready()
        for text, value, why in (b"60\n", "60", ""), (b"soon\n", "60", "unable to parse"), (b"70\n", "70", ""):
            limit.write_bytes(text)
            daemon.write(pack_netstring(REREAD))
            answer = daemon.next()
            assert isinstance(answer, SettingsReport)
            found = unpack_in_force(answer.lines)
            assert {name: shown for name, _, shown in found.files}["localtimeout"] == value
            assert found.error.startswith(why) and bool(found.error) == bool(why)


def test_an_order_to_reread_is_read_also_while_there_is_no_room_for_a_job() -> None:
    reader, writer = os.pipe()
    jobs = Jobs(reader)
    job = pack_job(Job(1, b"mess/1/2", b"a@b", b"c@d", [b"c@d"]))
    os.write(writer, pack_netstring(REREAD) + job + pack_netstring(REREAD))
    jobs.run({reader}, room=False)
    assert jobs.rereads == 2
    # With a job that waits, the pipe is left alone, and ready only when its other end is closed.
    jobs.run({reader}, room=False)
    assert jobs.ended and jobs.open
    found = jobs.next()
    assert found is not None and found.number == 1 and jobs.next() is None
    os.close(writer)
    jobs.run({reader}, room=True)
    assert not jobs.open
    os.close(reader)


@pytest.mark.parametrize(
    ("name", "text"), [("localtimeout", "soon\n"), ("timeoutlocal", "soon\n"), ("locallimits", "files many\n")]
)
def test_a_control_file_that_is_wrong_defers_with_one_alert(mail: MailHome, name: str, text: str) -> None:
    mail.maildir()
    path = mail.path / "control" / name
    path.write_text(text)
    with LocalDaemon(mail.home) as daemon:
        daemon.ready()
        for number in range(3):
            letter, why = daemon.verdict(number, mail.message(b"x"), TO)
            assert letter == b"Z" and b"nable to parse" in why and name.encode() in why, why
        path.unlink()
        assert daemon.verdict(3, mail.message(b"x"), TO) == OK
        code, errors = daemon.end()
    assert code == 0 and errors.count(b"\n") == 1
    assert errors.startswith(f"queue-local: alert: unable to parse {path} ".encode()), errors
    assert errors.endswith(b"; local mail is deferred until it is mended\n"), errors


@pytest.mark.parametrize(
    ("recipient", "verdict"),
    [
        (b"postmaster", (b"D", b"Sorry, address must include host name. (#5.1.3)\n")),
        (b"@host.example", (b"K", b"did 0+0+0\n")),
        (b"", (b"D", b"Sorry, address must include host name. (#5.1.3)\n")),
    ],
)
def test_an_address_without_a_host_or_without_anybody(
    mail: MailHome, recipient: bytes, verdict: tuple[bytes, bytes]
) -> None:
    maildir = mail.maildir()
    with LocalDaemon(mail.home) as daemon:
        daemon.ready()
        assert daemon.verdict(1, mail.message(b"x"), recipient) == verdict
    assert new_mail(maildir) == []


def test_a_message_that_is_not_there_or_not_a_file_defers(mail: MailHome) -> None:
    os.mkfifo(mail.path / "queue/mess/3/3")
    (mail.path / "queue/mess/4/4").symlink_to("/etc/passwd")
    with LocalDaemon(mail.home) as daemon:
        daemon.ready()
        verdicts = [daemon.verdict(number, b"mess/%d/%d" % (number, number), TO) for number in (2, 3, 4)]
    assert [letter for letter, _ in verdicts] == [b"Z"] * 3
    assert b"no such file" in verdicts[0][1] and b"not a regular file" in verdicts[1][1]


def test_bad_jobs_are_logged_and_the_next_one_is_delivered(mail: MailHome) -> None:
    maildir = mail.maildir()
    two = Job(3, b"mess/1/1", b"", TO, [TO, TO])
    with LocalDaemon(mail.home) as daemon:
        daemon.ready()
        for payload in (b"", b"what?", b"1\0../../etc/passwd\0\0x@y\0x@y", b"x\0mess/1/1\0\0x@y\0x@y"):
            daemon.write(pack_netstring(payload))
        daemon.write(pack_job(two))
        assert [len(report.verdicts) for report in (daemon.report(), daemon.report())] == [1, 2]
        assert daemon.verdict(4, mail.message(b"x"), TO) == OK
        code, stderr = daemon.end()
    assert code == 0
    assert stderr.count(b"queue-local: alert: unable to understand a job: ") == 5
    assert new_mail(maildir) == [HEAD + b"x"]


@pytest.mark.parametrize("noise", [b"GET / HTTP/1.0\r\n", b"3:abcd", b"0000000000", b"99999999:", b"\0"])
def test_lost_framing_ends_it_with_111_after_the_deliveries_in_flight(mail: MailHome, noise: bytes) -> None:
    maildir = mail.maildir()
    with LocalDaemon(mail.home) as daemon:
        daemon.ready()
        daemon.send(1, mail.message(b"in flight"), TO, b"a@b")
        daemon.write(noise)
        assert daemon.report() == Report(1, b"m", [OK])
        code, stderr = daemon.wait()
    assert code == 111 and b"queue-local: alert: unable to read jobs: " in stderr
    assert new_mail(maildir) == [HEAD + b"in flight"]


def test_jobs_over_the_limit_wait_their_turn(mail: MailHome) -> None:
    maildir = mail.maildir()
    message = mail.message(b"many\n" * 1000)
    with LocalDaemon(mail.home) as daemon:
        assert daemon.ready() == 100
        daemon.write(b"".join(pack_job(Job(number, message, b"a@b", TO, [TO])) for number in range(300)))
        reports = [daemon.report() for _ in range(300)]
        assert daemon.end() == (0, b"")
    assert {report.number for report in reports} == set(range(300))
    assert {report.verdicts[0] for report in reports} == {OK}
    assert Counter(new_mail(maildir)) == {HEAD + b"many\n" * 1000: 300}


def test_two_hundred_deliveries_run_at_once_where_concurrencylocal_says_so(mail: MailHome) -> None:
    maildir = mail.maildir()
    (mail.path / "control/concurrencylocal").write_text("200\n")
    messages = [mail.message(b"message %d" % number) for number in range(200)]
    with LocalDaemon(mail.home) as daemon:
        assert daemon.ready() == 200
        daemon.write(b"".join(pack_job(Job(n, name, b"a@b", TO, [TO])) for n, name in enumerate(messages)))
        assert {daemon.report().verdicts[0] for _ in messages} == {OK}
    assert Counter(new_mail(maildir)) == {HEAD + b"message %d" % number: 1 for number in range(200)}


def test_deliveries_in_flight_are_finished_and_reported_after_the_end_of_the_jobs(mail: MailHome) -> None:
    maildir = mail.maildir()
    with LocalDaemon(mail.home) as daemon:
        daemon.ready()
        daemon.send(1, mail.message(b"x" * 20_000_000), TO)
        daemon.stdin.close()
        assert daemon.report() == Report(1, b"m", [OK])
        assert daemon.wait() == (0, b"")
    assert len(new_mail(maildir)) == 1


def test_nobody_left_to_hear_the_reports_ends_it_after_the_deliveries(mail: MailHome) -> None:
    maildir = mail.maildir()
    with LocalDaemon(mail.home) as daemon:
        daemon.ready()
        daemon.send(1, mail.message(b"x" * 20_000_000), TO)
        daemon.stdout.close()
        assert daemon.wait() == (0, b"")
    assert len(new_mail(maildir)) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signals_for_the_whole_group_change_nothing(mail: MailHome, number: signal.Signals) -> None:
    mail.maildir()
    with LocalDaemon(mail.home) as daemon:
        daemon.ready()
        daemon.send(1, mail.message(b"x" * 5_000_000), TO)
        os.killpg(daemon.process.pid, number)
        assert daemon.report() == Report(1, b"m", [OK])
        assert daemon.verdict(2, mail.message(b"x"), TO) == OK
        assert daemon.end() == (0, b"")


@pytest.mark.parametrize("after", [0, 1, 7, 20])
@pytest.mark.parametrize("children", [False, True], ids=["alone", "with its deliveries"])
def test_kill_9_leaves_only_whole_messages_in_new(mail: MailHome, after: int, children: bool) -> None:
    maildir = mail.maildir()
    bodies = {HEAD + bytes([number]) * 1_000_000 for number in range(40)}
    with LocalDaemon(mail.home) as daemon:
        daemon.ready()
        for number in range(40):
            daemon.send(number, mail.message(bytes([number]) * 1_000_000), TO, b"a@b")
        reported = [daemon.report() for _ in range(after)]
        (os.killpg if children else os.kill)(daemon.process.pid, signal.SIGKILL)
        assert daemon.wait()[0] == -signal.SIGKILL
    arrived = Counter(new_mail(maildir))
    assert set(arrived) <= bodies and set(arrived.values()) <= {1}
    assert all(arrived[HEAD + bytes([report.number]) * 1_000_000] == 1 for report in reported)


def test_a_full_disk_defers_leaves_nothing_and_spares_the_next(mail: MailHome) -> None:
    maildir = mail.maildir()
    with LocalDaemon(mail.home, file_size=100_000) as daemon:
        daemon.ready()
        letter, text = daemon.verdict(1, mail.message(b"x" * 10_000), TO)
        assert letter == b"K"
        big = mail.path / "queue/mess/0/99999"
        with big.open("wb") as file:
            file.truncate(300_000)
        letter, text = daemon.verdict(2, b"mess/0/99999", TO)
        assert (letter, text) == (b"Z", b"Temporary error on maildir delivery: ./Maildir/: file too large. (#4.3.0)\n")
        assert daemon.verdict(3, mail.message(b"y"), TO) == OK
    assert len(new_mail(maildir)) == 2 and list((maildir / "tmp").iterdir()) == []


def test_the_file_is_synced_before_it_gets_its_name_and_the_directory_after(mail: MailHome, tmp_path: Path) -> None:
    mail.maildir()
    with LocalDaemon(mail.home, wrapper=tuple(strace_command(tmp_path / "trace", []))) as daemon:
        daemon.ready()
        assert daemon.verdict(1, mail.message(b"x" * 400_000), TO) == OK
        assert daemon.end()[0] == 0
    steps = []
    for call in read_trace(tmp_path / "trace"):
        if call.began:
            pass  # It comes once more when it has ended.
        elif call.name in ("write", "fsync") and "Maildir" in call.descriptor(0)[1]:
            steps.append((call.name, call.descriptor(0)[1].split("/Maildir/")[1].split("/")[0]))
        elif call.name in ("link", "linkat", "rename", "unlink"):
            steps.append((call.name, call.path(-2 if call.name == "linkat" else -1).split("/")[2]))
        elif call.name == "write" and b"did 1+0+0" in call.data(1):
            steps.append(("report", ""))
    writes = [step for step in steps if step == ("write", "tmp")]
    order = [step for step in steps if step != ("write", "tmp")]
    assert len(writes) >= 2 and steps[: len(writes)] == writes
    assert order[0] == ("fsync", "tmp") and order[1][0] in ("link", "linkat") and order[1][1] == "new"
    assert order[2:4] == [("fsync", "new"), ("unlink", "tmp")]
    assert order[4] == ("report", "")


def test_a_wrong_command_line_is_refused(mail: MailHome, capfd: pytest.CaptureFixture[str]) -> None:
    from queue_local.main import main

    assert main(["queue-local", "--home", mail.home.path, "extra"]) == 100
    assert capfd.readouterr().err.startswith("queue-local: fatal: extra is not an option; usage: ")
