"""Sizes in maildrop/: a file that consists of holes is not copied, and a group copies a limited number of bytes."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from queue_base.daemon.log_limit import LimitedLog
from queue_base.home import Home
from queue_base.queue.layout import open_layout
from queue_base.queue.writer import Draft, QueueWriter
from queue_inject.pickup import collector
from queue_inject.pickup.collector import Collector
from queue_inject.pickup.corrupt import CorruptMail
from queue_inject.pickup.file_checks import OriginRules
from queue_inject.pickup.untrusted_directory import Directory
from queue_wire.files.maildrop import HEADER_LENGTH, pack_envelope, pack_header
from support.inject.committing import committing
from support.inject.injectors import ROOT, USER, PickupDaemon, file_limit, queued
from support.inject.maildrop import set_aside
from support.processes.suite import wait_until
from support.queues.home import make_home

pytestmark = pytest.mark.home("shared")

ENVELOPE = pack_envelope(b"a@b", [b"c@d"])
GIGABYTES = 8 << 30


def put(home: Home, number: int, length: int) -> Path:
    """Put a message of `length` NULs in maildrop/, which occupy no space on the disk; return its path."""
    path = Path(home.queue, "maildrop", f"mail.{number:032x}")
    with path.with_name("by hand").open("wb") as file:
        file.write(pack_header(length))
        file.truncate(HEADER_LENGTH + length)
        file.seek(0, os.SEEK_END)
        file.write(ENVELOPE)
    path.with_name("by hand").chmod(0o1644)
    if ROOT:
        os.chown(path.with_name("by hand"), USER, -1)
    path.with_name("by hand").rename(path)
    return path


def test_a_file_that_claims_gigabytes_which_it_does_not_hold_is_left_and_others_mail_goes_on(home: Home) -> None:
    claims = put(home, 1, GIGABYTES)
    put(home, 2, 10)
    with PickupDaemon(home, file_limit(100 << 20)) as pickup:
        wait_until(lambda: [len(each.message) for each in queued(home)] == [10], why="the other message")
        wait_until(lambda: pickup.said(f"of {GIGABYTES + HEADER_LENGTH + len(ENVELOPE)} bytes".encode()))
        assert b"alert: queue-pickup: unable to take " + os.fsencode(claims) in pickup.log
        assert b"it is set aside" in pickup.log and pickup.log.count(b"\0") == 1
        assert pickup.end() == (0, b"")
    assert not claims.exists() and [path.stat().st_size for path in set_aside(home)] == [
        GIGABYTES + HEADER_LENGTH + len(ENVELOPE)
    ]


def test_holes_in_a_message_of_ordinary_size_are_taken_as_the_nuls_that_they_are(home: Home) -> None:
    put(home, 1, 5 << 20)
    with PickupDaemon(home):
        wait_until(lambda: len(queued(home)) == 1, why="the message")
    assert queued(home)[0].message == bytes(5 << 20)


def test_a_group_copies_no_more_than_its_bound_unless_one_message_alone_is_larger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = make_home(tmp_path / "home")
    groups = []

    def record(drafts: Sequence[Draft]) -> None:
        groups.append(sum(os.path.getsize(draft.path) for draft in drafts) // 1000)

    monkeypatch.setattr(collector, "GROUP_BYTES", 5_000)
    monkeypatch.setattr(collector, "GROUP_SECONDS", 3600.0)  # However slow the machine is.
    complaints: list[str] = []
    lines = LimitedLog(complaints.append, "more")
    directory = home.queue + "/maildrop"
    writer = committing(QueueWriter(home, open_layout(home.queue), 7), before=record)
    drop = Collector(
        Directory(directory), writer, OriginRules(None, True), CorruptMail(home.queue, directory, lines), lines
    )
    for number, size in enumerate((2000, 2000, 2000, 9000, 2000)):
        drop.add(put(home, number, size).name)
    while drop.waiting:
        assert drop.take()
    assert complaints == []
    assert groups == [4, 2, 9, 2]
    assert sorted(len(each.message) for each in queued(home)) == [2000, 2000, 2000, 2000, 9000]
