"""A lake is built batch by batch: rows come back as they went in, few files hold them, and old dates go."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from spark.lake import update
from spark.tables.arrow import ARROW
from support.spark.logs.scripted_logs import ScriptedLake, message, pending, quarantined

STRANGE = ["007", "1e3", "null", "a:b c{}[*]/%41=", "ä"]


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ScriptedLake:
    return ScriptedLake(str(tmp_path / "the [lake] {x}"), monkeypatch)


def data_files(lake: ScriptedLake) -> set[str]:
    """Return the data files on the disk, as paths below the lake."""
    home = Path(lake.place)
    return {str(path.relative_to(home)) for path in home.rglob("*.parquet")}


def listed(lake: ScriptedLake) -> set[str]:
    """Return the data files that count."""
    return lake.manifest().files()


def test_rows_come_back_as_they_went_in_whatever_the_host_is_called(lake: ScriptedLake) -> None:
    lake.script = [
        {
            "messages": [message(f"{index}.1", host=host) for index, host in enumerate(STRANGE)],
            "pending": [pending("9.1")],
            "quarantine": [quarantined("dated", "1999-12-31"), quarantined("undated", None)],
        }
    ]
    summary = lake.build()
    assert lake.rows("messages", "host", "key") == sorted((host, f"{n}.1") for n, host in enumerate(STRANGE))
    assert lake.rows("pending", "key", "seen") == [("9.1", [1, 2])]
    today = datetime.now(UTC).date()
    dates = dict(lake.rows("quarantine", "text", "date"))
    assert dates["dated"].isoformat() == "1999-12-31" and today - dates["undated"] <= timedelta(days=1)
    for table, schema in ARROW.items():
        assert lake.table(table).schema == schema
    assert summary.rows == {"messages": 5, "deliveries": 0, "intervals": 0, "alerts": 0, "sessions": 0,
                            "accepted": 0, "refusals": 0, "filters": 0, "stored": 0, "runs": 0,
                            "pending": 1, "quarantine": 2, "lines": 0}


def test_a_build_with_nothing_new_writes_nothing(lake: ScriptedLake) -> None:
    lake.script = [{"messages": [message("1.1")]}]
    lake.build()
    before = {path: path.stat().st_mtime_ns for path in Path(lake.place).rglob("*") if path.is_file()}
    assert lake.build().lines == {}
    after = {path: path.stat().st_mtime_ns for path in Path(lake.place).rglob("*") if path.is_file()}
    del before[Path(lake.place, "_lock")], after[Path(lake.place, "_lock")]
    assert after == before


def test_pending_is_replaced_and_the_rest_added_to(lake: ScriptedLake) -> None:
    lake.script = [
        {"messages": [message("1.1")], "pending": [pending("2.2")]},
        {"messages": [message("2.2")], "pending": [pending("3.3"), pending("4.4")]},
    ]
    lake.build()
    reader = lake.manifest()
    lake.build()
    assert lake.rows("messages", "key") == [("1.1",), ("2.2",)]
    assert lake.rows("pending", "key") == [("3.3",), ("4.4",)]
    # Who opened the lake before still sees it whole.
    assert lake.table("pending", reader).column("key").to_pylist() == ["2.2"]


def test_compaction_leaves_few_files_and_the_same_rows(lake: ScriptedLake, monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = ("a", "b")
    lake.script = [{"messages": [message(f"{n}.{host}", host=host) for host in hosts]} for n in range(5)]
    lake.script[0]["messages"].append(message("alone", day="2026-01-03"))
    for _ in lake.script:
        lake.build()
    before = lake.rows("messages", "host", "key", "done", "date")
    reader = lake.manifest()
    assert len([path for path in listed(lake) if path.startswith("messages/")]) == 11
    assert lake.build(compact=True).compacted == 10
    assert len([path for path in listed(lake) if path.startswith("messages/")]) == 3
    assert lake.rows("messages", "host", "key", "done", "date") == before
    assert lake.table("messages", reader).num_rows == 11
    assert lake.build(compact=True).compacted == 0
    monkeypatch.setattr(update, "GRACE", -1)
    lake.build()
    assert data_files(lake) == listed(lake)
    assert lake.rows("messages", "host", "key", "done", "date") == before


def test_large_partitions_are_put_together_in_several_files(
    lake: ScriptedLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spark.lake import compact

    monkeypatch.setattr(compact, "WANTED", 10_000)
    lake.script = [{"messages": [message(f"{n}.{m}") for m in range(20)]} for n in range(5)]
    for _ in lake.script:
        lake.build()
    lake.build(compact=True)
    assert 1 < len([path for path in listed(lake) if path.startswith("messages/")]) < 5
    assert len(lake.rows("messages", "key")) == 100


def test_whole_dates_expire(lake: ScriptedLake, monkeypatch: pytest.MonkeyPatch) -> None:
    today = datetime.now(UTC).date()
    days = [(today - timedelta(days=ago)).isoformat() for ago in (0, 1, 29, 31, 400)]
    lake.script = [{"messages": [message(day, day) for day in days], "pending": [pending("1.1")]}]
    lake.build()
    assert lake.build(expire=30).expired == 2
    assert [key for (key,) in lake.rows("messages", "key")] == sorted(days[:3])
    assert lake.rows("pending", "key") == [("1.1",)]
    monkeypatch.setattr(update, "GRACE", -1)
    assert lake.build(expire=30).expired == 0
    assert data_files(lake) == listed(lake)
    assert not (Path(lake.place) / "messages" / f"date={days[4]}").exists()


def test_the_numbers_of_lines_add_up_in_the_manifest(lake: ScriptedLake) -> None:
    lake.script = [{"messages": [message("1.1")]}, {"messages": [message("2.2"), message("3.3")]}]
    lake.build()
    lake.build()
    assert lake.manifest().counts == {"a/q": {"new": 3}}
