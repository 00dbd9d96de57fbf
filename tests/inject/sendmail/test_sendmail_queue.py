"""sendmail -bp (mailq) and -q, and sendmail for a user who may not write to the queue."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from queue_base.home import Home
from queue_base.queue.layout import open_layout
from support.inject.injectors import (
    USER,
    Outcome,
    PickupDaemon,
    as_user,
    only,
    queued,
    run,
    sendmail,
    shared_home,
)
from support.processes.forked import BIN
from support.processes.suite import wait_until
from support.queues.queued import classified_message
from support.tools import need_root

LATER = 4_000_000_000.0


@pytest.fixture
def shared() -> Iterator[Home]:
    with shared_home() as home:
        yield home


def called_as(name: str, place: Path, home: Home, *arguments: str) -> Outcome:
    """Run bin/sendmail through a link with another name, such as /usr/bin/mailq."""
    link = place / name
    if not link.is_symlink():
        link.symlink_to(BIN / "sendmail")
    return run([sys.executable, str(link), *arguments], QUEUE_HOME=home.path)


def test_mailq_and_bp_list_the_queue_or_say_that_it_is_empty(home: Home, tmp_path: Path) -> None:
    assert sendmail(home, "-bp") == (0, b"Mail queue is empty\n", b"")
    message = classified_message(home, remote=[b"b@x.y"], due=LATER)

    shown = sendmail(home, "-bp")
    assert shown.code == 0 and shown.output.splitlines()[1].startswith(b"%d-" % message)
    assert shown.output.endswith(b"\n\n-- 0 Kbytes in 1 Request.\n")
    assert called_as("mailq", tmp_path, home, "-v").output == shown.output


def test_what_wants_only_the_first_line_of_mailq_may_go(home: Home) -> None:
    for _ in range(3):
        classified_message(home, remote=[b"b@x.y"], due=LATER)
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as pipe:
        words = [sys.executable, str(BIN / "sendmail"), "--home", home.path, "-bp"]
        done = subprocess.run(words, stdout=pipe, stderr=subprocess.PIPE, timeout=60)

    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(
    ("options", "flushed"),
    [
        (["-q"], {"one", "two"}),
        (["-v", "-q"], {"one", "two"}),
        (["-qRx.y"], {"one"}),
        (["-qR@x.y"], {"one"}),
        (["-qR", "x.y"], {"one"}),
        (["-qRc@other.z"], {"two"}),
        (["-qSs2@x.y"], {"two"}),
        (["-qS", "nobody@x.y"], set()),
        (["-qI", "ID OF one"], {"one"}),
    ],
)
def test_q_has_mail_tried_now(home: Home, options: list[str], flushed: set[str]) -> None:
    one = classified_message(home, remote=[b"b@x.y"], sender=b"s1@x.y", due=LATER)
    two = classified_message(home, remote=[b"c@other.z"], sender=b"s2@x.y", due=LATER)
    id_of_one = next(
        line.split()[0] for line in sendmail(home, "-bp").output.decode().splitlines() if line.startswith(f"{one}-")
    )
    outcome = sendmail(home, *[id_of_one if option == "ID OF one" else option for option in options])

    assert outcome.code == 0 and outcome.error == b"", outcome
    layout = open_layout(home.queue)
    due = {name: os.stat(layout.hashed("remote", which)).st_mtime for name, which in (("one", one), ("two", two))}
    assert {name for name, at in due.items() if at < LATER} == flushed


def test_an_id_that_is_none_is_64_and_a_home_that_is_not_there_75(home: Home, tmp_path: Path) -> None:
    assert sendmail(home, "-qI457").code == 64
    assert sendmail(home, "-qI--all").code == 64
    assert sendmail(Home(str(tmp_path / "nowhere")), "-bp").code == 75


def test_a_user_who_may_not_write_to_the_queue_sends_with_its_uid(shared: Home) -> None:
    command = [*as_user(USER, "queue_inject.sendmail.main"), "--home", shared.path]
    sent = run([*command, "-i", "-f", "s@x.y", "b@x.y"], b"Subject: x\n\n.\nbody")
    assert sent == (0, b"", b"") and queued(shared) == []
    with PickupDaemon(shared):
        wait_until(lambda: len(queued(shared)) == 1, why="the message")

    found = only(shared)
    assert found.message.endswith(b"Subject: x\n\n.\nbody")
    assert (found.envelope.uid, found.envelope.sender, found.envelope.recipients) == (USER, b"s@x.y", [b"b@x.y"])


def test_a_user_who_may_not_read_the_queue_is_told_so_with_77(shared: Home) -> None:
    # The owner of the queue may always open it.
    need_root()
    os.chmod(shared.queue, 0o711)
    command = [*as_user(USER, "queue_inject.sendmail.main"), "--home", shared.path]
    for option in ("-bp", "-q"):
        outcome = run([*command, option])
        assert outcome.code == 77 and b"permission denied" in outcome.error, outcome
