"""A build under Spark makes the tables that one without it makes: by executors' Python, or by Spark's own files."""

import os
import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from spark.logs.segments import cut
from spark.runtime.places import HadoopPlace, Place

from spark.lake import batch
from spark.lake import build as build_module
from spark.lake.build import DRIVER_SETTING, Order, Summary, build
from spark.runtime.progress import Progress
from spark.tables.columns import COLUMNS
from support.spark.logs.log_files import damage, rotated, write_files
from support.spark.logs.log_lake import Lake
from support.spark.logs.log_world import World

pytestmark = pytest.mark.together
ALWAYS_SPARK = {"spark.master": "local[2]", DRIVER_SETTING: "0"}


class OneSession:
    """The tests' session, as a build asks for it."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self.asked = 0

    def get(self, *, little: bool = False) -> SparkSession:
        self.asked += 1
        return self._spark


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


def same(one: Path, two: Path) -> None:
    for table in COLUMNS:
        rows = [sorted(map(repr, Lake(lake).rows(table))) for lake in (one, two)]
        assert rows[0] == rows[1], table


def run(order: Order, sessions: OneSession) -> Summary:
    return build(order, sessions, Progress())


def test_executors_make_the_same_tables_of_many_segments(
    spark: SparkSession, logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "choose_size", lambda total, cores: 2000)
    monkeypatch.setattr(batch, "_TASK_BYTES", 5000)
    sessions = OneSession(spark)
    for place in (half_of(logs, tmp_path / "half"), logs):
        here = Lake(tmp_path / "here").build(place)
        there = run(Order(str(place), str(tmp_path / "there"), settings=ALWAYS_SPARK), sessions)
        assert (there.lines, there.rows, there.bytes, there.files) == (here.lines, here.rows, here.bytes, here.files)
        same(tmp_path / "here", tmp_path / "there")
    assert sessions.asked == 2
    # Large edges are files, and executors join them.
    monkeypatch.setattr("spark.lake.matching.LARGE_EDGE", 0)
    monkeypatch.setattr(batch, "EDGES_MAX", 0)
    run(Order(str(logs), str(tmp_path / "joined"), settings=ALWAYS_SPARK), sessions)
    Lake(tmp_path / "whole").build(logs)
    same(tmp_path / "whole", tmp_path / "joined")
    assert not list((tmp_path / "joined" / "_batch").iterdir())


def test_through_other_file_systems_the_same_tables_are_made(
    spark: SparkSession, logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def open_elsewhere(path: str, session: object, settings: object) -> Place:
        place = HadoopPlace(spark, path)
        place.local = None  # As it is on HDFS.
        return place

    monkeypatch.setattr("spark.logs.sources._KEPT", 1000)
    for place in (half_of(logs, tmp_path / "half"), logs):
        here = Lake(tmp_path / "here").build(place)
        with monkeypatch.context() as patch:
            patch.setattr(build_module, "open_place", open_elsewhere)
            there = run(Order(str(place), str(tmp_path / "there"), settings=ALWAYS_SPARK), OneSession(spark))
            assert there.warnings == here.warnings == []
            assert (there.lines, there.rows) == (here.lines, here.rows)
            assert not run(Order(str(place), str(tmp_path / "there"), settings=ALWAYS_SPARK), OneSession(spark)).lines
        same(tmp_path / "here", tmp_path / "there")
    assert {path.suffix for path in (tmp_path / "there").rglob("*") if path.is_file()} == {".parquet", ".json"}


def test_a_log_that_vanishes_before_its_task_leaves_its_stream_as_it_was(
    spark: SparkSession, logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = half_of(logs, tmp_path / "logs")
    gone = min((copy / "b" / "in").glob("@*"))

    def lose(*words: object) -> object:
        if gone.exists():
            os.rename(gone, tmp_path / "gone")
        return cut(*words)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(batch, "cut", lose)
        found = run(Order(str(copy), str(tmp_path / "lake"), settings=ALWAYS_SPARK), OneSession(spark))
    (warning,) = found.warnings
    assert warning.startswith("queue in of host b is left as it was: ") and "no such file" in warning
    assert found.streams == 3
    os.rename(tmp_path / "gone", gone)
    assert run(Order(str(copy), str(tmp_path / "lake"), settings=ALWAYS_SPARK), OneSession(spark)).streams == 1
    Lake(tmp_path / "whole").build(copy)
    same(tmp_path / "whole", tmp_path / "lake")


def test_small_work_needs_no_spark(logs: Path, tmp_path: Path) -> None:
    from support.spark.logs.scripted_logs import NoSpark

    found = build(Order(str(logs), str(tmp_path / "lake"), compact=True, expire=100_000), NoSpark(), Progress())
    assert found.streams == 4
