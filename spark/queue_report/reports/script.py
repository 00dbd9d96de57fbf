"""A report's SQL as a script for the shell of DuckDB or of Spark: what it prints is the report."""

from queue_report.lake.lake import open_local
from queue_report.reports.duckdb_sql import MACROS, select_table
from queue_report.reports.functions import FUNCTIONS
from queue_report.reports.report import Report, View
from queue_report.reports.statement import Statement, state

_DUCKDB = """\
-- {title}, for DuckDB: give all of this to its shell.
-- Times are UTC. x_ns is Unix time in nanoseconds.
"""
_NO_TABLES = """\
-- It needs the tables {tables}: with --lake LAKE their definitions are printed as well.
"""
_SPARK = """\
-- {title}, for Spark: give all of this to spark.sql, statement by statement, once the tables are views:
--   from queue_report import tables
--   found = tables(session, "{lake}")
--   for name in {names}:
--       found[name].createOrReplaceTempView(f"all_{{name}}")
"""


def write_script(report: Report, view: View, engine: str, lake: str | None) -> str:
    """Return the script. Raises as open_local does, if the lake is asked for."""
    statement = state(report, view)
    if engine == "duckdb":
        return _for_duckdb(report, statement, lake)
    head = _SPARK.format(title=report.title, lake=lake or "LAKE", names=tuple(statement.tables()))
    functions = statement.functions([function.create() for function in FUNCTIONS])
    return head + "\n" + _statements(functions) + statement.script()


def _for_duckdb(report: Report, statement: Statement, lake: str | None) -> str:
    names = statement.tables()
    head, tables = _DUCKDB.format(title=report.title), []
    if lake is None:
        head += _NO_TABLES.format(tables=" ".join(f"all_{name}" for name in names))
    else:
        opened = open_local(lake)
        tables = [f"create or replace temporary view all_{name} as\n{select_table(opened, name)}" for name in names]
    return head + "\n" + _statements(statement.functions(MACROS) + tables) + statement.script()


def _statements(texts: list[str]) -> str:
    return "".join(f"{text};\n\n" for text in texts)
