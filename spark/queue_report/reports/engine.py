"""What an engine is that answers SQL about a lake, and what it answers."""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from queue_report.reports.report import Report, View

# It needs deltalake, and usage is told without.
if TYPE_CHECKING:
    from queue_report.lake.lake import Lake


class Result(NamedTuple):
    """Rows in order. kinds: bigint, decimal, text, timestamp, date, boolean or double, a column.

    A timestamp is a naive datetime in UTC, a decimal a Decimal, all integers are int; any value may be None. Rows are
    made while they are read: an error of the engine can come then. A list or a structure is text in JSON.
    """

    names: tuple[str, ...]
    kinds: tuple[str, ...]
    rows: Iterator[tuple[Any, ...]]


class Engine(Protocol):
    """What answers questions about one lake, as it was when the engine was opened.

    Trouble with the lake or the machine is Temporary; SQL that the engine refuses is Permanent.
    """

    lake: "Lake"

    def report(self, report: Report, view: View) -> Result:
        """Return the rows of a report, its columns in the registry's order."""

    def query(self, sql: str, view: View | None = None) -> Result:
        """Return the rows of one SELECT over the tables, cut to the view, and the views."""

    def counts(self) -> dict[str, dict[str, int]]:
        """Return the lines that the lake has read, by kind, by `host/queue`."""

    def close(self) -> None:
        """End it; results that have not been read end too."""


def check_columns(report: Report, names: tuple[str, ...]) -> None:
    """Raise ValueError where a report's statement has other columns than the registry says."""
    if names != tuple(report.columns):
        raise ValueError(f"{report.name}.sql has the columns {' '.join(names)}, not {' '.join(report.columns)}")


def write_text(value: Any) -> str:
    """Return a value of no kind that Result has as text."""
    return json.dumps(value, default=str) if isinstance(value, (list, tuple, dict)) else str(value)
