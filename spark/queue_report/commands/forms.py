"""The forms that rows are printed in: a table for people, CSV or JSON. All rows pass through in order.

csv and json are exact: times in ISO 8601 (UTC, microseconds), decimals with all their digits, integers as such; null
is an empty field, or null. Only on a terminal, csv too has escapes in the place of what that would obey; json always
has. A table's decimals are rounded to six digits, and null is `-` (spark.commands.table).
"""

import csv
import json
import shutil
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import date
from decimal import Decimal
from typing import Any, Protocol, TextIO

from queue_report.commands.table import format_single, format_table, iso, printed


class Answer(Protocol):
    """What is printed: queue_report.reports.engine.Result."""

    @property
    def names(self) -> Sequence[str]: ...
    @property
    def kinds(self) -> Sequence[str]: ...
    @property
    def rows(self) -> Iterable[Sequence[Any]]: ...


FORMATS = ("table", "csv", "json")


def print_result(
    result: Answer,
    form: str,
    out: TextIO,
    *,
    width: int | None = None,
    single: bool = False,
    spaced: Collection[str] = (),
) -> None:
    """Write rows in one of FORMATS.

    width: the cells that a line of a table may have; None for any, and where rows are not shown on a terminal. single:
    the table's one row is printed as a line a column. spaced: columns of text as the log has it, whose `_` a table
    shows as spaces.
    """
    if form == "table":
        lay: Callable[..., Iterable[str]] = format_single if single else format_table
        lines = lay(result.names, result.kinds, result.rows, width=width, spaced=spaced)
        out.writelines(f"{line}\n" for line in lines)
    elif form == "csv":
        _write_csv(result, out, width is not None)
    else:
        _write_json(result, out)


def terminal_width(wide: bool) -> int | None:
    """Return how wide a table on stdout may be: COLUMNS or the terminal's own width, 80 where neither is known.

    None where stdout is no terminal; a width that no table reaches for `wide`.
    """
    if not sys.stdout.isatty():
        return None
    return sys.maxsize if wide else shutil.get_terminal_size((80, 24)).columns


def _write_csv(result: Answer, out: TextIO, shown: bool) -> None:
    """Write a line a row. shown: on a terminal."""
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(result.names)
    for row in result.rows:
        cells = [_plain(value) for value in row]
        writer.writerow([printed(cell) if shown and isinstance(cell, str) else cell for cell in cells])


def _write_json(result: Answer, out: TextIO) -> None:
    """Write an array of an object a row, a row a line."""
    names = [json.dumps(name) for name in result.names]
    before = "[\n"
    for row in result.rows:
        pairs = (f"{name}: {_json_value(value)}" for name, value in zip(names, row, strict=True))
        out.write(before + "{" + ", ".join(pairs) + "}")
        before = ",\n"
    out.write("[]\n" if before == "[\n" else "\n]\n")


def _json_value(value: object) -> str:
    # json knows no decimals, and a float would lose digits.
    return _plain(value) if isinstance(value, Decimal) else json.dumps(_plain(value))


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        return f"{value:f}"
    return iso(value) if isinstance(value, date) else value
