"""What DuckDB needs to run the texts of the reports: macros for functions that only Spark has, and the lake's tables.

Text only: nothing here needs DuckDB.
"""

from queue_report.lake.lake import Lake
from queue_report.reports.functions import FUNCTIONS
from queue_report.schema.columns import COLUMNS

# count_if: DuckDB's own is null of no rows. div: of integers, towards zero, as Spark's is a bigint. substring_index:
# what is before the n-th delimiter, or after the n-th from the end.
_MACROS = {
    "count_if(condition)": "count(case when condition then 1 end)",
    "div(a, b)": "case when typeof(a) in ('BIGINT', 'INTEGER') and typeof(b) in ('BIGINT', 'INTEGER') "
    "then cast(a as bigint) // nullif(cast(b as bigint), 0) "
    "else try_cast(cast(a as hugeint) // nullif(cast(b as hugeint), 0) as bigint) end",
    "pmod(a, b)": "((a % b) + b) % b",
    "timestamp_micros(n)": "make_timestamp(cast(n as bigint))",
    "timestamp_seconds(n)": "make_timestamp(cast(n as bigint) * 1000000)",
    "substring_index(s, d, n)": "array_to_string(case when n < 0 then list_slice(string_split(s, d), n, -1) "
    "else list_slice(string_split(s, d), 1, n) end, d)",
    # Spark's replaces all, and writes a group as $1.
    "regexp_replace(s, p, r)": "system.main.regexp_replace(s, p, replace(r, '$', chr(92)), 'g'), "
    "(s, p, r, o) as system.main.regexp_replace(s, p, r, o)",
    "startswith(s, t)": "starts_with(s, t)",
    "try_subtract(a, b)": "try(a - b)",
    "sequence(a, b)": "generate_series(a, b)",
    "explode(list)": "unnest(list)",
}
_OWN = {f"{each.name}({', '.join(each.parameters)})": each.body for each in FUNCTIONS}
# The statements that make them, each after those that it uses.
MACROS = tuple(f"create or replace macro {head} as {body}" for head, body in (_MACROS | _OWN).items())
_TYPES = {
    "string": "varchar", "long": "bigint", "int": "integer", "boolean": "boolean", "time": "timestamp", "date": "date",
    "longs": "bigint[]",
}  # fmt: skip


def select_table(lake: Lake, table: str) -> str:
    """Return the SELECT of a table's columns from its files, in which a time has no zone: it is UTC."""
    columns = COLUMNS[table]
    files = lake.file_paths(table)
    if not files:
        return "select " + ", ".join(_null(name, kind) for name, kind in columns.items()) + " where false"
    each = (f'make_timestamp(epoch_us("{name}")) as "{name}"' if kind == "time" else f'"{name}"'
            for name, kind in columns.items())  # fmt: skip
    names = ", ".join(map(_pattern, files))
    hive = "hive_partitioning = true, hive_types = {tbl: varchar, date: date}"
    return f"select {', '.join(each)} from read_parquet([{names}], {hive})"


def _null(name: str, kind: str) -> str:
    return f'cast(null as {_TYPES[kind]}) as "{name}"'


def _pattern(name: str) -> str:
    """Return a file's name as a literal; DuckDB takes it for a pattern, in which brackets name one character."""
    escaped = "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)
    return "'" + escaped.replace("'", "''") + "'"
