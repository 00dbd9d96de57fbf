"""Rows are written as Parquet files that Spark and every other reader takes, by table and date."""

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from queue_base.errors import Permanent
from queue_report import tables
from queue_report.lake import data_files
from queue_report.lake.data_files import PLAIN_ROWS, RowWriter, read_files
from queue_report.lake.lake import Lake, Written, make_lake, open_lake
from queue_report.match.rows import fill
from queue_report.runtime.files import LocalFiles
from queue_report.schema.arrow import ARROW
from support.spark.logs.log_lake import rows_of_table

TODAY = date(2026, 3, 4)


def batch(table: str, rows: list[dict[str, Any]]) -> pa.RecordBatch:
    """Return rows in a table's columns; what a row does not state is null."""
    schema = ARROW[table]
    return pa.RecordBatch.from_pylist([{name: row.get(name) for name in schema.names} for row in rows], schema)


def message(key: str, day: str = "2026-01-02", host: str = "a") -> dict[str, Any]:
    done = datetime.fromisoformat(day).replace(tzinfo=UTC)
    return {"host": host, "queue": "q", "key": key, "outcome": "delivered", "done": done, "date": done.date()}


def write(place: Path, rows: dict[str, list[dict[str, Any]]]) -> list[Written]:
    writer = RowWriter(LocalFiles(str(place)), TODAY)
    writer.add({table: batch(table, found) for table, found in rows.items()})
    return writer.close()


def make(place: Path, rows: dict[str, list[dict[str, Any]]]) -> Lake:
    return make_lake(str(place)).commit(write(place, rows), [], "test")


@pytest.mark.parametrize(
    ("content", "said"), [(b"", "it is damaged: "), (b"PAR1 and no end", "it is damaged: "), (None, "it is gone; ")]
)
def test_a_data_file_that_is_damaged_or_gone_is_named(tmp_path: Path, content: bytes | None, said: str) -> None:
    (written,) = write(tmp_path, {"messages": [message("1.1")]})
    place = tmp_path / written.path
    if content is None:
        place.unlink()
    else:
        place.write_bytes(content)
    with pytest.raises(Permanent, match=f"^unable to read {place}: {said}"):
        read_files(LocalFiles(str(tmp_path)), "messages", [written.path])


def test_what_waits_to_be_written_is_bounded_whatever_the_dates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_files, "WAITING_BYTES", 2000)
    writer, most = RowWriter(LocalFiles(str(tmp_path)), TODAY), 0
    days = [(date(2026, 1, 1) + timedelta(number % 10)).isoformat() for number in range(300)]
    for number, day in enumerate(days):
        writer.add({"messages": batch("messages", [message(str(number), day)])})
        most = max(most, sum(writer._bytes.values()))
    written = writer.close()
    assert most < 2000 and sum(one.rows for one in written) == 300
    assert all((tmp_path / one.path).stat().st_size == one.size for one in written)
    found = read_files(LocalFiles(str(tmp_path)), "messages", [one.path for one in written])
    assert sorted(int(key) for key in found.column("key").to_pylist()) == list(range(300))


def test_what_a_directory_says_is_not_in_the_file(tmp_path: Path) -> None:
    rows = [{"host": "a/b", "queue": "q", "text": "t", "date": None}]
    (one,) = write(tmp_path, {"quarantine": rows, "lines": []})
    assert one.path.startswith("tbl=quarantine/date=2026-03-04/") and one.date == "2026-03-04"
    names = pq.ParquetFile(tmp_path / one.path).schema_arrow.names
    assert names == [name for name in ARROW["quarantine"].names if name != "date"]


def test_rows_of_several_dates_go_to_their_directories(tmp_path: Path) -> None:
    rows = [message(f"{host}{day}", f"2026-01-0{day}", host) for host in "ab" for day in (1, 2, 1)]
    written = write(tmp_path, {"messages": rows, "pending": [{"what": "message", "host": "a", "queue": "q"}]})
    assert {one.path.rpartition("/")[0]: one.rows for one in written} == {
        "tbl=messages/date=2026-01-01": 4,
        "tbl=messages/date=2026-01-02": 2,
        "tbl=pending/date=__HIVE_DEFAULT_PARTITION__": 1,
    }


@pytest.mark.together
@pytest.mark.parametrize("compacted", [False, True])
def test_spark_reads_the_same_rows(tmp_path: Path, compacted: bool) -> None:
    from support.spark.session import session

    hosts, lake = ["a", "007", "1e3", "null", "a:b c{}[*]/%41=", "ä"], tmp_path / "the [lake] {x}"
    lines = [{"host": "a", "queue": "q", "time_ns": n * 7, "print": -n, "date": TODAY} for n in range(1000)]
    waiting = [{"what": "message", "host": "a", "queue": "q", "key": "1.1", "seen": [1, -2], "open": True}]
    messages = [message(f"{n}.1", host=host) for n, host in enumerate(hosts)]
    first = make(lake, {"messages": messages[:3], "lines": lines, "pending": waiting})
    first.commit(write(lake, {"messages": messages[3:]}), [], "test")
    if compacted:
        assert open_lake(str(lake)).compact() == 2
    found = tables(session(), str(lake))
    read = found["messages"].collect()
    assert sorted((row["key"], row["host"]) for row in read) == [(f"{n}.1", host) for n, host in enumerate(hosts)]
    assert {row["date"] for row in read} == {date(2026, 1, 2)}
    assert {row["done"].astimezone(UTC) for row in read} == {datetime(2026, 1, 2, tzinfo=UTC)}
    read = found["lines"].collect()
    assert sorted((row["time_ns"], row["print"]) for row in read) == [(n * 7, -n) for n in range(1000)]
    (row,) = found["pending"].collect()
    assert (row["seen"], row["open"], row["uid"]) == ([1, -2], True, None)
    assert found["sessions"].count() == 0 and found["sessions"].columns == ARROW["sessions"].names
    assert tables(session(), str(lake), version=1)["messages"].count() == 3
    assert rows_of_table(str(lake), "pending") == [batch("pending", waiting).to_pylist()[0]]


def test_a_file_of_few_rows_has_no_dictionaries_and_reads_as_one_of_many(tmp_path: Path) -> None:
    found = {}
    for count in (PLAIN_ROWS - 1, PLAIN_ROWS):
        columns = {"id": list(range(count)), "what": ["message"] * count, "seen": [[1, 2]] * count}
        rows = fill("pending", columns, {"host": "a", "queue": "q"}, count)
        writer = RowWriter(LocalFiles(str(tmp_path)), TODAY)
        writer.add({"pending": rows})
        (written,) = writer.close()
        made = pq.ParquetFile(tmp_path / written.path)
        found[count] = made.metadata.row_group(0).column(0).has_dictionary_page
        assert read_files(LocalFiles(str(tmp_path)), "pending", [written.path]).equals(pa.Table.from_batches([rows]))
    assert found == {PLAIN_ROWS - 1: False, PLAIN_ROWS: True}
