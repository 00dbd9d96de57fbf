"""Logs and a lake in an object store, by way of delta-rs alone: S3 as moto's server has it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from queue_base.errors import Permanent, Temporary
from queue_report.lake.build import Order, Summary, build
from queue_report.lake.data_files import read_files
from queue_report.lake.lake import open_lake
from queue_report.runtime.files import open_files
from support.spark.killed_build import CrashAt
from support.spark.logs.growing_log import LINES, GrowingLog
from support.spark.object_store import BUCKET, ObjectStore
from support.spark.runner import InProcess, OneSession

pytestmark = pytest.mark.together


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    with ObjectStore() as running:
        yield running


@pytest.fixture
def log(tmp_path: Path) -> GrowingLog:
    log = GrowingLog(tmp_path / "logs" / "a" / "q")
    log.grow(20)
    return log


def run(store: ObjectStore, name: str, runner: Any = None, progress: CrashAt | None = None, **tidy: Any) -> Summary:
    order = Order(f"{BUCKET}/{name}/logs", f"{BUCKET}/{name}/lake", settings=store.settings, **tidy)
    return build(order, runner or InProcess(), progress or CrashAt())


def assert_exact(store: ObjectStore, name: str, count: int) -> None:
    """Check that each line counts once, where so many messages have ended."""
    lake = open_lake(f"{BUCKET}/{name}/lake", store.store)
    rows = {table: read_files(lake.files, table, lake.tables[table]) for table in ("messages", "pending", "lines")}
    assert sorted(rows["messages"].column("id").to_pylist()) == list(range(count))
    assert rows["pending"].column("id").to_pylist() == [count] and len(rows["lines"]) == LINES * count + 1


@pytest.mark.parametrize("with_spark", [False, True])
def test_logs_that_grow_and_rotate_are_read_once_and_the_lake_is_tidied(
    store: ObjectStore, log: GrowingLog, tmp_path: Path, spark: SparkSession, with_spark: bool
) -> None:
    name = f"grows-{with_spark}"
    runner = OneSession(spark) if with_spark else InProcess()
    for step in range(3):
        store.copy(tmp_path / "logs", f"{BUCKET}/{name}/logs")
        found = run(store, name, runner, compact=step == 2, expire=36_525)
        assert found.warnings == [] and found.lines["end"] > 0
        assert_exact(store, name, log.ended)
        assert not run(store, name, runner).lines
        log.grow(5)
        log.rotate()
        log.grow(5)
    lake = open_lake(f"{BUCKET}/{name}/lake", store.store)
    assert len(lake.tables["messages"]) == 1 and runner.ran == 3


def test_a_build_that_is_beaten_takes_what_the_other_has_left(
    store: ObjectStore, log: GrowingLog, tmp_path: Path
) -> None:
    class Meanwhile(CrashAt):
        def phase(self, text: str) -> None:
            super().phase(text)
            if text == "committing" and self.seen.count(text) == 1:
                run(store, "beaten")

    store.copy(tmp_path / "logs", f"{BUCKET}/beaten/logs")
    run(store, "beaten")
    log.grow(3)
    store.copy(tmp_path / "logs", f"{BUCKET}/beaten/logs")
    assert run(store, "beaten", progress=Meanwhile()).lines == {}
    assert_exact(store, "beaten", 23)


def test_what_is_not_there_or_cannot_be_reached_is_said_in_one_line(store: ObjectStore, tmp_path: Path) -> None:
    with pytest.raises(Permanent, match=r"there is no lake of queue-report"):
        open_lake(f"{BUCKET}/nowhere/lake", store.store)
    with pytest.raises(Permanent, match=r"^unable to read logs s3://mail/nowhere/logs: .*; the lake is as it was$"):
        run(store, "nowhere")
    gone = store.store | {"AWS_ENDPOINT_URL": "http://127.0.0.1:9", "max_retries": "0", "retry_timeout": "1s"}
    with pytest.raises((Temporary, OSError)) as failed:
        open_lake(f"{BUCKET}/grows/lake", gone)
    assert "\n" not in str(failed.value) and "\x1b" not in str(failed.value)


def test_files_of_a_store_are_those_of_a_directory(store: ObjectStore) -> None:
    files = open_files(f"{BUCKET}/files", store.store)
    files.write("a/b/x", memoryview(b"one"))
    assert files.read("a/b/x") == b"one"
    assert [(one.name, one.is_directory) for one in files.list("a")] == [("b", True)]
    assert [(one.name, one.size) for one in files.list("a/b")] == [("x", 3)]
    with files.open("a/b/x") as file:
        file.seek(1)
        assert file.read(9) == b"ne"
    files.remove("a/b/x")
    files.remove("a/b/x")
    for look in (files.read, files.list, files.open):
        with pytest.raises(FileNotFoundError):
            look("a/b/x")
