"""Each build is a version of a Delta table: earlier ones can be read for a day, and small files are put together."""

import os
import time
from pathlib import Path

import pytest

from queue_base.errors import Permanent
from queue_report.lake import lake as lake_module
from queue_report.lake.data_files import read_files
from queue_report.lake.lake import Lake as OpenLake
from queue_report.lake.lake import open_lake
from support.spark.logs.growing_log import GrowingLog, assert_exact, numbers
from support.spark.logs.log_lake import Lake

DAY = 86_400


@pytest.fixture
def log(tmp_path: Path) -> GrowingLog:
    """A log that was built five times."""
    made = GrowingLog(tmp_path / "logs" / "a" / "q")
    for _ in range(5):
        made.grow(1)
        Lake(tmp_path / "lake").build(tmp_path / "logs")
    return made


def data_files(lake: Path) -> set[str]:
    """Return the data files on the disk, as paths below the lake."""
    return {os.path.relpath(path, lake) for path in lake.rglob("tbl=*/**/*.parquet")}


def listed(lake: Path, version: int | None = None) -> set[str]:
    """Return the data files that count."""
    return {path for paths in open_lake(str(lake), version=version).tables.values() for path in paths}


def open_numbers(lake: OpenLake) -> list[int]:
    found: list[int] = read_files(lake.files, "pending", lake.tables["pending"]).column("id").to_pylist()
    return found


def test_an_earlier_version_is_read_and_the_history_names_them_all(log: GrowingLog, tmp_path: Path) -> None:
    lake = str(tmp_path / "lake")
    for version in range(1, 6):
        opened = open_lake(lake, version=version)
        assert opened.number == version
        assert open_numbers(opened) == [version]
        assert len(opened.tables["messages"]) == version
    newest = open_lake(lake)
    assert newest.number == 5 and newest.made.endswith("+00:00")
    assert [number for number, _, _ in newest.history()] == [5, 4, 3, 2, 1, 0]
    with pytest.raises(Permanent, match=r"^unable to open lake \S+: it has no version 17 \(any more\)$"):
        open_lake(lake, version=17)


def test_compaction_leaves_few_files_and_the_same_rows(log: GrowingLog, tmp_path: Path) -> None:
    lake, before = tmp_path / "lake", open_lake(str(tmp_path / "lake"))
    assert len(before.tables["messages"]) == 5
    log.grow(1)
    assert Lake(lake).build(tmp_path / "logs", compact=True).compacted >= 15
    after = open_lake(str(lake))
    assert {table: len(paths) for table, paths in after.tables.items() if paths} == dict.fromkeys(
        ("messages", "deliveries", "pending", "lines", "streams"), 1
    )
    assert_exact(Lake(lake), 6)
    # Who has opened an earlier version still reads it.
    assert open_numbers(before) == [5] and all((lake / path).exists() for path in before.tables["messages"])
    assert Lake(lake).build(tmp_path / "logs", compact=True).compacted == 0
    log.grow(1)
    Lake(lake).build(tmp_path / "logs")
    assert_exact(Lake(lake), 7)


def test_what_was_compacted_is_read_again_where_a_log_is_given_twice(log: GrowingLog, tmp_path: Path) -> None:
    Lake(tmp_path / "lake").build(tmp_path / "logs", compact=True)
    (tmp_path / "logs" / "a" / "q" / "current").rename(tmp_path / "log")
    lines = (tmp_path / "log").read_bytes()
    # Another file: it has a line more at its beginning.
    first = lines.splitlines(keepends=True)[0].replace(b"new msg 0", b"new msg 77")
    (tmp_path / "logs" / "a" / "q" / "current").write_bytes(first + lines)
    found = Lake(tmp_path / "lake").build(tmp_path / "logs")
    assert found.lines == {"new": 1, "repeated": 21}
    assert numbers(Lake(tmp_path / "lake")) == ([0, 1, 2, 3, 4], [5, 77])


def test_what_a_dead_build_has_left_goes_after_a_day_and_not_before(log: GrowingLog, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    kept = listed(lake)
    names = [f"tbl=messages/date=2023-11-14/{name}.parquet" for name in ("old", "young")]
    for name in names:
        (lake / name).write_bytes(b"never committed")
    old = time.time() - (lake_module.KEPT + 1) * 3600
    os.utime(lake / names[0], (old, old))
    before = data_files(lake)
    Lake(lake).build(tmp_path / "logs", compact=True)
    assert before - data_files(lake) == {names[0]}
    # The files of earlier versions stay as long, too.
    assert kept <= data_files(lake)


def test_files_that_count_no_more_go_once_nobody_may_read_them(
    log: GrowingLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lake_module, "KEPT", 0)
    Lake(tmp_path / "lake").build(tmp_path / "logs", compact=True)
    assert data_files(tmp_path / "lake") == listed(tmp_path / "lake")
    assert_exact(Lake(tmp_path / "lake"), 5)


def test_a_lake_that_holds_hundreds_of_versions_is_opened_from_a_checkpoint(tmp_path: Path) -> None:
    log = GrowingLog(tmp_path / "logs" / "a" / "q")
    for _ in range(102):
        log.grow(1)
        Lake(tmp_path / "lake").build(tmp_path / "logs")
    assert list((tmp_path / "lake" / "_delta_log").glob("*.checkpoint.parquet"))
    assert_exact(Lake(tmp_path / "lake"), 102)
