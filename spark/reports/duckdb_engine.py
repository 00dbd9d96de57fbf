"""DuckDB over a lake in a directory of this machine: no Spark, no Java, no network.

Functions of Spark's that DuckDB lacks, or names otherwise, are macros here, so that one text serves both.
"""

import json
import os
from collections.abc import Iterator
from typing import Any

import duckdb

from queue_base.errors import Failure, Permanent, Temporary
from spark.lake.columns import COLUMNS, PARTITIONED
from spark.lake.newest import open_local
from spark.reports.engine import Result, check_columns
from spark.reports.functions import FUNCTIONS
from spark.reports.report import Report, View
from spark.reports.statement import TABLES, Statement, compose, state

# Bytes. What a report needs above that goes to temporary files.
MEMORY = 1 << 30
_FETCHED = 4096

# count_if: DuckDB's own is null of no rows. div: of integers, towards zero, as Spark's is a bigint. substring_index:
# what is before the n-th delimiter, or after the n-th from the end.
MACROS = {
    "count_if(condition)": "count(case when condition then 1 end)",
    "div(a, b)": "try_cast(cast(a as hugeint) // nullif(cast(b as hugeint), 0) as bigint)",
    "pmod(a, b)": "((a % b) + b) % b",
    "timestamp_micros(n)": "make_timestamp(cast(n as bigint))",
    "timestamp_seconds(n)": "make_timestamp(cast(n as bigint) * 1000000)",
    "substring_index(s, d, n)": "array_to_string(case when n < 0 then list_slice(string_split(s, d), n, -1) "
    "else list_slice(string_split(s, d), 1, n) end, d)",
    "startswith(s, t)": "starts_with(s, t)",
    "try_subtract(a, b)": "try(a - b)",
    "sequence(a, b)": "generate_series(a, b)",
    "explode(list)": "unnest(list)",
}
OWN = {f"{each.name}({', '.join(each.parameters)})": each.body for each in FUNCTIONS}
_TYPES = {
    "string": "varchar", "long": "bigint", "int": "integer", "boolean": "boolean", "time": "timestamp", "date": "date",
    "longs": "bigint[]",
}  # fmt: skip
_KINDS = {
    **dict.fromkeys(("tinyint", "smallint", "integer", "bigint", "hugeint", "utinyint", "usmallint", "uinteger",
                     "ubigint", "uhugeint"), "bigint"),
    **dict.fromkeys(("timestamp", "timestamp_s", "timestamp_ms", "timestamp_ns", "timestamp with time zone"),
                    "timestamp"),
    **dict.fromkeys(("float", "double"), "double"),
    "boolean": "boolean", "date": "date", "varchar": "text",
}  # fmt: skip
# What a full disk, a file that is gone or too little memory is.
_TEMPORARY = (duckdb.IOException, duckdb.OutOfMemoryException, duckdb.InterruptException, duckdb.ConnectionException)


class DuckEngine:
    """The tables of a local lake in DuckDB, within `memory` bytes. Raises as open_local does."""

    def __init__(self, lake: str, memory: int = MEMORY) -> None:
        path, manifest = open_local(lake)
        # DuckDB makes and removes this directory itself, where it needs it.
        temporary = os.path.join(os.environ.get("TMPDIR") or "/tmp", f"queue-report-{os.urandom(8).hex()}")
        settings: dict[str, str | bool | int | float | list[str]] = {
            "memory_limit": f"{memory}B",
            "temp_directory": temporary,
            "threads": len(os.sched_getaffinity(0)),
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
        }
        self._connection = duckdb.connect(":memory:", config=settings)
        self._connection.execute("set timezone = 'UTC'")
        for head, body in (MACROS | OWN).items():
            self._connection.execute(f"create macro {head} as {body}")
        for table in TABLES:
            files = [os.path.join(path, table, name) for name in manifest.tables.get(table, ())]
            self._connection.execute(f"create view all_{table} as {_table(table, files)}")

    def report(self, report: Report, view: View) -> Result:
        result = self._run(state(report, view), f"unable to show {report.name}")
        check_columns(report, result.names)
        return result

    def query(self, sql: str, view: View | None = None) -> Result:
        return self._run(compose(sql, view or View(), windowed=True), "unable to run the statement")

    def close(self) -> None:
        self._connection.close()

    def _run(self, statement: Statement, trouble: str) -> Result:
        # Views are those of one cursor, so that another report can be asked for while this one is read.
        cursor = self._connection.cursor()
        try:
            for name, text in statement.views:
                cursor.execute(f"create or replace temporary view {name} as {text}")
            cursor.execute(statement.select)
        except duckdb.Error as error:
            raise _failure(trouble, error) from error
        description = cursor.description or []
        kinds = tuple(_kind(str(column[1])) for column in description)
        return Result(tuple(column[0] for column in description), kinds, _rows(cursor, kinds, trouble))


def _table(table: str, files: list[str]) -> str:
    """Return the SELECT of a table's columns from its files."""
    columns = COLUMNS[table]
    if not files:
        return "select " + ", ".join(f'cast(null as {_TYPES[kind]}) as "{name}"' for name, kind in columns.items()) \
            + " where false"  # fmt: skip
    # A time is stored with a zone, which is UTC; here it has none.
    each = (f'make_timestamp(epoch_us("{name}")) as "{name}"' if kind == "time" else f'"{name}"'
            for name, kind in columns.items())  # fmt: skip
    names = ", ".join(map(_pattern, files))
    hive = (
        "hive_partitioning = true, hive_types = {date: date, host: varchar}"
        if table in PARTITIONED
        else "hive_partitioning = false"
    )
    return f"select {', '.join(each)} from read_parquet([{names}], {hive})"


def _pattern(name: str) -> str:
    """Return a file's name as a literal; DuckDB takes it for a pattern, in which brackets name one character."""
    escaped = "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)
    return "'" + escaped.replace("'", "''") + "'"


def _kind(name: str) -> str:
    lower = name.lower()
    if lower.startswith("decimal"):
        return "bigint" if lower.endswith(",0)") else "decimal"
    return _KINDS.get(lower, "json")


def _rows(cursor: duckdb.DuckDBPyConnection, kinds: tuple[str, ...], trouble: str) -> Iterator[tuple[Any, ...]]:
    odd = [i for i, kind in enumerate(kinds) if kind == "json"]
    try:
        while rows := cursor.fetchmany(_FETCHED):
            for row in rows:
                yield _plain(row, odd) if odd else row
    except duckdb.Error as error:
        raise _failure(trouble, error) from error
    finally:
        cursor.close()


def _plain(row: tuple[Any, ...], odd: list[int]) -> tuple[Any, ...]:
    cells = list(row)
    for i in odd:
        cells[i] = None if cells[i] is None else json.dumps(cells[i], default=str)
    return tuple(cells)


def _failure(trouble: str, error: duckdb.Error) -> Failure:
    """Return the failure for an error of DuckDB: its first line, without the kind of error."""
    line = next(iter(str(error).strip().splitlines()), "no reason given")
    reason = line.partition(" Error: ")[2] or line
    if isinstance(error, _TEMPORARY):
        return Temporary(f"{trouble}: {reason}; run it again")
    return Permanent(f"{trouble}: {reason}")
