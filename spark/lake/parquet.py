"""Rows of the tables in Parquet files of a directory, as pyarrow writes and reads them, without Spark.

Files are named as Spark names them: TABLE/date=2026-01-02/host=a/NAME.parquet, and what a directory's name says is not
in the file. A directory is one of this machine, or mounted here.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import date
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from queue_base.errors import Permanent
from spark.tables.arrow import ARROW
from spark.tables.columns import PARTITIONED, PARTITIONS
from spark.tables.partitions import escape_name, names_of

# Rows of a table, date and host are held until they are so many bytes; then they are written as one row group.
GROUP_BYTES = 32 << 20
# At most so many files of a writer are open: a segment that spans years has a file for each date.
OPEN_MAX = 32
# Files of fewer rows than this are written without dictionaries: these take a third of the time and of the bytes, and
# so does Arrow's own schema, which tells nothing that the types of Parquet do not.
PLAIN_ROWS = 10_000
# Stamps are nearly sorted: their differences take a quarter of the bytes.
_DELTA = {"lines": {"time_ns": "DELTA_BINARY_PACKED"}}


class Written(NamedTuple):
    """A file that was written: its table, its path below the table's directory, bytes, rows."""

    table: str
    path: str
    size: int
    rows: int


class _File:
    """A file of one table, date and host: rows that wait, and what is written."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.waiting: list[pa.RecordBatch] = []
        self.bytes = self.rows = 0
        self.writer: pq.ParquetWriter | None = None
        self.part = 0


class TableWriter:
    """Writes rows of all tables below `directory`. name: of its files, which no other writer there has.

    today: what rows of quarantine without a date get. Call add, then close. Raises OSError.
    """

    def __init__(self, directory: str, name: str, today: date) -> None:
        self._directory, self._name, self._today = directory, name, today
        self._files: dict[tuple[str, str], _File] = {}
        self._open: dict[_File, None] = {}
        self._written: list[Written] = []

    def add(self, rows: Mapping[str, pa.RecordBatch | pa.Table | None]) -> None:
        """Take rows, by table, in the columns of the schema."""
        for table, found in rows.items():
            if found is None or not found.num_rows:
                continue
            batches = found.to_batches() if isinstance(found, pa.Table) else [found]
            for batch in batches:
                for place, part in _partitions(table, batch, self._today):
                    self._hold(table, place, part)

    def close(self) -> list[Written]:
        """Write what waits. Returns all files that were written."""
        for file in self._files.values():
            self._flush(file, last=True)
            self._finish(file)
        self._files.clear()
        return self._written

    def _hold(self, table: str, place: str, batch: pa.RecordBatch) -> None:
        file = self._files.setdefault((table, place), _File(os.path.join(table, place)))
        file.waiting.append(batch)
        file.bytes += batch.nbytes
        if file.bytes >= GROUP_BYTES:
            self._flush(file)

    def _flush(self, file: _File, last: bool = False) -> None:
        if not file.waiting:
            return
        rows = pa.Table.from_batches(file.waiting)
        if file.writer is None:
            table = file.path.split("/", 1)[0]
            path = os.path.join(self._directory, file.path, f"{self._name}-{file.part}.parquet")
            _make_directory(os.path.dirname(path))
            file.writer = open_writer(path, rows.schema, table, few=last and rows.num_rows < PLAIN_ROWS)
            if len(self._open) >= OPEN_MAX:
                self._finish(next(iter(self._open)))
            self._open[file] = None
        file.writer.write_table(rows, row_group_size=max(rows.num_rows, 1))
        file.rows += rows.num_rows
        file.waiting, file.bytes = [], 0

    def _finish(self, file: _File) -> None:
        if file.writer is None:
            return
        file.writer.close()
        file.writer = None
        self._open.pop(file, None)
        below = os.path.join(file.path, f"{self._name}-{file.part}.parquet")
        size = os.stat(os.path.join(self._directory, below)).st_size
        table, path = below.split("/", 1)
        self._written.append(Written(table, path, size, file.rows))
        file.rows, file.part = 0, file.part + 1


def open_writer(path: str, schema: pa.Schema, table: str, few: bool = False) -> pq.ParquetWriter:
    """Return a writer of a file, compressed as Spark's files are. few: it gets less than PLAIN_ROWS rows."""
    delta = {name: kind for name, kind in _DELTA.get(table, {}).items() if name in schema.names}
    dictionary = [name for name in schema.names if name not in delta and not few]
    return pq.ParquetWriter(
        path,
        schema,
        compression="zstd",
        use_dictionary=dictionary if delta or few else True,
        column_encoding=delta or None,
        coerce_timestamps=None,
        store_schema=not few,
    )


def _make_directory(path: str) -> None:
    """Make a directory and those above it; most often these are there."""
    try:
        os.mkdir(path)
    except FileExistsError:
        pass
    except FileNotFoundError:
        os.makedirs(path, exist_ok=True)


def _partitions(table: str, batch: pa.RecordBatch, today: date) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield the rows of each date and host, without these columns, and the name of their directory."""
    if table not in PARTITIONED:
        yield "", batch
        return
    dates, hosts = (batch.column(batch.schema.get_field_index(name)) for name in PARTITIONS)
    if dates.null_count:
        dates = pc.fill_null(dates, pa.scalar(today, pa.date32()))
    rest = batch.select([name for name in batch.schema.names if name not in PARTITIONS])
    each_host = [hosts[0].as_py()] if _is_one(hosts) else pc.unique(hosts).to_pylist()
    each_date = [dates[0].as_py()] if _is_one(dates) else pc.unique(dates).to_pylist()
    for host in each_host:
        for day in each_date:
            place = f"date={escape_name(day.isoformat())}/host={escape_name(host)}"
            if len(each_host) == len(each_date) == 1:
                yield place, rest
                continue
            chosen = rest.filter(pc.and_(pc.equal(hosts, host), pc.equal(dates, pa.scalar(day, pa.date32()))))
            if chosen.num_rows:
                yield place, chosen


def _is_one(column: pa.Array) -> bool:
    """Return whether all values of a column are equal."""
    ends = pc.min_max(column)
    return bool(ends["min"] == ends["max"])


def read_file(
    directory: str,
    table: str,
    path: str,
    columns: list[str] | None = None,
    filters: Any = None,
    group: int | None = None,
) -> pa.Table:
    """Return the rows of a data file in the columns of the schema (or those named); path is below the table's.

    group: the number of the only row group to be read. Raises Permanent for a file that is damaged or gone, OSError
    where it cannot be read.
    """
    schema = ARROW[table] if columns is None else pa.schema([ARROW[table].field(name) for name in columns])
    stored = [name for name in schema.names if not (table in PARTITIONED and name in PARTITIONS)]
    name = os.path.join(directory, table, path)
    with _told(name):
        file = pq.ParquetFile(name)
        there = set(file.schema_arrow.names)
        wanted = [name for name in stored if name in there]
        found = file.read(wanted) if group is None else file.read_row_group(group, wanted)
    if filters is not None:
        found = found.filter(filters)
    told = names_of(path) if table in PARTITIONED else {}
    arrays = []
    for field in schema:
        if field.name in told:
            value: object = told[field.name]
            value = date.fromisoformat(str(value)) if field.name == "date" else value
            arrays.append(pa.repeat(pa.scalar(value, field.type), found.num_rows))
        elif field.name in there:
            arrays.append(found.column(field.name).cast(field.type))
        else:
            arrays.append(pa.nulls(found.num_rows, field.type))
    return pa.table(arrays, schema=schema)


def count_groups(directory: str, table: str, path: str) -> int:
    """Return how many row groups a data file has. Raises as read_file."""
    name = os.path.join(directory, table, path)
    with _told(name):
        count: int = pq.ParquetFile(name).num_row_groups
    return count


@contextmanager
def _told(name: str) -> Iterator[None]:
    """Raise Permanent where a data file is damaged or gone."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, FileNotFoundError):
            why = "it is gone"
        elif isinstance(error, OSError) and error.errno is not None:
            raise
        else:
            # pyarrow tells it so; some of its errors are an OSError without a number.
            why = f"it is damaged: {(str(error).strip() or 'no reason given').splitlines()[0]}"
        raise Permanent(f"unable to read {name}: {why}; restore it, or build a new lake from the logs") from error


def read_files(directory: str, table: str, paths: Iterable[str], columns: list[str] | None = None) -> pa.Table:
    """Return the rows of some data files of a table."""
    schema = ARROW[table] if columns is None else pa.schema([ARROW[table].field(name) for name in columns])
    return pa.concat_tables([schema.empty_table(), *(read_file(directory, table, path, columns) for path in paths)])
