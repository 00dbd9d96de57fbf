"""A build that dies, at any change of the disk, leaves the lake as it was or as it is to be; the next tidies up."""

import posixpath
from pathlib import Path

import pytest
from spark.lake.manifest import Manifest
from spark.lake.newest import find_manifest, manifest_path
from spark.lake.update import Update, make_lake, prepare
from spark.runtime.places import LocalPlace, Place

from spark.lake import update
from support.spark.crashing_storage import counting
from support.spark.logs.scripted_logs import Crash, CrashAt, ScriptedLake, message, pending

DAY = "date=2026-01-02/host=a"


def add(place: Place, name: str) -> Manifest:
    """Make an update without Spark: a message, another pending, one file put together."""
    make_lake(place)
    before = prepare(place)
    adding = Update(place, before)
    home = posixpath.join(update.BATCHES, f"{before.number + 1:06}")
    for table, path in (("messages", f"{DAY}/part-0.parquet"), ("pending", "part-0.parquet")):
        place.make_directory(posixpath.dirname(posixpath.join(home, table, path)))
        place.write(posixpath.join(home, table, path), f"{name} {table}".encode())
    for table in ("messages", "pending"):
        adding.drop(table, before.tables.get(table, {}))
    adding.move()
    after = adding.commit({"name": name}, {})
    adding.clean()
    return after


def contents(place: Place, manifest: Manifest) -> set[bytes]:
    return {place.read(path) for path in manifest.files()}


def files_on_disk(place: Path) -> set[str]:
    """Return every file below a lake, but its lock and its manifests."""
    files = {str(path.relative_to(place)) for path in place.rglob("*") if path.is_file()}
    return {path for path in files if not path.startswith(("_lock", "_manifest/"))}


# A torn write is the worse case of the two.
@pytest.mark.parametrize("torn", [False, True])
def test_death_at_any_change_of_the_disk_leaves_one_state_or_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, torn: bool
) -> None:
    monkeypatch.setattr(update, "GRACE", -1)
    with counting(monkeypatch) as all_of_them:
        place = LocalPlace(str(tmp_path / "whole"))
        add(place, "first")
        once = all_of_them.done
        add(place, "second")
    states = set()
    for left in range(all_of_them.done - once):
        home = tmp_path / f"{left}"
        place = LocalPlace(str(home))
        add(place, "first")
        with counting(monkeypatch, left, torn), pytest.raises(Crash):
            add(place, "second")
        found = find_manifest(place)
        assert found is not None
        name = found.state["name"]
        states.add(name)
        assert contents(place, found) == {f"{name} messages".encode(), f"{name} pending".encode()}
        last = add(place, "third")
        assert contents(place, last) == {b"third messages", b"third pending"}
        assert files_on_disk(home) == last.files() | set(last.dropped)
    assert states == {"first", "second"}


def test_death_in_the_first_build_leaves_an_empty_lake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with counting(monkeypatch) as all_of_them:
        add(LocalPlace(str(tmp_path / "whole")), "first")
    for left in range(all_of_them.done):
        place = LocalPlace(str(tmp_path / f"{left}"))
        with counting(monkeypatch, left), pytest.raises(Crash):
            add(place, "first")
        last = add(place, "second")
        assert files_on_disk(tmp_path / f"{left}") == last.files() | set(last.dropped)


def test_death_in_any_phase_of_a_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = ScriptedLake(str(tmp_path / "lake"), monkeypatch)
    lake.script = [{"messages": [message("1.1")], "pending": [pending("2.2")]}]
    lake.build()
    seen = CrashAt()
    lake.script.append({"messages": [message("2.2")], "pending": [pending("3.3")]})
    states = set()
    for phase in ("looking at the logs", "matching lines", "writing pending", "moving files in",
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


def test_a_manifest_that_is_not_whole_does_not_count(tmp_path: Path) -> None:
    place = LocalPlace(str(tmp_path))
    add(place, "first")
    add(place, "second")
    whole = place.read(manifest_path(2))
    for cut in range(0, len(whole) - 1, 7):
        place.write(manifest_path(2), whole[:cut])
        found = find_manifest(place)
        assert found is not None and found.state == {"name": "first"}
        assert contents(place, found) == {b"first messages", b"first pending"}
    assert add(place, "third").number == 3
