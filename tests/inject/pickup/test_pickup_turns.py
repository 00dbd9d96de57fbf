"""Users take turns in maildrop/: neither many files nor large files of one user delay the mail of another."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from queue_base.daemon.log_limit import LimitedLog
from queue_base.home import Home
from queue_base.queue.layout import open_layout
from queue_base.queue.writer import Draft, QueueWriter
from queue_inject.pickup import collector, scan, user_queues
from queue_inject.pickup.collector import Collector
from queue_inject.pickup.corrupt import CorruptMail
from queue_inject.pickup.file_checks import OriginRules
from queue_inject.pickup.scan import MaildropScan
from queue_inject.pickup.untrusted_directory import Directory
from queue_inject.pickup.user_queues import FEW, UserQueues
from queue_wire.files.maildrop import pack_envelope, pack_header
from support.inject.committing import committing
from support.inject.injectors import ROOT, USER, queued, states
from support.queues.home import make_home

ENVELOPE = pack_envelope(b"a@b", [b"c@d"])
OTHER = USER + 1
needs_root = pytest.mark.skipif(not ROOT, reason="needs files of other users")


def name(number: int) -> str:
    return f"mail.{number:032x}"


class Drop:
    """A maildrop/ with files of two users, collected in this process; `commits` has the file sizes of each commit."""

    def __init__(self, path: Path) -> None:
        self.home: Home = make_home(path)
        self.commits: list[list[int]] = []
        self.said: list[str] = []

        def record(drafts: Sequence[Draft]) -> None:
            if drafts:
                self.commits.append([os.path.getsize(draft.path) for draft in drafts])

        directory = self.home.queue + "/maildrop"
        lines = LimitedLog(self.said.append, "more")
        aside = CorruptMail(self.home.queue, directory, lines)
        opened = Directory(directory)
        writer = committing(QueueWriter(self.home, open_layout(self.home.queue), 7), after=record)
        self.drop = Collector(opened, writer, OriginRules(None, True), aside, lines)
        self.scan = MaildropScan(opened, self.drop, aside, self.said.append)

    def put(self, number: int, uid: int, length: int = 4) -> str:
        """Leave a message of `length` bytes."""
        path = Path(self.home.queue, "maildrop", name(number))
        path.write_bytes(pack_header(length) + b"x" * length + ENVELOPE)
        path.chmod(0o1644)
        os.chown(path, uid, -1)
        return path.name

    def look(self) -> None:
        """Scan all of maildrop/."""
        self.scan.begin()
        while self.scan.running:
            self.scan.run(0.01)


@pytest.fixture
def drop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Drop]:
    # Groups are those of the test, however slow the machine is.
    monkeypatch.setattr(collector, "GROUP_SECONDS", 3600.0)
    yield Drop(tmp_path / "home")


@needs_root
def test_one_s_many_files_do_not_come_before_another_s_few(drop: Drop) -> None:
    for number in range(1000):
        drop.put(number, USER)
    for number in range(1000, 1003):
        drop.put(number, OTHER)
    drop.look()
    assert drop.drop.take()
    assert sorted(message.envelope.uid for message in queued(drop.home)) == [USER] * 97 + [OTHER] * 3
    while drop.drop.waiting:
        assert drop.drop.take()
    assert len(queued(drop.home)) == 1003 and drop.said == []


@needs_root
def test_large_files_are_copied_beside_small_ones_one_of_each_user_at_a_time(
    drop: Drop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collector, "LARGE", 1000)
    monkeypatch.setattr(collector, "PIECE", 1 << 18)
    for number in range(6):
        drop.put(number, USER, 2_000_000)
    drop.put(6, OTHER, 1_000_000)
    drop.put(7, OTHER)
    for number in range(8):
        drop.drop.add(name(number))
    assert drop.drop.take() and [len(commit) for commit in drop.commits] == [1]
    assert drop.commits[0][0] < 1000
    drop.put(8, USER)
    drop.drop.add(name(8))
    assert drop.drop.take() and drop.commits[1][0] < 1000
    while drop.drop.waiting:
        assert drop.drop.take() and states(drop.home)[2] <= 2
    # The large file of the other user did not wait for the five of the first user.
    sizes = [commit[0] // 1_000_000 for commit in drop.commits]
    assert sizes == [0, 0, 1, 2, 2, 2, 2, 2, 2] and os.listdir(drop.home.queue + "/maildrop") == []


def test_a_group_ends_when_its_time_is_over(drop: Drop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector, "GROUP_SECONDS", 0.0)
    for number in range(3):
        drop.drop.add(drop.put(number, USER if ROOT else os.getuid()))
    assert drop.drop.take() and len(queued(drop.home)) == 1


def test_what_cannot_be_kept_is_found_by_a_later_scan(drop: Drop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_queues, "USER_MAX", FEW)
    for number in range(50):
        drop.put(number, USER if ROOT else os.getuid())
    rounds = 0
    drop.look()
    while drop.drop.missed or drop.drop.waiting:
        while drop.drop.waiting:
            assert drop.drop.take()
        rounds += 1
        drop.look()
    assert len(queued(drop.home)) == 50 and rounds == 4


def test_a_scan_looks_at_so_many_names_at_a_time_and_goes_on(drop: Drop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "_STEP", 10)
    for number in range(35):
        drop.put(number, USER if ROOT else os.getuid())
    drop.scan.begin()
    slices = 0
    while drop.scan.running:
        drop.scan.run(0.0)
        slices += 1
    assert slices == 4


def test_turns_go_round_and_a_name_that_is_put_back_comes_next() -> None:
    found = UserQueues()
    for uid, number in ((1, 1), (1, 2), (1, 3), (2, 4), (3, 5)):
        assert found.add(uid, name(number))
    assert found.next() == (1, name(1)) and found.next() == (2, name(4))
    found.put_back(2, name(4))
    assert found.next() == (2, name(4)) and found.next(but={3}) == (1, name(2)) and len(found) == 2
    assert found.next() == (3, name(5)) and found.next(but={1}) is None and found.next() == (1, name(3))
    assert found.next() is None and not found


def test_nobody_s_names_leave_no_room_for_those_who_have_a_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_queues, "USER_MAX", 100)
    monkeypatch.setattr(user_queues, "TOTAL_MAX", 150)
    found = UserQueues()
    assert sum(found.add(1, name(number)) for number in range(1000)) == 100
    assert sum(found.add(2, name(number)) for number in range(1000)) == 50
    assert sum(found.add(3, name(number)) for number in range(1000)) == FEW
    found.forget_long()
    assert len(found) == FEW and {found.next(), found.next()} == {(3, name(0)), (3, name(1))}
