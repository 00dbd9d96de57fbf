"""A build that dies, at any change of the disk, leaves the lake as it was or as it is to be; the next goes on."""

import os
import shutil
from pathlib import Path

import pytest

from queue_base.errors import Permanent, Temporary
from queue_report.lake import lake as lake_module
from queue_report.lake.lake import open_lake
from support.spark.dying_files import counting
from support.spark.killed_build import Crash, CrashAt, build_and_tidy
from support.spark.logs.growing_log import GrowingLog, assert_exact, numbers
from support.spark.logs.log_lake import Lake

PHASES = ("looking at the lake", "looking at the logs", "starting Spark", "matching lines", "writing what is open",
          "committing")  # fmt: skip


def assert_only_what_counts(lake: Path, patch: pytest.MonkeyPatch) -> None:
    """Check that a vacuum, once all is old enough, leaves the data files that count."""
    opened = open_lake(str(lake))
    with patch.context() as inner:
        inner.setattr(lake_module, "KEPT", 0)
        opened.vacuum()
    found = {os.path.relpath(path, lake) for path in lake.rglob("*.parquet") if path.parent.name != "_delta_log"}
    assert found == {path for paths in opened.tables.values() for path in paths}


# A torn write is the worse case of the two.
@pytest.mark.parametrize("torn", [False, True])
def test_death_at_any_change_of_the_disk_leaves_one_state_or_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, torn: bool
) -> None:
    log = GrowingLog(tmp_path / "logs" / "a" / "q")
    log.grow(2)
    first = tmp_path / "first"
    build_and_tidy(tmp_path / "logs", first, CrashAt())
    log.grow(3)
    with counting(monkeypatch) as all_of_them:
        build_and_tidy(tmp_path / "logs", copy(first, tmp_path / "whole"), CrashAt())
    states = []
    for left in range(all_of_them.done):
        place = copy(first, tmp_path / str(left))
        with counting(monkeypatch, left, torn), pytest.raises(Crash):
            build_and_tidy(tmp_path / "logs", place, CrashAt())
        ended, _ = numbers(Lake(place))
        assert_exact(Lake(place), len(ended))
        states.append(len(ended))
        Lake(place).build(tmp_path / "logs")
        assert_exact(Lake(place), 5)
        assert_only_what_counts(place, monkeypatch)
    assert states == sorted(states) and set(states) == {2, 5}


def copy(lake: Path, place: Path) -> Path:
    """Copy a lake. Times stay, as that of Delta's files are what tells when they were made."""
    return Path(shutil.copytree(lake, place))


def test_death_in_the_first_build_leaves_an_empty_lake_or_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = GrowingLog(tmp_path / "logs" / "a" / "q")
    log.grow(2)
    with counting(monkeypatch) as all_of_them:
        Lake(tmp_path / "whole").build(tmp_path / "logs")
    for left in range(all_of_them.done):
        place = tmp_path / str(left)
        with counting(monkeypatch, left), pytest.raises(Crash):
            Lake(place).build(tmp_path / "logs")
        try:
            open_lake(str(place))
        except Permanent as error:
            assert "there is no lake of queue-report; make it with" in str(error)
        Lake(place).build(tmp_path / "logs")
        assert_exact(Lake(place), 2)
        assert_only_what_counts(place, monkeypatch)


def test_death_in_any_phase_of_a_build(tmp_path: Path) -> None:
    log, lake = GrowingLog(tmp_path / "logs" / "a" / "q"), tmp_path / "lake"
    log.grow(2)
    Lake(lake).build(tmp_path / "logs")
    log.grow(1)
    seen = CrashAt()
    for phase in PHASES:
        with pytest.raises(Crash):
            build_and_tidy(tmp_path / "logs", lake, CrashAt(phase))
        assert_exact(Lake(lake), 2)
    build_and_tidy(tmp_path / "logs", lake, seen)
    assert_exact(Lake(lake), 3)
    for number, phase in enumerate(seen.seen[len(PHASES) :], 4):
        log.grow(1)
        with pytest.raises(Crash):
            build_and_tidy(tmp_path / "logs", lake, CrashAt(phase))
        assert_exact(Lake(lake), number)
    assert tuple(seen.seen[: len(PHASES)]) == PHASES


def test_a_version_whose_entry_a_disk_has_lost_is_made_again(tmp_path: Path) -> None:
    log, lake = GrowingLog(tmp_path / "logs" / "a" / "q"), tmp_path / "lake"
    Lake(lake).build(tmp_path / "logs")
    log.grow(1)
    Lake(lake).build(tmp_path / "logs")
    entry = lake / "_delta_log" / "00000000000000000002.json"
    entry.write_bytes(entry.read_bytes()[:-9])
    with pytest.raises(Temporary, match=rf"^unable to open lake {lake}: .*; nothing is shown$"):
        open_lake(str(lake))
    entry.unlink()
    assert_exact(Lake(lake), 0)
    Lake(lake).build(tmp_path / "logs")
    assert_exact(Lake(lake), 1)
