"""Where a program judges each message by itself, a batch goes on after trouble with one; elsewhere it ends there."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from queue_base.errors import REFUSED, WRITE, QueueTrouble
from queue_base.home import Home
from queue_base.layout import open_layout
from queue_base.writer import Draft, QueueWriter
from queue_inject.batch.format import End
from queue_inject.batch.group import Group, Result, Stopped
from queue_inject.batch.take import Taker
from support.home import make_home
from support.inject.injectors import queued, states

PERMANENT_CODE = 31


class Judging(QueueWriter):
    """Refuses messages by the numbers of their commits: `codes` are qmail-queue's exit codes."""

    one_by_one = True

    def __init__(self, home: Home, codes: dict[int, int]) -> None:
        super().__init__(home, open_layout(home.queue), 7)
        self._codes = codes
        self._count = 0

    def commit(self, drafts: Sequence[Draft]) -> None:
        assert len(drafts) <= 1, "each message has a commit of its own"
        self._count += 1
        code = self._codes.get(self._count)
        if code is None:
            super().commit(drafts)
            return
        for draft in drafts:
            draft.discard()
        raise QueueTrouble(code, f"the filter says {code}")


def take(home: Home, writer: QueueWriter, count: int) -> tuple[Group, list[str]]:
    lines: list[str] = []
    group = Group(writer, 0, lambda results: lines.extend(map(str, results)))
    taker = Taker(writer, None, 0, group)
    for number in range(count):
        taker.take(b"message %d\n" % number)
        taker.take(End(b"a@b", [b"c@d"]))
    group.commit()
    return group, lines


def test_a_filter_that_refuses_one_message_leaves_the_others_alone(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home")

    group, lines = take(home, Judging(home, {2: PERMANENT_CODE, 4: REFUSED}), 5)

    assert [line.split()[0] for line in lines] == ["ok", "failed", "ok", "failed", "ok"]
    assert lines[1] == "failed 2: the filter says 31" and lines[3] == "failed 4: the filter says 71"
    assert (group.worst, group.failed, group.done) == (111, 2, 3)
    assert states(home) == {4: 3}


def test_trouble_of_the_queue_itself_ends_the_batch_with_what_is_done(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home")
    writer = Judging(home, {3: WRITE})
    writer.one_by_one = False
    lines: list[str] = []
    group = Group(writer, 0, lambda results: lines.extend(map(str, results)))
    taker = Taker(writer, None, 0, group)
    with pytest.raises(Stopped, match="--skip 2 takes what is left") as stopped:
        for number in range(5):
            taker.take(b"message %d\n" % number)
            taker.take(End(b"a@b", [b"c@d"]))
            group.commit()

    assert stopped.value.exit_code == 111 and [line.split()[0] for line in lines] == ["ok", "ok", "failed"]
    assert sorted(each.message for each in queued(home)) == [b"message 0\n", b"message 1\n"]


def test_a_result_is_one_line_whatever_the_reason_holds() -> None:
    assert str(Result(3, None, ValueError("a\r\nb"))) == "failed 3: a  b"


def test_a_failure_for_good_counts_as_done(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home")

    group, _ = take(home, Judging(home, {5: PERMANENT_CODE}), 5)

    assert (group.worst, group.failed, group.done) == (100, 1, 5)
