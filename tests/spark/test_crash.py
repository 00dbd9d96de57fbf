"""A build that dies, at any change of the disk, leaves the lake as it was or as it is to be; the next tidies up."""

import posixpath
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark.lake import update
from spark.lake.manifest import Manifest
from spark.lake.storage import Storage
from spark.lake.store import find_manifest, manifest_path
from spark.lake.update import Update, make_lake, prepare
from support.spark.crashing_storage import counting
from support.spark.scripted_logs import Crash, CrashAt, ScriptedLake, message, pending

pytestmark = pytest.mark.together

DAY = "date=2026-01-02/host=a"


def add(storage: Storage, name: str) -> Manifest:
    """Make an update without Spark: a message, another pending, one file put together."""
    make_lake(storage)
    before = prepare(storage)
    adding = Update(storage, before)
    home = posixpath.join(update.BATCHES, f"{before.number + 1:06}")
    for table, path in (("messages", f"{DAY}/part-0.parquet"), ("pending", "part-0.parquet")):
        storage.make_directory(posixpath.dirname(posixpath.join(home, table, path)))
        storage.write(posixpath.join(home, table, path), f"{name} {table}".encode())
    for table in ("messages", "pending"):
        adding.drop(table, before.tables.get(table, {}))
    adding.move()
    after = adding.commit({"name": name}, {})
    adding.clean()
    return after


def contents(storage: Storage, manifest: Manifest) -> set[bytes]:
    return {storage.read(path) for path in manifest.files()}


def files_on_disk(place: Path) -> set[str]:
    """Return every file below a lake, but its lock and its manifests."""
    files = {str(path.relative_to(place)) for path in place.rglob("*") if path.is_file()}
    return {path for path in files if not path.startswith(("_lock", "_manifest/"))}


# A torn write is the worse case of the two.
@pytest.mark.parametrize("torn", [pytest.param(False, marks=pytest.mark.exhaustive), True])
def test_death_at_any_change_of_the_disk_leaves_one_state_or_the_other(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, torn: bool
) -> None:
    monkeypatch.setattr(update, "GRACE", -1)
    with counting(monkeypatch) as all_of_them:
        storage = Storage(spark, str(tmp_path / "whole"))
        add(storage, "first")
        once = all_of_them.done
        add(storage, "second")
    states = set()
    for left in range(all_of_them.done - once):
        place = tmp_path / f"{left}"
        storage = Storage(spark, str(place))
        add(storage, "first")
        with counting(monkeypatch, left, torn), pytest.raises(Crash):
            add(storage, "second")
        found = find_manifest(storage)
        assert found is not None
        name = found.state["name"]
        states.add(name)
        assert contents(storage, found) == {f"{name} messages".encode(), f"{name} pending".encode()}
        last = add(storage, "third")
        assert contents(storage, last) == {b"third messages", b"third pending"}
        assert files_on_disk(place) == last.files() | set(last.dropped)
    assert states == {"first", "second"}


def test_death_in_the_first_build_leaves_an_empty_lake(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with counting(monkeypatch) as all_of_them:
        add(Storage(spark, str(tmp_path / "whole")), "first")
    for left in range(all_of_them.done):
        storage = Storage(spark, str(tmp_path / f"{left}"))
        with counting(monkeypatch, left), pytest.raises(Crash):
            add(storage, "first")
        last = add(storage, "second")
        assert files_on_disk(tmp_path / f"{left}") == last.files() | set(last.dropped)


def test_death_in_any_phase_of_a_build(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = ScriptedLake(spark, str(tmp_path / "lake"), monkeypatch)
    lake.script = [{"messages": [message("1.1")], "pending": [pending("2.2")]}]
    lake.build()
    seen = CrashAt()
    lake.script.append({"messages": [message("2.2")], "pending": [pending("3.3")]})
    states = set()
    for phase in ("looking at the logs", "reading lines", "writing messages", "writing quarantine", "moving files in",
                  "writing the manifest", "cleaning up"):  # fmt: skip
        with pytest.raises(Crash):
            lake.build(CrashAt(phase))
        state = (tuple(lake.rows("messages", "key")), tuple(lake.rows("pending", "key")))
        assert state in {((("1.1",),), (("2.2",),)), ((("1.1",), ("2.2",)), (("3.3",),))}
        states.add(state)
    lake.build(seen)
    assert len(states) == 2 and "looking at the logs" in seen.seen
    assert lake.rows("messages", "key") == [("1.1",), ("2.2",)] and lake.rows("pending", "key") == [("3.3",)]
    assert not list((tmp_path / "lake" / "_batch").iterdir())


def test_a_manifest_that_is_not_whole_does_not_count(spark: SparkSession, tmp_path: Path) -> None:
    storage = Storage(spark, str(tmp_path))
    add(storage, "first")
    add(storage, "second")
    whole = storage.read(manifest_path(2))
    for cut in range(0, len(whole) - 1, 7):
        storage.write(manifest_path(2), whole[:cut])
        found = find_manifest(storage)
        assert found is not None and found.state == {"name": "first"}
        assert contents(storage, found) == {b"first messages", b"first pending"}
    assert add(storage, "third").number == 3
