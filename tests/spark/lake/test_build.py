"""A lake is built batch by batch: rows come back as they went in, old dates go, and each line counts once."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from queue_report.lake.build import Order, build
from queue_report.lake.data_files import read_files, read_streams
from queue_report.lake.lake import open_lake
from queue_report.runtime.progress import Progress
from queue_report.schema.arrow import ARROW
from queue_report.schema.columns import COLUMNS
from support.spark.logs.growing_log import GrowingLog, assert_exact, same_rows
from support.spark.logs.log_lake import Lake
from support.spark.runner import InProcess, Result, Task

STRANGE = ["007", "1e3", "null", "__HIVE_DEFAULT_PARTITION__", "a:b c{}[*]%41=", "ä", "x" * 250]


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    return tmp_path / "logs"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "the [lake] {x}"


def files_of(lake: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in lake.rglob("*") if path.is_file()}


def test_rows_come_back_as_they_went_in_whatever_the_host_is_called(logs: Path, place: Path) -> None:
    for host in STRANGE:
        log = GrowingLog(logs / host / "q")
        log.grow(2)
        log.write("undated\n")
    summary = Lake(place).build(logs)
    for host in STRANGE:
        assert sorted(row["id"] for row in Lake(place).rows("messages") if row["host"] == host) == [0, 1]
    today = datetime.now(UTC).date()
    assert all(today - row["date"] <= timedelta(days=1) for row in Lake(place).rows("quarantine"))
    lake, count = open_lake(str(place)), len(STRANGE)
    for table, schema in ARROW.items():
        rows = read_files(lake.files, table, lake.tables[table])
        assert rows.schema == (schema.remove(schema.get_field_index("date")) if "date" in COLUMNS[table] else schema)
    expected = {"messages": 2, "deliveries": 2, "pending": 1, "quarantine": 1, "lines": 9}
    assert summary.rows == {table: rows * count for table, rows in expected.items()}


def test_a_build_with_nothing_new_writes_nothing_and_starts_no_spark(logs: Path, place: Path) -> None:
    GrowingLog(logs / "a" / "q").grow(3)
    Lake(place).build(logs)
    before, runner = files_of(place), InProcess()
    assert build(Order(str(logs), str(place)), runner, Progress()).lines == {}
    assert files_of(place) == before and runner.ran == 0


def test_pending_is_replaced_and_the_rest_added_to(logs: Path, place: Path) -> None:
    log, other = GrowingLog(logs / "a" / "q"), GrowingLog(logs / "b" / "q")
    other.grow(4)
    Lake(place).build(logs)
    reader = open_lake(str(place))
    log.grow(1)
    Lake(place).build(logs)
    assert_exact(Lake(place), 1)
    # The other stream is as it was, though it stood in the same file.
    assert_exact(Lake(place), 4, "b")
    # Who opened the lake before still sees it whole.
    assert sorted(read_files(reader.files, "pending", reader.tables["pending"]).column("id").to_pylist()) == [0, 4]


def test_whole_dates_expire(logs: Path, place: Path) -> None:
    now = datetime.now(UTC)
    # Each message of these begins and ends on one day; the last one of each log is open.
    for ago in (0, 1, 29, 31, 400):
        GrowingLog(logs / f"{ago}" / "q", int((now - timedelta(days=ago)).timestamp()) - 5).grow(1)
    Lake(place).build(logs)
    days = {row["date"] for row in Lake(place).rows("messages")}
    assert Lake(place).build(logs, expire=30).expired > 0
    first = now.date() - timedelta(days=30)
    assert {row["date"] for row in Lake(place).rows("messages")} == {day for day in days if day >= first}
    assert len(Lake(place).rows("pending")) == len(Lake(place).rows("streams")) == 5
    version = open_lake(str(place)).number
    assert Lake(place).build(logs, expire=30).expired == 0 and open_lake(str(place)).number == version
    assert not Lake(place).build(logs).lines


def test_the_numbers_of_lines_add_up_in_the_lake(logs: Path, place: Path) -> None:
    log = GrowingLog(logs / "a" / "q")
    Lake(place).build(logs)
    log.grow(2)
    Lake(place).build(logs)
    counts = {stream: state["counts"] for stream, state in read_streams(open_lake(str(place))).items()}
    assert counts == {("a", "q"): {"new": 3, "start": 2, "done": 2, "end": 2}}


class Twice(InProcess):
    """Runs each task twice, as Spark does that took an executor for dead: one result of the two counts."""

    def run(self, work: Callable[[Task], Result], tasks: Sequence[Task], progress: Progress) -> list[Result]:
        super().run(work, tasks, progress)
        return super().run(work, tasks, progress)


def test_the_tables_are_those_of_tasks_that_run_once(logs: Path, tmp_path: Path) -> None:
    for host in "ab":
        log = GrowingLog(logs / host / "q")
        log.grow(20)
        log.write("garbage\n" * 20)
    for _ in range(2):
        build(Order(str(logs), str(tmp_path / "twice")), Twice(), Progress())
        Lake(tmp_path / "once").build(logs)
        same_rows(tmp_path / "twice", tmp_path / "once")
        log.grow(20)
    assert len(Lake(tmp_path / "once").rows("messages")) == 60
