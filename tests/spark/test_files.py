"""Log files through Hadoop's file systems are read as those of the local one are: as many bytes as are asked for."""

import hashlib
import os
import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark.lake.storage import Storage
from spark.logs import sources
from spark.logs.files import Entry, Files, HadoopFiles, LocalFiles
from spark.logs.plan import SourceError
from support.spark.log_files import rotated, write_files
from support.spark.log_world import World

pytestmark = pytest.mark.together

TEXT = b"0123456789" * 30_000


@pytest.fixture(params=["local", "hadoop"])
def files(request: pytest.FixtureRequest, spark: SparkSession) -> Files:
    return LocalFiles(spark) if request.param == "local" else HadoopFiles(spark)


def place(files: Files, path: Path) -> str:
    """Return a path as that file system has it."""
    return files.qualify(str(path)) if isinstance(files, HadoopFiles) else str(path)


def test_a_part_of_a_file_is_read_and_no_more(files: Files, tmp_path: Path) -> None:
    log = tmp_path / "current"
    log.write_bytes(TEXT)
    for start, size in ((0, 3), (2, 7), (70_000, 130_000), (299_998, 10), (0, 0)):
        assert files.read(place(files, log), start, size) == TEXT[start : start + size]
        assert files.digest(place(files, log), start, size) == hashlib.sha256(TEXT[start : start + size]).hexdigest()


def test_what_is_staged_ends_where_it_is_told_to_though_the_file_goes_on(files: Files, tmp_path: Path) -> None:
    log, copy = tmp_path / "current", tmp_path / "staging" / "0"
    log.write_bytes(TEXT)
    assert files.stage(place(files, log), 5, 12, b"head", place(files, copy)) == 11
    assert copy.read_bytes() == b"head5678901"
    assert files.stage(place(files, log), len(TEXT) - 4, len(TEXT) + 9, b"", place(files, copy)) == 4
    assert copy.read_bytes() == b"6789"


def test_a_directory_is_listed_with_sizes(files: Files, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "current").write_bytes(TEXT)
    found = {(one.name, one.is_directory): one.size for one in files.list(place(files, tmp_path))}
    assert found.keys() == {("a", True), ("current", False)} and found["current", False] == len(TEXT)
    assert files.list(place(files, tmp_path / "current")) == [Entry("", False, len(TEXT))]


def test_through_hadoop_the_same_is_new_in_logs_as_on_the_local_disk(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = tmp_path / "logs"
    write_files(logs / "mx1" / "in", rotated(World(1, "mx1", "in").run(200).lines, random.Random(1), 6))
    local, hadoop = tmp_path / "local", tmp_path / "hadoop"
    expected = sources.plan(spark, str(logs), {}, str(local))
    found_files = HadoopFiles(spark)
    monkeypatch.setattr(sources, "open_files", lambda _, *paths: (found_files, list(map(found_files.qualify, paths))))
    found = sources.plan(spark, str(logs), {}, str(hadoop))
    assert found.state == expected.state and found.bytes == expected.bytes
    assert [piece.file for piece in found.pieces] == [piece.file for piece in expected.pieces]
    staged = {path.relative_to(local): path.read_bytes() for path in local.rglob("*") if path.is_file()}
    assert staged == {
        path.relative_to(hadoop): path.read_bytes()
        for path in hadoop.rglob("*")
        if path.is_file() and path.suffix != ".crc"
    }
    assert staged


def test_what_is_missing_is_told_from_what_is_in_trouble(files: Files, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        files.read(place(files, tmp_path / "missing"), 0, 1)
    with pytest.raises(FileNotFoundError):
        files.list(place(files, tmp_path / "missing"))
    with pytest.raises(OSError) as trouble:
        files.read(place(files, tmp_path), 0, 1)
    assert not isinstance(trouble.value, FileNotFoundError)


def test_a_log_that_is_removed_while_it_is_looked_at_is_not_missed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """multilog removes the oldest file when there are too many."""
    write_files(tmp_path / "logs" / "h" / "q", rotated(World(1, "h", "q").run(200).lines, random.Random(1), 4, 0.0))
    oldest = min((tmp_path / "logs" / "h" / "q").glob("@*"))
    read = LocalFiles.read

    def remove_first(self: LocalFiles, path: str, start: int, size: int) -> bytes:
        oldest.unlink(missing_ok=True)
        return read(self, path, start, size)

    monkeypatch.setattr(LocalFiles, "read", remove_first)
    found = sources.plan(spark, str(tmp_path / "logs"), {}, str(tmp_path / "copies"))
    assert [piece.name for piece in found.pieces] == [*sorted(p.name for p in oldest.parent.glob("@*")), "current"]


@pytest.mark.parametrize(
    ("host", "told"),
    [("__HIVE_DEFAULT_PARTITION__", "no host may be called"), (os.fsdecode(b"mx\xff"), "its name is not UTF-8")],
)
def test_a_host_that_no_table_can_name_is_refused(spark: SparkSession, tmp_path: Path, host: str, told: str) -> None:
    write_files(tmp_path / host / "q", rotated(World(1).run(20).lines, random.Random(1), 1))
    with pytest.raises(SourceError, match=told):
        sources.plan(spark, str(tmp_path), {}, str(tmp_path / "copies"))


def test_a_lake_that_java_cannot_name_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="is no UTF-8"):
        Storage(spark, os.fsdecode(bytes(tmp_path) + b"/\xff"))
