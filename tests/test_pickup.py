"""Mail of users who may not write to the queue: left in maildrop/, taken by queue-pickup, never lost."""

import os
import random
import signal
import stat
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from queue_base.home import Home
from queue_inject.draft import QueueTrouble
from queue_inject.drop import DropWriter
from queue_wire.maildrop import pack_envelope, pack_header
from support.injectors import (
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
    shared_home,
    states,
)
from support.suite import program, wait_until

NAME = "0123456789abcdef" * 2
ENVELOPE = pack_envelope(b"a@b", [b"c@d"])


@pytest.fixture
def home() -> Iterator[Home]:
    with shared_home() as home:
        yield home


def maildrop(home: Home) -> list[str]:
    return os.listdir(home.queue + "/maildrop")


def leave(home: Home, message: bytes = b"hello\n", recipients: int = 1) -> None:
    """Have the user leave a message in maildrop/."""
    envelope = b"Fa@example.org\0" + b"".join(b"T%d@example.net\0" % each for each in range(recipients)) + b"\0"
    assert enqueue(home, message, envelope, command=as_user(USER, "queue_inject.enqueue")).code == 0


def put(home: Home, data: bytes, name: str = "mail." + NAME) -> Path:
    """Put a file in maildrop/ by hand, under a name of its own first as queue-inject does."""
    path = Path(home.queue, "maildrop", name)
    path.with_name("by hand").write_bytes(data)
    path.with_name("by hand").chmod(0o644)
    if ROOT:
        os.chown(path.with_name("by hand"), USER, USER)
    path.with_name("by hand").rename(path)
    return path


def taken(home: Home, count: int) -> None:
    """Wait until so many messages are in the queue and maildrop/ is empty."""
    wait_until(lambda: states(home) == {4: count} and not maildrop(home), why=f"{count} messages")


def test_a_user_who_may_not_write_to_the_queue_leaves_mail_in_maildrop(home: Home) -> None:
    leave(home, b"no newline \0\xff")
    (name,) = maildrop(home)
    path = Path(home.queue, "maildrop", name)

    assert is_empty(home)
    assert path.read_bytes() == pack_header(13) + b"no newline \0\xff" + b"Fa@example.org\0T0@example.net\0\0"
    assert path.stat().st_uid == USER and stat.S_IMODE(path.stat().st_mode) == 0o644


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


BROKEN = {
    "empty": b"",
    "no header": b"garbage" * 50,
    "cut in the header": pack_header(5)[:20],
    "cut in the message": pack_header(500) + b"hello",
    "cut in the envelope": pack_header(5) + b"hello" + ENVELOPE[:-1],
    "no envelope": pack_header(5) + b"hello",
    "bytes after the envelope": pack_header(5) + b"hello" + ENVELOPE + b"x",
    "a length of 20 digits": pack_header(10**20 - 1) + b"hello" + ENVELOPE,
    "a long address": pack_header(5) + b"helloFa@b\0T" + b"x" * 2000 + b"\0\0",
    "nothing but NULs": b"\0" * 5000,
}


@pytest.mark.parametrize("data", BROKEN.values(), ids=BROKEN.keys())
def test_a_damaged_file_is_reported_once_and_left(home: Home, data: bytes) -> None:
    path = put(home, data)
    with PickupDaemon(home) as pickup:
        wait_until(lambda: pickup.said(b"\0"))
        leave(home)
        wait_until(lambda: states(home) == {4: 1})
        assert pickup.end() == (0, b"")
        assert pickup.said(b"warning: queue-pickup: unable to take %s of uid %d: " % (os.fsencode(path), USER))

    assert pickup.log.count(b"\0") == 1 and pickup.log.startswith(b"L") and b"\n" not in pickup.log
    assert path.read_bytes() == data


def test_what_is_no_file_of_ours_is_never_followed_or_opened(home: Home) -> None:
    directory = Path(home.queue, "maildrop")
    secret = Path(home.path, "secret")
    secret.write_bytes(pack_header(6) + b"secret" + ENVELOPE)
    (directory / f"mail.{1:032x}").symlink_to(secret)
    os.link(secret, directory / f"mail.{2:032x}")
    os.mkfifo(directory / f"mail.{3:032x}")
    (directory / f"mail.{4:032x}").mkdir()
    (directory / "hello\n\xff there").write_bytes(b"")
    (directory / "mail.short").write_bytes(b"")
    with PickupDaemon(home) as pickup:
        wait_until(lambda: pickup.said(b"") and pickup.log.count(b"\0") == 6)
        leave(home)
        wait_until(lambda: states(home) == {4: 1})
        assert pickup.end() == (0, b"")

    assert pickup.log.count(b"\0") == 6 and b"\n" not in pickup.log
    assert only(home).message == b"hello\n" and len(maildrop(home)) == 6


def test_a_file_under_construction_is_left_until_it_is_36_hours_old(home: Home) -> None:
    young = put(home, b"young", "tmp." + NAME)
    old = put(home, b"old", "tmp." + NAME[::-1])
    for path, hours in ((young, 35.9), (old, 36.1)):
        os.utime(path, (time.time() - hours * 3600,) * 2)
    with PickupDaemon(home) as pickup:
        wait_until(lambda: not old.exists())
        leave(home)
        wait_until(lambda: states(home) == {4: 1})
        pickup.end()

    assert maildrop(home) == [young.name] and pickup.log == b""


def test_trouble_with_the_queue_leaves_mail_where_it_is_until_it_is_over(home: Home) -> None:
    directory = Path(home.queue, "pid")
    directory.chmod(0o500)
    for _ in range(3):
        leave(home)
    with PickupDaemon(home) as pickup:
        wait_until(lambda: pickup.said(b"and 2 more; it stays in ") and pickup.said(b"tried again"))
        assert len(maildrop(home)) == 3 and states(home) == {}
        directory.chmod(0o700)
        taken(home, 3)


def test_a_message_that_does_not_fit_stands_in_no_other_s_way(home: Home) -> None:
    leave(home, b"x" * 300_000)
    with PickupDaemon(home, file_limit(200_000)) as pickup:
        wait_until(lambda: pickup.said(b"file too large"))
        leave(home, b"small")
        wait_until(lambda: states(home) == {4: 1})
    assert only(home).message == b"small" and len(maildrop(home)) == 1
    with PickupDaemon(home):
        taken(home, 2)


def test_sigkill_at_any_moment_loses_no_message(home: Home) -> None:
    left = set()
    for number in range(12):
        for piece in range(10):
            message = b"%d.%d" % (number, piece)
            left.add(message)
            put(home, pack_header(len(message)) + message + ENVELOPE, f"mail.{number * 100 + piece:032x}")
        pickup = PickupDaemon(home)
        with pickup:
            try:
                pickup.process.wait(random.uniform(0.02, 0.2))
            except subprocess.TimeoutExpired:
                pickup.process.send_signal(signal.SIGKILL)
                pickup.process.wait(60)
    with PickupDaemon(home):
        wait_until(lambda: not maildrop(home))

    assert set(states(home)) <= {2, 3, 4}
    found = Counter(message.message for message in queued(home))
    assert set(found) == left


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
