"""A batch ends at the first temporary failure, unless a filter decides about each message by itself."""

from collections.abc import Sequence
from pathlib import Path

from queue_base.errors import REFUSED, WRITE, QueueTrouble
from queue_base.home import Home
from queue_base.inflow import InflowControl
from queue_base.layout import open_layout
from queue_base.writer import Draft, QueueWriter
from queue_inject.batch.injector import BatchInjector, Result
from queue_inject.batch.pieces import EndOfMessage
from support.home import make_home
from support.inject.injectors import queued, states

PERMANENT_CODE = 31


class Judging(QueueWriter):
    """Refuses some commits: `codes` has exit codes of qmail-queue by the number of the commit."""

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


def inject(home: Home, writer: QueueWriter, count: int) -> tuple[BatchInjector, list[str]]:
    injector = BatchInjector(writer, None, 0)
    results: list[Result] = []
    for number in range(count):
        results += injector.take(b"message %d\n" % number)
        results += injector.take(EndOfMessage(b"a@b", [b"c@d"]))
    results += injector.commit()
    return injector, list(map(str, results))


def test_a_filter_that_refuses_one_message_leaves_the_others_alone(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home")

    injector, lines = inject(home, Judging(home, {2: PERMANENT_CODE, 4: REFUSED}), 5)

    assert [line.split()[0] for line in lines] == ["ok", "failed", "ok", "failed", "ok"]
    assert lines[1] == "failed 2: the filter says 31" and lines[3] == "failed 4: the filter says 71"
    assert (injector.worst, injector.failed, injector.done) == (111, 2, 3)
    assert states(home) == {4: 3}


def test_trouble_of_the_queue_itself_ends_the_batch_with_what_is_done(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home")
    writer = Judging(home, {3: WRITE})
    writer.one_by_one = False
    injector = BatchInjector(writer, None, 0)
    lines: list[str] = []
    for number in range(5):
        assert injector.take(b"message %d\n" % number) == []
        assert injector.take(EndOfMessage(b"a@b", [b"c@d"])) == []
        lines += map(str, injector.commit())
        if injector.stopped is not None:
            break

    assert injector.stopped is not None and "--skip 2 takes what is left" in str(injector.stopped)
    assert injector.stopped.exit_code == 111 and [line.split()[0] for line in lines] == ["ok", "ok", "failed"]
    assert sorted(each.message for each in queued(home)) == [b"message 0\n", b"message 1\n"]


def test_a_result_is_one_line_whatever_the_reason_holds() -> None:
    assert str(Result(3, None, ValueError("a\r\nb"))) == "failed 3: a  b"


def test_a_failure_for_good_counts_as_done(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home")

    injector, _ = inject(home, Judging(home, {5: PERMANENT_CODE}), 5)

    assert (injector.worst, injector.failed, injector.done) == (100, 1, 5)


def test_each_group_is_admitted_once_also_after_a_pause_of_the_input(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home")
    admitted = []

    class CountingInflowControl(InflowControl):
        def admit(self) -> None:
            admitted.append(len(queued(home)))
            super().admit()

    writer = QueueWriter(home, open_layout(home.queue), 7)
    writer.inflow = CountingInflowControl(home, home.queue)
    injector = BatchInjector(writer, None, 0)
    for _ in range(3):
        for number in range(2):
            injector.take(b"message %d\n" % number)
            injector.take(EndOfMessage(b"a@b", [b"c@d"]))
        injector.commit()

    assert admitted == [0, 2, 4]
