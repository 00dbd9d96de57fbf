"""A build under Spark makes the tables that one in this process makes, in a stage of Spark's."""

import os
import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from queue_base.errors import Permanent, Temporary
from queue_report.lake import build as build_module
from queue_report.lake.build import Order, Summary, build
from queue_report.lake.lake import open_lake
from queue_report.logs.streams import find_streams
from queue_report.runtime.progress import Progress
from support.spark.frozen_tables import compare, groups, unpack_trees
from support.spark.logs.growing_log import GrowingLog, assert_exact, same_rows
from support.spark.logs.log_files import damage, rotated, write_files
from support.spark.logs.log_lake import Lake
from support.spark.logs.log_world import World
from support.spark.runner import OneSession

pytestmark = pytest.mark.together


@pytest.fixture
def sessions(spark: SparkSession) -> OneSession:
    return OneSession(spark)


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the logs of three hosts, one of them damaged, with lines there twice."""
    top = tmp_path_factory.mktemp("under") / "logs"
    for number, place in enumerate(("a/in", "a/out", "b/in", "c ü%/in")):
        host, queue = place.split("/")
        rng = random.Random(number)
        files = rotated(World(number, host, queue).run(200).lines, rng, 4)
        write_files(top / place, damage(files, rng) if host == "b" else files)
    return top


def half_of(logs: Path, place: Path) -> Path:
    """Copy the older half of each stream's files, in which the next build's `pending` begins."""
    for directory in logs.glob("*/*"):
        files = sorted(path for path in directory.glob("@*"))[:2]
        write_files(place / directory.relative_to(logs), [(path.name, path.read_bytes()) for path in files])
    return place


def run(logs: Path, lake: Path, sessions: OneSession) -> Summary:
    return build(Order(str(logs), str(lake)), sessions, Progress())


def test_executors_make_the_same_tables_in_stages_of_spark_s(
    sessions: OneSession, logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each stream is a task.
    monkeypatch.setattr(build_module, "_LEAST", 1)
    for place in (half_of(logs, tmp_path / "half"), logs):
        here = Lake(tmp_path / "here").build(place)
        there = run(place, tmp_path / "there", sessions)
        assert (there.lines, there.rows, there.bytes, there.files) == (here.lines, here.rows, here.bytes, here.files)
        same_rows(tmp_path / "here", tmp_path / "there")
    assert sessions.ran == 2 and all(stages >= 1 for stages in sessions.stages)
    assert not run(logs, tmp_path / "there", sessions).lines and sessions.ran == 2


def test_a_build_of_a_line_runs_a_stage_of_spark_s(sessions: OneSession, tmp_path: Path) -> None:
    log = GrowingLog(tmp_path / "logs" / "a" / "q")
    for _ in range(2):
        log.grow(1)
        assert run(tmp_path / "logs", tmp_path / "lake", sessions).lines
    assert len(sessions.stages) == 2 and all(sessions.stages)
    assert_exact(Lake(tmp_path / "lake"), 2)


def test_logs_of_all_kinds_make_the_tables_that_they_made_before(sessions: OneSession, tmp_path: Path) -> None:
    trees = groups(unpack_trees(tmp_path / "trees"))[0]
    told = compare(trees, "three pieces", tmp_path / "work", sessions)
    assert not told, "\n".join(told[:20])


def test_a_log_that_vanishes_before_its_task_leaves_its_stream_as_it_was(
    sessions: OneSession, logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = half_of(logs, tmp_path / "logs")

    def lose(*given: Any) -> object:
        found = find_streams(*given)
        os.rename(copy / "b" / "in", tmp_path / "gone")
        return found

    with monkeypatch.context() as patch:
        patch.setattr(build_module, "find_streams", lose)
        found = run(copy, tmp_path / "lake", sessions)
    (warning,) = found.warnings
    assert warning.startswith("queue in of host b is left as it was: ") and "no such file" in warning
    assert found.streams == 3
    os.rename(tmp_path / "gone", copy / "b" / "in")
    assert run(copy, tmp_path / "lake", sessions).streams == 1
    Lake(tmp_path / "whole").build(copy)
    same_rows(tmp_path / "whole", tmp_path / "lake")


def test_trouble_of_an_executor_with_the_lake_is_told_as_the_driver_s_own(
    sessions: OneSession, tmp_path: Path
) -> None:
    log, lake = GrowingLog(tmp_path / "logs" / "a" / "q"), tmp_path / "lake"
    run(tmp_path / "logs", lake, sessions)
    log.grow(1)
    path = lake / open_lake(str(lake)).tables["pending"][0]
    content = path.read_bytes()
    path.write_bytes(b"")
    with pytest.raises(Permanent, match=rf"^unable to read {path}: it is damaged: "):
        run(tmp_path / "logs", lake, sessions)
    path.write_bytes(content)
    (lake / "tbl=messages").write_text("in the way")
    with pytest.raises(Temporary, match=r"; it is as it was, run this again to go on$"):
        run(tmp_path / "logs", lake, sessions)
    (lake / "tbl=messages").unlink()
    run(tmp_path / "logs", lake, sessions)
    assert_exact(Lake(lake), 1)
