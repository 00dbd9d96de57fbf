"""Rows of the tables in the data files of a lake, as pyarrow writes and reads them; also in Spark's executors."""

import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import date
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from queue_base.errors import Permanent
from queue_report.lake.lake import NO_DATE, Lake, Written
from queue_report.runtime.files import Files, first_line
from queue_report.schema.arrow import ARROW
from queue_report.schema.columns import PARTITIONED

# Rows of a table and date wait until they are so many bytes, or all that wait are so many; then they are a file.
GROUP_BYTES = 64 << 20
WAITING_BYTES = 256 << 20
# Files of fewer rows than this are written without dictionaries: these take a third of the time and of the bytes, and
# so does Arrow's own schema, which tells nothing that the types of Parquet do not.
PLAIN_ROWS = 10_000
# Stamps are nearly sorted: their differences take a quarter of the bytes.
_DELTA = {"lines": {"time_ns": "DELTA_BINARY_PACKED"}}

_Key = tuple[str, str | None]  # Table and date.


def read_files(files: Files, table: str, paths: Iterable[str], columns: list[str] | None = None) -> pa.Table:
    """Return the rows of data files in the columns of the schema (or those named), without `date`.

    Raises Permanent for a file that is damaged or gone, OSError where it cannot be read.
    """
    names = [name for name in ARROW[table].names if name != "date"] if columns is None else columns
    schema = pa.schema([ARROW[table].field(name) for name in names])
    found = [schema.empty_table()]
    for path in paths:
        found.append(read_rows(files, path, names).select(names).cast(schema))
    return pa.concat_tables(found)


def read_rows(files: Files, path: str, columns: list[str] | None = None, filters: Any = None) -> pa.Table:
    """Return rows of a data file. Raises Permanent where it is damaged or gone, OSError where it cannot be read."""
    try:
        content = files.read(path)
    except FileNotFoundError as error:
        raise _bad_file(files, path, "it is gone") from error
    try:
        # From memory: Arrow reads a file of Python's in threads of its own, which may outlive the interpreter.
        return pq.read_table(pa.BufferReader(content), columns=columns, filters=filters, partitioning=None)
    except (pa.ArrowException, OSError) as error:
        raise _bad_file(files, path, f"it is damaged: {first_line(error)}") from error


def _bad_file(files: Files, path: str, why: str) -> Permanent:
    return Permanent(f"unable to read {files.root}/{path}: {why}; restore it, or build a new lake from the logs")


def read_streams(lake: Lake) -> dict[tuple[str, str], dict[str, Any]]:
    """Return what is known of each stream, by host and queue. Raises as read_files."""
    rows = read_files(lake.files, "streams", lake.tables["streams"]).to_pylist()
    return {(row["host"], row["queue"]): json.loads(row["state"]) for row in rows}


class RowWriter:
    """Writes rows of all tables. today: what rows of quarantine without a date get. Call add, then close."""

    def __init__(self, files: Files, today: date) -> None:
        self._files, self._today = files, today
        self._waiting: dict[_Key, list[pa.RecordBatch]] = {}
        self._bytes: dict[_Key, int] = {}
        self._written: list[Written] = []

    def add(self, rows: Mapping[str, pa.RecordBatch | None]) -> None:
        """Take rows, by table, in the columns of the schema. Raises OSError."""
        for table, batch in rows.items():
            if batch is None or not batch.num_rows:
                continue
            for day, part in _by_date(table, batch, self._today):
                self._hold((table, day), [part], part.nbytes)

    def take_from(self, other: "RowWriter") -> None:
        """Take what another one has written, and what waits in it. Raises OSError."""
        self._written += other._written
        for key, batches in other._waiting.items():
            self._hold(key, batches, other._bytes[key])

    def close(self) -> list[Written]:
        """Write what waits. Returns all files that were written. Raises OSError."""
        for key in list(self._waiting):
            self._write(key)
        return self._written

    def undo(self) -> None:
        """Remove what was written."""
        undo(self._files, self._written)

    def _hold(self, key: _Key, batches: list[pa.RecordBatch], size: int) -> None:
        self._waiting.setdefault(key, []).extend(batches)
        self._bytes[key] = self._bytes.get(key, 0) + size
        if self._bytes[key] >= GROUP_BYTES:
            self._write(key)
        elif sum(self._bytes.values()) >= WAITING_BYTES:
            self._write(max(self._bytes, key=self._bytes.__getitem__))

    def _write(self, key: _Key) -> None:
        table, day = key
        rows = pa.Table.from_batches(self._waiting.pop(key))
        del self._bytes[key]
        # Rows of a stream that are in several files stay in their order.
        name = f"{time.time_ns():016x}-{os.urandom(4).hex()}"
        path = f"tbl={table}/date={day or NO_DATE}/{name}.parquet"
        few = rows.num_rows < PLAIN_ROWS
        delta = {} if few else _DELTA.get(table, {})
        dictionary = [name for name in rows.schema.names if name not in delta and not few]
        # In memory: what Parquet is written to must be Arrow's own, or a thread of it may outlive the interpreter.
        made = pa.BufferOutputStream()
        with pq.ParquetWriter(
            made, rows.schema, compression="zstd", store_schema=not few,
            use_dictionary=dictionary if delta or few else True, column_encoding=delta or None,
        ) as writer:  # fmt: skip
            writer.write_table(rows, row_group_size=rows.num_rows)
        content = made.getvalue()
        self._files.write(path, memoryview(content))
        self._written.append(Written(table, day, path, content.size, rows.num_rows))


def undo(files: Files, written: Iterable[Written]) -> None:
    """Remove files that are not to count; what cannot be removed is no part of the lake, and goes with a vacuum."""
    for one in written:
        try:
            files.remove(one.path)
        except OSError:
            continue


def _by_date(table: str, batch: pa.RecordBatch, today: date) -> Iterator[tuple[str | None, pa.RecordBatch]]:
    """Yield the rows of each date, without that column."""
    if table not in PARTITIONED:
        yield None, batch
        return
    dates = batch.column("date")
    if dates.null_count:
        dates = pc.fill_null(dates, pa.scalar(today, pa.date32()))
    rest = batch.drop_columns(["date"])
    ends = pc.min_max(dates)
    if ends["min"] == ends["max"]:
        yield ends["min"].as_py().isoformat(), rest
        return
    for day in pc.unique(dates):
        yield day.as_py().isoformat(), rest.filter(pc.equal(dates, day))
