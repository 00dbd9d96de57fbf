"""Files through Hadoop's file systems are read and changed as those of the local one are."""

import hashlib
import os
import random
from pathlib import Path

import pytest
from spark.logs.plan import SourceError
from spark.runtime.places import Entry, LocalPlace, Place, local_path, open_place

from spark.logs import sources
from support.spark.logs.log_files import rotated, write_files
from support.spark.logs.log_world import World

TEXT = b"0123456789" * 30_000
HADOOP = pytest.param("hadoop", marks=pytest.mark.together)


def hadoop(path: Path) -> Place:
    """Return a local directory as Hadoop has it; only `local` is not told, as of another machine's."""
    from spark.runtime.places import HadoopPlace

    from support.spark.session import session

    place = HadoopPlace(session(), str(path))
    place.local = None
    return place


@pytest.fixture(params=["local", HADOOP])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return LocalPlace(str(tmp_path)) if request.param == "local" else hadoop(tmp_path)


def test_a_part_of_a_file_is_read_and_no_more(place: Place, tmp_path: Path) -> None:
    (tmp_path / "current").write_bytes(TEXT)
    for start, size in ((0, 3), (2, 7), (70_000, 130_000), (299_998, 10), (0, 0)):
        assert place.read("current", start, size) == TEXT[start : start + size]
        assert place.digest("current", start, size) == hashlib.sha256(TEXT[start : start + size]).hexdigest()
    assert place.read("current") == TEXT


def test_a_copy_ends_where_it_is_told_to_though_the_file_goes_on(place: Place, tmp_path: Path) -> None:
    (tmp_path / "current").write_bytes(TEXT)
    assert place.copy("current", 5, 12, place, "staging/0") == 7
    assert (tmp_path / "staging" / "0").read_bytes() == b"5678901"
    assert place.copy("current", len(TEXT) - 4, len(TEXT) + 9, place, "staging/0") == 4
    assert (tmp_path / "staging" / "0").read_bytes() == b"6789"


def test_a_directory_is_listed_with_sizes(place: Place, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "current").write_bytes(TEXT)
    found = {(one.name, one.is_directory): one.size for one in place.list()}
    assert found.keys() == {("a", True), ("current", False)} and found["current", False] == len(TEXT)
    assert place.list("current") == [Entry("", False, len(TEXT))]


def test_files_are_written_renamed_and_removed(place: Place, tmp_path: Path) -> None:
    place.make_directory("a/b")
    place.write("a/b/x", b"one")
    with pytest.raises(OSError):
        place.write("a/b/x", b"two", replace=False)
    place.rename("a/b/x", "a/y")
    assert place.exists("a/y") and not place.exists("a/b/x") and (tmp_path / "a" / "y").read_bytes() == b"one"
    place.remove_empty("a")
    place.remove_empty("a/b")
    assert [one.name for one in place.list("a")] == ["y"]
    place.remove("a")
    place.remove("a")
    assert place.list() == []


@pytest.mark.together
def test_through_hadoop_the_same_is_new_in_logs_as_on_the_local_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = tmp_path / "logs"
    write_files(logs / "mx1" / "in", rotated(World(1, "mx1", "in").run(200).lines, random.Random(1), 6))
    monkeypatch.setattr(sources, "KEPT_MAX", 0)
    monkeypatch.setattr(sources, "_KEPT", 0)
    expected = sources.plan(LocalPlace(str(logs)), {}, LocalPlace(str(tmp_path / "local")))
    found = sources.plan(hadoop(logs), {}, hadoop(tmp_path / "hadoop"))
    assert found.state == expected.state and found.bytes == expected.bytes
    for one, two in zip(*(plan.streams["mx1", "in"] for plan in (found, expected)), strict=True):
        assert (one.file, one.start, one.end, one.head, one.torn) == (two.file, two.start, two.end, two.head, two.torn)
    staged = [
        {path.name: path.read_bytes() for path in (tmp_path / name).iterdir() if path.suffix != ".crc"}
        for name in ("local", "hadoop")
    ]
    assert staged[0] == staged[1] and staged[0]


def test_what_is_missing_is_told_from_what_is_in_trouble(place: Place, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        place.read("missing", 0, 1)
    with pytest.raises(FileNotFoundError):
        place.list("missing")
    (tmp_path / "directory").mkdir()
    with pytest.raises(OSError) as trouble:
        place.read("directory", 0, 1)
    assert not isinstance(trouble.value, FileNotFoundError)


def test_a_log_that_is_removed_while_it_is_looked_at_is_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """multilog removes the oldest file when there are too many."""
    write_files(tmp_path / "logs" / "h" / "q", rotated(World(1, "h", "q").run(200).lines, random.Random(1), 4, 0.0))
    oldest = min((tmp_path / "logs" / "h" / "q").glob("@*"))
    read = LocalPlace.read

    def remove_first(self: LocalPlace, path: str, start: int = 0, size: int | None = None) -> bytes:
        oldest.unlink(missing_ok=True)
        return read(self, path, start, size)

    monkeypatch.setattr(LocalPlace, "read", remove_first)
    found = sources.plan(LocalPlace(str(tmp_path / "logs")), {}, LocalPlace(str(tmp_path / "copies")))
    names = [part.name for part in found.streams["h", "q"]]
    assert names == [*sorted(path.name for path in oldest.parent.glob("@*")), "current"]


@pytest.mark.parametrize(
    ("host", "told"),
    [("__HIVE_DEFAULT_PARTITION__", "no host may be called"), (os.fsdecode(b"mx\xff"), "its name is not UTF-8")],
)
def test_a_host_that_no_table_can_name_is_refused(tmp_path: Path, host: str, told: str) -> None:
    write_files(tmp_path / host / "q", rotated(World(1).run(20).lines, random.Random(1), 1))
    with pytest.raises(SourceError, match=told):
        sources.plan(LocalPlace(str(tmp_path)), {}, LocalPlace(str(tmp_path / "copies")))


def test_a_lake_that_java_cannot_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="is no UTF-8"):
        LocalPlace(os.fsdecode(bytes(tmp_path) + b"/\xff"))


def test_spark_is_asked_only_for_what_may_be_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR", "PYSPARK_GATEWAY_PORT"):
        monkeypatch.delenv(name, raising=False)
    assert local_path("/srv/a b%41") == "/srv/a b%41" and local_path("file:///srv/a%20b") == "/srv/a b"
    assert local_path("/srv", {"spark.master": "local[2]"}) == "/srv"
    assert local_path("hdfs:///srv") is local_path("s3a://bucket/x") is None
    assert local_path("/srv", {"spark.master": "yarn"}) is None
    assert local_path("/srv", {"spark.hadoop.fs.defaultFS": "hdfs://n"}) is None
    assert local_path("file:/srv", {"spark.master": "yarn"}) == "/srv"
    monkeypatch.setenv("HADOOP_CONF_DIR", "/etc/hadoop/conf")
    assert local_path("/srv") is None
    monkeypatch.chdir(tmp_path)
    assert open_place("file:///srv", lambda: pytest.fail("asked")).root == "/srv"
