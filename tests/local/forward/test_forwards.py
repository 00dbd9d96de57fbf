"""Forwards: what the forwarder puts in the queue, many at a time, and what it answers when it cannot."""

import os
from pathlib import Path

import pytest

from queue_base.home import Home
from queue_base.queue.inflow import refuse_mark, slow_mark
from queue_base.queue.layout import open_layout
from queue_local.forwarding import GROUP, Forwarder, ForwardRequest
from queue_local.result import Forward, pack_forward
from queue_wire.address import VERP_SUFFIX
from queue_wire.files.envelope import ADDRESS_MAX
from queue_wire.ids import pack_long_id
from support.inject.injectors import is_empty, queued
from support.local.forwards import DID, HEAD, JOE, ended, finish, forwarding, make, put_message
from support.local.mailboxes import mail_home
from support.processes.programs import Stopwatch, wait_for_end
from support.queues.inflow import TOO_MUCH

BODY = b"Received: before\nSubject: hello\n\nbody without an end"


def remove(home: Home, path: bytes) -> None:
    """Remove the message that was delivered, so that the queue holds the forwards alone."""
    Path(home.queue, path.decode()).unlink()


def test_a_forward_is_a_new_message_of_the_user_s(home: Home) -> None:
    path = put_message(home, BODY)
    with forwarding(home) as forwards:
        letter, text = make(forwards, path, [b"a@b", b"no-host", b""], sender=b"owner-x=y@z")
    remove(home, path)
    (made,) = queued(home)
    assert made.message == HEAD + BODY
    assert made.envelope.uid == JOE and made.envelope.sender == b"owner-x=y@z"
    # An address without a host is queue-todo's business: control/envnoathost.
    assert made.envelope.recipients == [b"a@b", b"no-host", b""]
    assert made.received.startswith(b"Received: (qmail %d invoked by uid %d); " % (made.envelope.pid, JOE))
    birth = os.stat(open_layout(home.queue).mess(made.number)).st_mtime_ns // 1000
    long_id = pack_long_id(made.number, birth).encode()
    assert (letter, text) == (b"K", DID + b"qp %d\nid %s\n" % (made.envelope.pid, long_id))


def test_a_sender_that_differs_by_recipient_stays_so(home: Home) -> None:
    path = put_message(home, BODY)
    with forwarding(home) as forwards:
        make(forwards, path, [b"a@b"], sender=b"list-@host" + VERP_SUFFIX)
    remove(home, path)
    assert [each.envelope.sender for each in queued(home)] == [b"list-@host-@[]"]


def test_a_forward_to_thousands_is_one_message(home: Home) -> None:
    path = put_message(home, BODY)
    recipients = [b"reader-%d@somewhere.example" % number for number in range(30_000)]
    with forwarding(home) as forwards:
        assert make(forwards, path, recipients)[0] == b"K"
    remove(home, path)
    assert [each.envelope.recipients for each in queued(home)] == [recipients]


def test_a_large_message_is_forwarded_whole(home: Home) -> None:
    data = os.urandom(1000) * 30_000
    path = put_message(home, data)
    with forwarding(home) as forwards:
        assert make(forwards, path, [b"a@b"])[0] == b"K"
    remove(home, path)
    assert [each.message == HEAD + data for each in queued(home)] == [True]


def test_a_forward_that_cannot_be_understood_is_deferred_and_the_others_are_made(home: Home) -> None:
    path = put_message(home, BODY)
    good = pack_forward(Forward(JOE, b"", HEAD, [b"a@b"]))
    answers = Forwarder(home).answer([ForwardRequest(1, path, b"x\0\0\0y"), ForwardRequest(2, path, good)])
    assert {answer.number: answer.letter for answer in answers} == {1: b"Z", 2: b"K"}


def test_forwards_that_come_together_share_their_syncs(home: Home) -> None:
    path = put_message(home, BODY)
    forwarder = Forwarder(home)
    requests = [ForwardRequest(n, path, pack_forward(Forward(JOE, b"", HEAD, [b"%d@b" % n]))) for n in range(GROUP)]
    answers = forwarder.answer(requests)
    assert {answer.letter for answer in answers} == {b"K"} and len(answers) == GROUP
    # Contents, envelopes, and the names in three buckets.
    assert forwarder._writer is not None and forwarder._writer.syncs <= 5
    remove(home, path)
    assert {each.envelope.recipients[0] for each in queued(home)} == {b"%d@b" % n for n in range(GROUP)}


def test_many_forwards_at_once_are_all_answered(home: Home) -> None:
    path = put_message(home, BODY)
    with forwarding(home) as forwards:
        for number in range(300):
            assert forwards.take(ended(number, path, [b"%d@b" % number]), 60) is None
        verdicts = finish(forwards)
    assert set(verdicts) == set(range(300)) and {letter for letter, _ in verdicts.values()} == {b"K"}
    remove(home, path)
    assert {each.envelope.recipients[0] for each in queued(home)} == {b"%d@b" % n for n in range(300)}


def test_one_that_cannot_be_forwarded_does_not_hinder_those_that_come_with_it(home: Home) -> None:
    path = put_message(home, BODY)
    with forwarding(home) as forwards:
        forwards.take(ended(1, path, [b"a@b"]), 60)
        forwards.take(ended(2, path, [b"x" * (ADDRESS_MAX + 1)]), 60)
        forwards.take(ended(3, b"mess/0/1", [b"a@b"]), 60)
        forwards.take(ended(4, path, [b"c@d"]), 60)
        verdicts = finish(forwards)
    assert verdicts[1][0] == verdicts[4][0] == b"K"
    assert verdicts[2][0] == b"D" and verdicts[2][1].startswith(b"Unable to forward message: address of 1003 bytes")
    assert verdicts[2][1].endswith(b"(#5.1.3)\n")
    assert verdicts[3][0] == b"Z" and b"Unable to open message" in verdicts[3][1]
    remove(home, path)
    assert len(queued(home)) == 2


def test_a_queue_that_takes_nothing_defers_forwards_until_it_does(home: Home) -> None:
    path = put_message(home, BODY)
    least = Path(home.control, "queueminfree")
    with forwarding(home) as forwards:
        Path(home.queue, "info").rename(Path(home.queue, "elsewhere"))
        assert b"unable to read" in make(forwards, path, [b"a@b"])[1]
        Path(home.queue, "elsewhere").rename(Path(home.queue, "info"))
        least.write_text(TOO_MUCH)
        letter, text = make(forwards, path, [b"a@b"])
        assert letter == b"Z" and b"the disk is almost full" in text and text.endswith(b"(#4.3.0)\n")
        least.unlink()
        for mark in (slow_mark(home), refuse_mark(home)):
            mark.set("")
        assert b"is behind; try again later" in make(forwards, path, [b"a@b"])[1]
        refuse_mark(home).clear()
        watch = Stopwatch()
        assert make(forwards, path, [b"a@b"])[0] == b"K"
        # The mark that asks to go slowly holds a group up for half a second at the least.
        assert watch.seconds >= 0.5
    remove(home, path)
    assert len(queued(home)) == 1


def test_a_failed_forward_leaves_nothing(home: Home) -> None:
    path = put_message(home, BODY)
    with forwarding(home) as forwards:
        make(forwards, path, [b"x" * (ADDRESS_MAX + 1)])
    remove(home, path)
    assert is_empty(home)


def test_a_report_without_a_forward_waits_for_none(home: Home) -> None:
    with forwarding(home) as forwards:
        report = forwards.take(ended(5, b"mess/0/1", [b"a@b"])._replace(forward=None), 60)
        assert report is not None and report.verdicts == [(b"K", DID)] and not forwards


def test_the_forwarder_ends_with_queue_local(home: Home) -> None:
    with forwarding(home) as forwards:
        assert forwards._process is not None
        pid = forwards._process.pid
    wait_for_end(pid)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give the queue to another user")
def test_the_forwarder_is_the_queue_s_owner() -> None:
    with mail_home() as mail:
        for file in [mail.path / "queue", *(mail.path / "queue").rglob("*")]:
            os.chown(file, 4712, 4712)
        path = put_message(mail.home, BODY)
        os.chown(mail.path / "queue" / path.decode(), 4712, 4712)
        with forwarding(mail.home) as forwards:
            assert make(forwards, path, [b"a@b"])[0] == b"K"
            assert forwards._process is not None
            uids = Path(f"/proc/{forwards._process.pid}/status").read_text().split("Uid:")[1].split()[:4]
        remove(mail.home, path)
        (made,) = queued(mail.home)
        found = os.stat(open_layout(mail.home.queue).mess(made.number))
    assert uids == ["4712"] * 4 and (found.st_uid, found.st_mode & 0o777) == (4712, 0o640)
    assert made.envelope.uid == JOE
