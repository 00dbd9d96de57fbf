"""Rows are written as Parquet files that Spark and every other reader takes, one for each date and host."""

from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from spark.lake.parquet import PLAIN_ROWS, TableWriter, read_file, read_files
from spark.tables.partitions import escape_name

from queue_base.errors import Permanent
from spark.lake import parquet
from spark.match.rows import fill
from spark.tables.arrow import ARROW
from support.spark.logs.scripted_logs import message, table_of

TODAY = date(2026, 3, 4)


@pytest.mark.parametrize(
    ("content", "said"), [(b"", "it is damaged: "), (b"PAR1 and no end", "it is damaged: "), (None, "it is gone; ")]
)
def test_a_data_file_that_is_damaged_or_gone_is_named(tmp_path: Path, content: bytes | None, said: str) -> None:
    writer = TableWriter(str(tmp_path), "x", TODAY)
    writer.add({"messages": table_of("messages", [message("1.1")])})
    (written,) = writer.close()
    place = tmp_path / "messages" / written.path
    if content is None:
        place.unlink()
    else:
        place.write_bytes(content)
    with pytest.raises(Permanent, match=f"^unable to read {place}: {said}"):
        read_file(str(tmp_path), "messages", written.path)


def test_years_of_dates_need_few_open_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "OPEN_MAX", 3)
    monkeypatch.setattr(parquet, "GROUP_BYTES", 1)
    writer = TableWriter(str(tmp_path), "x", TODAY)
    days = [(date(2026, 1, 1) + timedelta(number % 10)).isoformat() for number in range(30)]
    for number, day in enumerate(days):
        writer.add({"messages": table_of("messages", [message(str(number), day)])})
    written = writer.close()
    assert sum(one.rows for one in written) == 30
    assert all((tmp_path / one.table / one.path).stat().st_size == one.size for one in written)
    found = read_files(str(tmp_path), "messages", [one.path for one in written])
    assert sorted(int(key) for key in found.column("key").to_pylist()) == list(range(30))


def test_what_a_directory_says_is_not_in_the_file(tmp_path: Path) -> None:
    host = 'a:b c{}[*]/%41="#?^\\'
    writer = TableWriter(str(tmp_path), "x", TODAY)
    rows = table_of("quarantine", [{"host": host, "queue": "q", "text": "t", "date": None}])
    writer.add({"quarantine": rows, "messages": None, "lines": ARROW["lines"].empty_table()})
    (one,) = writer.close()
    assert one.path == f"date=2026-03-04/host={escape_name(host)}/x-0.parquet" and "/" not in escape_name(host)
    names = pq.ParquetFile(tmp_path / "quarantine" / one.path).schema_arrow.names
    assert names == [name for name in ARROW["quarantine"].names if name not in ("date", "host")]
    (row,) = read_file(str(tmp_path), "quarantine", one.path).to_pylist()
    assert (row["host"], row["date"], row["text"]) == (host, TODAY, "t")


def test_rows_of_several_dates_and_hosts_go_to_their_directories(tmp_path: Path) -> None:
    writer = TableWriter(str(tmp_path), "x", TODAY)
    rows = [message(f"{host}{day}", f"2026-01-0{day}", host) for host in "ab" for day in (1, 2, 1)]
    writer.add({"messages": table_of("messages", rows)})
    written = writer.close()
    assert {one.path: one.rows for one in written} == {
        f"date=2026-01-0{day}/host={host}/x-0.parquet": 2 if day == 1 else 1 for host in "ab" for day in (1, 2)
    }


def test_a_lake_of_an_earlier_program_without_a_column_is_read(tmp_path: Path) -> None:
    (tmp_path / "lines" / "date=2026-01-02" / "host=h").mkdir(parents=True)
    path = "date=2026-01-02/host=h/old.parquet"
    pq.write_table(pa.table({"queue": ["q"], "time_ns": [5]}), tmp_path / "lines" / path)
    assert read_file(str(tmp_path), "lines", path).to_pylist() == [
        {"host": "h", "queue": "q", "time_ns": 5, "print": None, "date": date(2026, 1, 2)}
    ]


@pytest.mark.together
def test_spark_reads_the_same_rows(tmp_path: Path) -> None:
    from spark.lake.store import read_table
    from spark.runtime.places import LocalPlace

    from support.spark.session import session

    writer = TableWriter(str(tmp_path), "x", TODAY)
    hosts = ["a", "007", "1e3", "null", "a:b c{}[*]/%41=", "ä"]
    writer.add({"messages": table_of("messages", [message(f"{n}.1", host=host) for n, host in enumerate(hosts)])})
    lines = [{"host": "a", "queue": "q", "time_ns": n * 7, "print": -n, "date": TODAY} for n in range(1000)]
    waiting = [{"what": "message", "host": "a", "queue": "q", "key": "1.1", "seen": [1, -2], "open": True}]
    writer.add({"lines": table_of("lines", lines), "pending": table_of("pending", waiting)})
    paths: dict[str, list[str]] = {}
    for one in writer.close():
        paths.setdefault(one.table, []).append(one.path)
    place = LocalPlace(str(tmp_path))
    found = read_table(session(), place, "messages", paths["messages"]).collect()
    assert sorted((row["key"], row["host"]) for row in found) == [(f"{n}.1", host) for n, host in enumerate(hosts)]
    assert {row["date"] for row in found} == {date(2026, 1, 2)}
    assert {row["done"].astimezone(UTC) for row in found} == {datetime(2026, 1, 2, tzinfo=UTC)}
    read = read_table(session(), place, "lines", paths["lines"]).collect()
    assert sorted((row["time_ns"], row["print"]) for row in read) == [(n * 7, -n) for n in range(1000)]
    (row,) = read_table(session(), place, "pending", paths["pending"]).collect()
    assert (row["seen"], row["open"], row["uid"]) == ([1, -2], True, None)


def test_a_file_of_few_rows_has_no_dictionaries_and_reads_as_one_of_many(tmp_path: Path) -> None:
    found = {}
    for count in (PLAIN_ROWS - 1, PLAIN_ROWS):
        columns = {"id": list(range(count)), "what": ["message"] * count, "seen": [[1, 2]] * count}
        rows = fill("pending", columns, {"host": "a", "queue": "q"}, count)
        writer = TableWriter(str(tmp_path), str(count), TODAY)
        writer.add({"pending": rows})
        (written,) = writer.close()
        made = pq.ParquetFile(tmp_path / "pending" / written.path)
        found[count] = made.metadata.row_group(0).column(0).has_dictionary_page
        assert read_file(str(tmp_path), "pending", written.path).equals(pa.Table.from_batches([rows]))
    assert found == {PLAIN_ROWS - 1: False, PLAIN_ROWS: True}
