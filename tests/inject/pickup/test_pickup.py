"""Users who may not write to the queue leave mail in maildrop/; queue-pickup queues it, and never loses it."""

import os
import signal
import stat
from pathlib import Path

import pytest

from queue_base.accounts import Owner, trusted_users
from queue_base.errors import QueueTrouble
from queue_base.home import Home
from queue_inject.drop import DropWriter
from queue_wire.files.maildrop import pack_header
from support.inject.injectors import (
    OWNER,
    ROOT,
    USER,
    PickupDaemon,
    as_user,
    enqueue,
    file_limit,
    is_empty,
    only,
    queued,
    run,
)
from support.inject.maildrop import ENVELOPE, leave, maildrop, put, taken
from support.processes.suite import program

pytestmark = pytest.mark.home("shared")

SMTPD = trusted_users(Owner(OWNER, OWNER)) - {0, OWNER}


def test_a_user_who_may_not_write_to_the_queue_leaves_mail_in_maildrop(home: Home) -> None:
    leave(home, b"no newline \0\xff")
    (name,) = maildrop(home)
    path = Path(home.queue, "maildrop", name)

    assert is_empty(home)
    assert path.read_bytes() == pack_header(13) + b"no newline \0\xff" + b"Fa@example.org\0T0@example.net\0\0"
    assert path.stat().st_uid == USER and stat.S_IMODE(path.stat().st_mode) == 0o1640


@pytest.mark.skipif(not ROOT, reason="needs another user")
def test_mail_left_where_files_do_not_get_the_queue_s_group_can_be_read_all_the_same(home: Home) -> None:
    Path(home.queue, "maildrop").chmod(0o1733)
    leave(home)
    (name,) = maildrop(home)
    assert stat.S_IMODE(Path(home.queue, "maildrop", name).stat().st_mode) == 0o1644


def test_mail_is_taken_with_its_owner_s_uid_while_pickup_runs_and_when_it_starts(home: Home) -> None:
    leave(home, b"before")
    with PickupDaemon(home) as pickup:
        taken(home, 1)
        leave(home, b"after")
        taken(home, 2)
        assert pickup.end() == (0, b"") and pickup.log == b""

        for message in queued(home):
            assert message.envelope.uid == USER and message.envelope.pid == pickup.process.pid
            expected = b"Received: (qmail %d invoked by uid %d); " % (pickup.process.pid, USER)
            assert message.received.startswith(expected)
    assert sorted(message.message for message in queued(home)) == [b"after", b"before"]
    for path in Path(home.queue).glob("mess/*/*"):
        assert path.stat().st_uid == OWNER


@pytest.mark.skipif(not (ROOT and SMTPD), reason="needs account queued")
def test_for_whom_queue_smtpd_has_the_mail_is_kept_and_no_user_says_it(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    (smtpd,) = SMTPD
    monkeypatch.setenv("QUEUE_SUBMITTER", "0123456789abcdef")
    for uid in (smtpd, USER):
        assert enqueue(home, command=as_user(uid, "queue_inject.enqueue")).code == 0
    assert len(maildrop(home)) == 2
    with PickupDaemon(home):
        taken(home, 2)
    found = {message.envelope.uid: message.envelope.submitter for message in queued(home)}
    assert found == {smtpd: b"0123456789abcdef", USER: b""}


def test_queue_inject_leaves_mail_too(home: Home) -> None:
    command = [*as_user(USER, "queue_inject.main"), "--home", home.path, "bob"]
    assert run(command, b"Subject: x\n\nbody").code == 0
    with PickupDaemon(home):
        taken(home, 1)

    message = only(home)
    assert message.message.endswith(b"Subject: x\n\nbody")
    assert message.envelope.recipients == [b"bob@me.example.org"]


def test_a_message_of_30_mb_is_taken_byte_for_byte(home: Home) -> None:
    message = os.urandom(30_000_000)
    leave(home, message)
    with PickupDaemon(home):
        taken(home, 1)

    assert only(home).message == message


def test_many_messages_are_taken(home: Home) -> None:
    files = [f"mail.{number:032x}" for number in range(450)]
    for number, name in enumerate(files):
        put(home, pack_header(5) + b"%05d" % number + ENVELOPE, name)
    with PickupDaemon(home):
        taken(home, 450)

    assert {message.message for message in queued(home)} == {b"%05d" % number for number in range(450)}


def test_a_full_disk_leaves_nothing_in_maildrop(home: Home) -> None:
    command = as_user(USER, "queue_inject.enqueue")
    outcome = enqueue(home, b"x" * 300_000, preexec=file_limit(200_000), command=command)

    assert outcome.code == 53 and b"maildrop" in outcome.error and maildrop(home) == []


def test_a_bad_envelope_or_a_long_address_leaves_nothing_in_maildrop(home: Home) -> None:
    command = as_user(USER, "queue_inject.enqueue")

    assert enqueue(home, b"x", b"Fa@b\0X\0", command=command).code == 91
    assert enqueue(home, b"x", b"Fa@b\0Tc@d\0", command=command).code == 54
    assert enqueue(home, b"x", b"Fa@b\0T%s\0\0" % (b"x" * 1003), command=command).code == 11
    assert maildrop(home) == []


def test_no_maildrop_is_62(home: Home) -> None:
    Path(home.queue, "maildrop").rmdir()

    assert enqueue(home, b"x", command=as_user(USER, "queue_inject.enqueue")).code == 62


def test_a_group_of_drops_is_accepted_together_or_removed(home: Home) -> None:
    writer = DropWriter(home)
    drafts = [writer.begin() for _ in range(20)]
    for draft in drafts:
        draft.write(b"x")
        draft.finish(b"a@b", [b"c@d"])
    writer.commit(drafts[:15])
    assert all(draft.queued for draft in drafts[:15])

    os.unlink(drafts[17].path)
    with pytest.raises(QueueTrouble):
        writer.commit(drafts[15:])
    assert [draft.queued for draft in drafts[15:]] == [True, True, False, False, False]
    assert len(maildrop(home)) == 17 and all(name.startswith("mail.") for name in maildrop(home))


def test_signals_do_not_end_it_but_the_end_of_its_pipe_does(home: Home) -> None:
    with PickupDaemon(home) as pickup:
        leave(home)
        taken(home, 1)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            pickup.process.send_signal(number)
        leave(home)
        taken(home, 2)
        assert pickup.end() == (0, b"")


def test_pickup_refuses_a_queue_that_is_not_there_and_an_unknown_option(home: Home) -> None:
    command = program("queue-pickup")

    assert run([*command, "--home", home.path + "/nowhere"]).code == 111
    assert run([*command, "--foo"]).code == 100
