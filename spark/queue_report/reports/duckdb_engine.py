"""DuckDB over a lake in a directory of this machine: no Spark, no Java, no network.

Functions of Spark's that DuckDB lacks, or names otherwise, are macros here, so that one text serves both.
"""

import json
import os
from collections.abc import Callable, Iterator
from typing import Any

import duckdb

from queue_base.errors import Failure, Permanent, Temporary
from queue_report.lake.lake import Lake, open_local
from queue_report.reports.duckdb_sql import MACROS, select_table
from queue_report.reports.engine import Result, check_columns, write_text
from queue_report.reports.report import Report, View
from queue_report.reports.statement import Statement, ask, state

# Bytes. What a report needs above that goes to temporary files.
MEMORY = 1 << 30
_FETCHED = 4096

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

    def __init__(self, lake: str, memory: int = MEMORY, version: int | None = None) -> None:
        self.lake: Lake = open_local(lake, version)
        self._made: set[str] = set()
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
        self._connection.execute("set parquet_metadata_cache = true")
        for macro in MACROS:
            self._connection.execute(macro)

    def report(self, report: Report, view: View) -> Result:
        result = self._run(state(report, view), f"unable to show {report.name}")
        check_columns(report, result.names)
        return result

    def query(self, sql: str, view: View | None = None) -> Result:
        trouble = "unable to run the statement"
        try:
            statements = self._connection.extract_statements(sql)
        except duckdb.Error as error:
            raise _failure(trouble, error) from error
        if len(statements) != 1:
            raise Permanent(f"{trouble}: it is {len(statements)} statements; give one")
        try:
            return self._run(ask(sql, view), trouble)
        except ValueError as error:
            raise Permanent(f"{trouble}: {error}") from error

    def _make_tables(self, tables: list[str]) -> None:
        for table in tables:
            if table not in self._made:
                select = select_table(self.lake, table)
                self._connection.execute(f"create view all_{table} as {select}")
                self._made.add(table)

    def counts(self) -> dict[str, dict[str, int]]:
        rows = self._connection.execute(select_table(self.lake, "streams")).fetchall()
        return {f"{host}/{queue}": json.loads(state).get("counts", {}) for host, queue, state in rows}

    def close(self) -> None:
        self._connection.close()

    def _run(self, statement: Statement, trouble: str) -> Result:
        # Views are those of one cursor, so that another report can be asked for while this one is read.
        cursor = self._connection.cursor()
        try:
            self._make_tables(statement.tables())
            for name, text in statement.views:
                cursor.execute(f"create or replace temporary view {name} as {text}")
            cursor.execute(statement.select)
            types = _types(cursor)
            if "timestamp with time zone" in types.values():
                # Its Python type would need a library of zones.
                cells = ", ".join(
                    f"cast(c{i} as timestamp)" if kind == "timestamp with time zone" else f"c{i}"
                    for i, kind in enumerate(types.values())
                )
                names = ", ".join(f"c{i}" for i in range(len(types)))
                cursor.execute(f"select {cells} from ({statement.select}) as found({names})")
        except duckdb.Error as error:
            raise _failure(trouble, error) from error
        return Result(tuple(types), tuple(map(_kind, types.values())), _rows(cursor, trouble))


def _types(cursor: duckdb.DuckDBPyConnection) -> dict[str, str]:
    return {column[0]: str(column[1]).lower() for column in cursor.description or []}


def _kind(name: str) -> str:
    if name.startswith("decimal"):
        return "bigint" if name.endswith(",0)") else "decimal"
    return _KINDS.get(name, "text")


def _rows(cursor: duckdb.DuckDBPyConnection, trouble: str) -> Iterator[tuple[Any, ...]]:
    changed = [(i, change) for i, name in enumerate(_types(cursor).values()) if (change := _change(name)) is not None]
    try:
        while rows := cursor.fetchmany(_FETCHED):
            if not changed:
                yield from rows
                continue
            for row in rows:
                cells = list(row)
                for i, change in changed:
                    if cells[i] is not None:
                        cells[i] = change(cells[i])
                yield tuple(cells)
    except duckdb.Error as error:
        raise _failure(trouble, error) from error
    finally:
        cursor.close()


def _change(name: str) -> Callable[[Any], Any] | None:
    """Return what makes Result's value of Python's for a type; None for nothing."""
    if name.startswith("decimal"):
        return int if name.endswith(",0)") else None
    return None if name in _KINDS else write_text


def _failure(trouble: str, error: duckdb.Error) -> Failure:
    """Return the failure for an error of DuckDB: its first line, without the kind of error."""
    line = next(iter(str(error).strip().splitlines()), "no reason given")
    reason = line.partition(" Error: ")[2] or line
    if isinstance(error, _TEMPORARY):
        return Temporary(f"{trouble}: {reason}; run it again")
    return Permanent(f"{trouble}: {reason}")
