"""A report's rows as a table, as CSV or as JSON. All rows pass through in order, a part at a time.

csv and json are exact: times in ISO 8601 (UTC, microseconds), decimals with all their digits, integers as such; null
is an empty field, or null. A table is for people: its decimals are rounded to six digits, and null is `-`.
"""

import csv
import json
from collections.abc import Callable, Iterator
from decimal import Decimal
from itertools import chain, islice
from typing import Any, TextIO, TypeAlias

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import NumericType, TimestampType

from spark.reports.report import Report

Row: TypeAlias = tuple[Any, ...]

# A table's columns are as wide as its first rows need; a later value that is wider stands out.
_MEASURED = 1000


def print_report(report: Report, frame: DataFrame, form: str, out: TextIO) -> None:
    """Write the rows of `frame`, which run() made of the report, in a form of FORMATS."""
    FORMATS[form](report, _exact_times(frame), out)


def _rows(frame: DataFrame) -> Iterator[Row]:
    return map(tuple, frame.toLocalIterator(prefetchPartitions=True))


def _exact_times(frame: DataFrame) -> DataFrame:
    # As text already in Spark: in Python they would be in the zone of this machine.
    iso = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'"
    times = [field.name for field in frame.schema.fields if isinstance(field.dataType, TimestampType)]
    return frame.withColumns({name: F.date_format(name, iso) for name in times}) if times else frame


def _csv(report: Report, frame: DataFrame, out: TextIO) -> None:
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(frame.columns)
    writer.writerows([_plain(value) for value in row] for row in _rows(frame))


def _json(report: Report, frame: DataFrame, out: TextIO) -> None:
    """Write an array of an object a row, a row a line."""
    names = [json.dumps(name) for name in frame.columns]
    before = "[\n"
    for row in _rows(frame):
        pairs = (f"{name}: {_number(value)}" for name, value in zip(names, row, strict=True))
        out.write(before + "{" + ", ".join(pairs) + "}")
        before = ",\n"
    out.write("[]\n" if before == "[\n" else "\n]\n")


def _number(value: Any) -> str:
    # json knows no decimals, and a float would lose digits.
    return _plain(value) if isinstance(value, Decimal) else json.dumps(value, default=str)


def _plain(value: Any) -> Any:
    return f"{value:f}" if isinstance(value, Decimal) else value


def _table(report: Report, frame: DataFrame, out: TextIO) -> None:
    spaced = [name in report.spaced for name in frame.columns]
    lines = ([_cell(value, wide) for value, wide in zip(row, spaced, strict=True)] for row in _rows(frame))
    if report.single:
        width = max(map(len, frame.columns))
        for line in lines:
            out.writelines(f"{name:<{width}}  {cell}\n" for name, cell in zip(frame.columns, line, strict=True))
        return
    first = [frame.columns, *islice(lines, _MEASURED)]
    widths = [max(map(len, column)) for column in zip(*first, strict=True)]
    right = [isinstance(field.dataType, NumericType) for field in frame.schema.fields]
    for line in chain(first, lines):
        cells = zip(line, widths, right, strict=True)
        out.write("  ".join(f"{cell:{'>' if end else '<'}{width}}" for cell, width, end in cells).rstrip() + "\n")


def _cell(value: Any, spaced: bool) -> str:
    if value is None:
        return "-"
    if isinstance(value, Decimal):
        return f"{value:.6f}"
    return str(value).replace("_", " ") if spaced else str(value)


FORMATS: dict[str, Callable[[Report, DataFrame, TextIO], None]] = {"table": _table, "csv": _csv, "json": _json}
