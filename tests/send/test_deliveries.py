"""queue-send with scripted peers: jobs, log lines, marks and retries of ordinary deliveries."""

import os
import signal
import time
from pathlib import Path

from queue_base.home import Home
from queue_base.queue.layout import open_layout
from queue_wire.pipes.job import Job
from queue_wire.pipes.report import PartialReport, pack_partial_report
from support.processes.suite import wait_until
from support.queues.queued import classified_message
from support.send.scripted_send import ScriptedSend


def recipients_file(home: Home, kind: str, message: int) -> Path:
    return Path(open_layout(home.queue).hashed(kind, message))


def test_a_delivered_message_has_the_log_lines_of_qmail_to_the_letter(home: Home) -> None:
    with ScriptedSend(home) as send:
        message = classified_message(home, remote=[b"b@example.net"])
        send.todo.log(b"new msg %d" % message)
        send.todo.log(b"info msg %d: bytes 42 from <a@example.org> qp 8 uid 7" % message)
        send.todo.classified(message, "R")
        job = send.remote.job()
        assert job == Job(
            1, b"mess/%d/%d" % (message % 3, message), b"a@example.org", b"example.net", [b"b@example.net"]
        )
        send.wait_for(r"status: local 0/10 remote 1/250")
        send.remote.report(job, b"K192.0.2.1 accepted message.\nRemote host said: 250 100% ok\n")
        assert send.clean.removed() == message
        send.signal(signal.SIGTERM)
        assert send.wait() == 0
        assert send.lines == [
            "status: local 0/10 remote 0/250",
            f"new msg {message}",
            f"info msg {message}: bytes 42 from <a@example.org> qp 8 uid 7",
            f"starting delivery 1: msg {message} to remote b@example.net",
            "status: local 0/10 remote 1/250",
            "delivery 1: success: 192.0.2.1_accepted_message./Remote_host_said:_250_100__ok/",
            f"end msg {message}",
            "status: local 0/10 remote 0/250",
            "status: local 0/10 remote 0/250 exitasap",
            "status: exiting",
        ]


def test_delivery_numbers_count_recipients_from_one_over_both_channels(home: Home) -> None:
    message = classified_message(
        home, local=[b"x@me.example.org", b"y@me.example.org"], remote=[b"b@c", b"d@c", b"e@f"]
    )
    with ScriptedSend(home, ready=False) as send:
        send.remote.ready()
        first, second = send.remote.job(), send.remote.job()
        assert (first.number, first.nexthop, first.recipients) == (1, b"c", [b"b@c", b"d@c"])
        assert (second.number, second.nexthop, second.recipients) == (3, b"f", [b"e@f"])
        send.local.ready()
        third, fourth = send.local.job(), send.local.job()
        assert (third.number, third.nexthop, third.recipients) == (4, b"x@me.example.org", [b"x@me.example.org"])
        assert (fourth.number, fourth.recipients) == (5, [b"y@me.example.org"])
        send.wait_for(r"status: local 2/10 remote 3/250")
        assert send.found(r"starting delivery .*") == [
            f"starting delivery 1: msg {message} to remote b@c",
            f"starting delivery 2: msg {message} to remote d@c",
            f"starting delivery 3: msg {message} to remote e@f",
            f"starting delivery 4: msg {message} to local x@me.example.org",
            f"starting delivery 5: msg {message} to local y@me.example.org",
        ]


def test_each_recipient_of_a_job_has_its_own_verdict(home: Home) -> None:
    message = classified_message(home, remote=[b"b@c", b"d@c", b"e@c"])
    with ScriptedSend(home) as send:
        job = send.remote.job()
        send.remote.report(job, b"Kok", b"Zlater\n", b"Dnever\n")
        send.wait_for(r"delivery 3: failure: never/")
        assert send.found(r"delivery 1: .*") == ["delivery 1: success: ok"]
        assert send.found(r"delivery 2: .*") == ["delivery 2: deferral: later/"]
        marked = recipients_file(home, "remote", message)
        wait_until(lambda: marked.read_bytes() == b"Db@c\0Td@c\0De@c\0", why="the marks")
        assert Path(home.queue, "bounce", str(message)).read_bytes() == b"<e@c>:\nnever\n\n"
        assert not send.found(r"(bounce|end) msg .*")


def test_a_mark_is_at_the_offset_of_its_recipient(home: Home) -> None:
    addresses = [b"T@c", b"", b"D@f", b"a" * 1002, b"x\n@y"]
    message = classified_message(home, local=addresses)
    with ScriptedSend(home) as send:
        jobs = [send.local.job() for _ in addresses]
        assert [job.recipients for job in jobs] == [[address] for address in addresses]
        path = recipients_file(home, "local", message)
        for number in (3, 0, 4):
            send.local.report(jobs[number], b"Kok")
        send.wait_for(r"delivery \d+: success: ok", times=3)
        marks = b"".join(
            (b"D" if number in (0, 3, 4) else b"T") + address + b"\0" for number, address in enumerate(addresses)
        )
        wait_until(lambda: path.read_bytes() == marks, why="the marks, which come after the lines")


def test_recipients_that_are_done_are_not_tried_again_after_a_restart(home: Home) -> None:
    message = classified_message(home, remote=[b"b@c", b"d@c", b"e@c"])
    path = recipients_file(home, "remote", message)
    path.write_bytes(b"Db@c\0Td@c\0De@c\0")
    with ScriptedSend(home) as send:
        job = send.remote.job()
        assert job.recipients == [b"d@c"]
        send.remote.report(job, b"Kok")
        assert send.clean.removed() == message
        assert not path.exists()


def test_a_report_with_the_wrong_number_of_verdicts_is_mangled_and_deferred(home: Home) -> None:
    message = classified_message(home, remote=[b"b@c", b"d@c"])
    with ScriptedSend(home) as send:
        job = send.remote.job()
        send.remote.report(job, b"Kok")
        send.wait_for(r"delivery 1: report mangled, will defer")
        send.wait_for(r"delivery 2: report mangled, will defer")
        send.fence()
        path = recipients_file(home, "remote", message)
        assert path.read_bytes() == b"Tb@c\0Td@c\0"
        assert path.stat().st_mtime > time.time()


def test_an_unknown_letter_is_mangled_for_its_recipient_only(home: Home) -> None:
    message = classified_message(home, remote=[b"b@c", b"d@c"])
    with ScriptedSend(home) as send:
        send.remote.report(send.remote.job(), b"?what", b"Kok")
        send.wait_for(r"delivery 2: success: ok")
        assert send.found(r"delivery 1: report mangled, will defer")
        send.fence()
        assert recipients_file(home, "remote", message).read_bytes() == b"Tb@c\0Dd@c\0"


def test_one_job_takes_no_more_recipients_than_destinationrecipients(home: Home) -> None:
    Path(home.control, "destinationrecipients").write_text("3\n")
    Path(home.control, "destinationinitial").write_text("3\n")
    classified_message(home, remote=[b"%d@Big.example" % number for number in range(7)] + [b"x@small.example"])
    with ScriptedSend(home) as send:
        jobs = [send.remote.job() for _ in range(4)]
        assert sorted((job.nexthop, len(job.recipients)) for job in jobs) == [
            (b"big.example", 1),
            (b"big.example", 3),
            (b"big.example", 3),
            (b"small.example", 1),
        ]
        # Destinations take turns.
        assert [(job.number, job.nexthop) for job in jobs[:2]] == [(1, b"big.example"), (4, b"small.example")]


def test_no_more_deliveries_fly_than_the_concurrency_allows(home: Home) -> None:
    Path(home.control, "concurrencyremote").write_text("2\n")
    for number in range(4):
        classified_message(home, remote=[b"%d@c" % number])
    with ScriptedSend(home) as send:
        first = send.remote.job()
        send.remote.job()
        send.fence()
        assert send.remote.silent
        send.wait_for(r"status: local 0/10 remote 2/2")
        send.remote.report(first, b"Kok")
        send.remote.job()
        send.fence()
        assert send.remote.silent


def test_no_more_jobs_are_out_than_the_daemon_said_it_takes(home: Home) -> None:
    for number in range(3):
        classified_message(home, remote=[b"%d@c" % number])
    with ScriptedSend(home, ready=False) as send:
        send.fence()
        assert send.remote.silent
        send.remote.ready(1)
        job = send.remote.job()
        send.fence()
        assert send.remote.silent
        send.remote.report(job, b"Kok")
        send.remote.job()


def test_a_verp_sender_makes_one_job_a_recipient_each_with_its_own_sender(home: Home) -> None:
    classified_message(home, remote=[b"b@c", b"d@c"], sender=b"list-@lists.example-@[]")
    with ScriptedSend(home) as send:
        first, second = send.remote.job(), send.remote.job()
        assert (first.sender, first.recipients) == (b"list-b=c@lists.example", [b"b@c"])
        assert (second.sender, second.recipients) == (b"list-d=c@lists.example", [b"d@c"])


def test_a_message_without_recipients_ends_at_once(home: Home) -> None:
    with ScriptedSend(home) as send:
        message = classified_message(home)
        send.todo.classified(message, "X")
        assert send.clean.removed() == message
        send.wait_for(f"end msg {message}")


def test_a_disk_that_refuses_the_mark_is_a_warning_and_mail_goes_on(home: Home) -> None:
    message = classified_message(home, remote=[b"b@c", b"d@e"])
    with ScriptedSend(home) as send:
        first, second = send.remote.job(), send.remote.job()
        path = recipients_file(home, "remote", message)
        path.rename(path.with_name("away"))
        send.remote.report(first, b"Kok")
        assert str(path) in send.wait_for(r"warning: trouble marking .*; message will be delivered twice!")
        os.rename(path.with_name("away"), path)
        send.remote.report(second, b"Kok")
        assert send.clean.removed() == message


def test_who_has_the_message_of_a_job_that_goes_on_is_logged_and_marked_once(home: Home) -> None:
    with ScriptedSend(home) as send:
        message = classified_message(home, remote=[b"b@x.example", b"d@x.example", b"f@x.example"])
        send.todo.classified(message, "R")
        job = send.remote.job()
        send.remote.send(pack_partial_report(PartialReport(job.number, [(b"", b""), (b"K", b"taken\n"), (b"", b"")])))
        send.wait_for(r"delivery 2: success: taken/")
        wait_until(lambda: marks(home, message) == b"TDT", why="the mark")
        # What it has said twice, or about others, counts once, or not at all.
        send.remote.send(pack_partial_report(PartialReport(job.number, [(b"", b""), (b"K", b"taken\n"), (b"", b"")])))
        send.remote.send(pack_partial_report(PartialReport(job.number, [(b"K", b"taken\n")])))
        send.remote.send(pack_partial_report(PartialReport(99, [(b"K", b"taken\n")])))
        send.remote.report(job, b"Dno such user\n", b"Ktaken\n", b"Zlater\n")
        send.wait_for(r"delivery 3: deferral: later/")
        send.fence()
        assert send.lines.count("delivery 2: success: taken/") == 1
        assert [line for line in send.lines if line.startswith("delivery ")][1:] == [
            "delivery 1: failure: no_such_user/",
            "delivery 3: deferral: later/",
        ]
        assert not [line for line in send.lines if "warning" in line]
        wait_until(lambda: marks(home, message) == b"DDT", why="the other mark")
        send.wait_for(r"status: local 0/10 remote 0/250", times=2)


def test_after_a_kill_only_those_are_tried_who_have_no_message(home: Home) -> None:
    message = classified_message(home, remote=[b"b@x.example", b"d@x.example", b"f@x.example"])
    with ScriptedSend(home) as send:
        job = send.remote.job()
        taken = [(b"K", b"taken\n"), (b"", b""), (b"K", b"taken\n")]
        send.remote.send(pack_partial_report(PartialReport(job.number, taken)))
        wait_until(lambda: marks(home, message) == b"DTD", why="the marks")
        send.kill()
    with ScriptedSend(home) as send:
        assert send.remote.job().recipients == [b"d@x.example"]


def marks(home: Home, message: int) -> bytes:
    """Return the first byte of each record of a message's remote recipients."""
    return b"".join(record[:1] for record in recipients_file(home, "remote", message).read_bytes().split(b"\0"))
