"""The log pipeline as a test drives it: batch after batch over directories of logs, and what it made of them."""

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, TypeVar

from queue_report.lake.build import Order, Summary, build
from queue_report.lake.data_files import read_files
from queue_report.lake.lake import date_of, open_lake
from queue_report.runtime.progress import Progress
from queue_report.schema.arrow import ARROW
from queue_report.schema.columns import COLUMNS
from support.spark.logs.log_rows import DeliveryRow, IntervalRow, MessageRow, QuarantineRow, Truth
from support.spark.runner import InProcess

ROW = TypeVar("ROW", MessageRow, DeliveryRow, IntervalRow)
Row = dict[str, Any]


class Lake:
    """A lake that is built without Spark."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.warnings: list[str] = []

    def feed(self, logs: Path, host: str | None = None, queue: str | None = None, **tidy: Any) -> bool:
        """Run one build over LOGS; return whether there was anything new."""
        found = self.build(logs, host, queue, **tidy)
        return bool(found.lines)

    def build(self, logs: Path, host: str | None = None, queue: str | None = None, **tidy: Any) -> Summary:
        order = Order(str(logs), str(self._directory), host, queue, **tidy)
        found = build(order, InProcess(), Progress())
        self.warnings = found.warnings
        return found

    def rows(self, table: str) -> list[Row]:
        """Return the rows of a table."""
        return rows_of_table(str(self._directory), table)

    def truth(self) -> Truth:
        """Return what is in the tables."""
        return rows_of({table: self.rows(table) for table in ARROW})


def rows_of_table(lake: str, table: str) -> list[Row]:
    """Return the rows of a table of a lake, with their dates."""
    opened, found = open_lake(lake), []
    for path in opened.tables[table]:
        rows = read_files(opened.files, table, [path]).to_pylist()
        dated = {} if "date" not in COLUMNS[table] else {"date": date.fromisoformat(date_of(path))}
        found += [{name: (row | dated)[name] for name in COLUMNS[table]} for row in rows]
    return found


def rows_of(tables: dict[str, list[Row]]) -> Truth:
    """Bring tables to the form in which they are compared, and look at what follows from other columns."""
    for table in ("messages", "deliveries", "intervals", "pending"):
        for row in tables[table]:
            _check(row)
    return Truth(
        [_row(MessageRow, row) for row in tables["messages"]],
        [_row(DeliveryRow, row) for row in tables["deliveries"]],
        [_row(IntervalRow, row) for row in tables["intervals"]],
        [_row(MessageRow, row) for row in tables["pending"] if row["what"] == "message"],
        [_row(DeliveryRow, row) for row in tables["pending"] if row["what"] == "delivery"],
        [
            QuarantineRow(row["host"], row["queue"], row["time_ns"], row["reason"] == "cut short", row["text"])
            for row in tables["quarantine"]
        ],
    )


def _row(kind: type[ROW], row: Row) -> ROW:
    return kind._make(row.get(name) for name in kind._fields)


def _check(found: Row) -> None:
    """Each time stands in two columns, and the date is that of the row's end (of its start, where it was lost)."""
    for name, time in found.items():
        nanoseconds = found.get(f"{name}_ns")
        if f"{name}_ns" in found:
            assert (None if time is None else round(time.timestamp() * 10**6)) == _down(nanoseconds), found
    ends = [found[name] for name in ("done_ns", "start_ns", "at_ns") if found.get(name) is not None]
    if "date" in found:
        assert found["date"] == datetime.fromtimestamp(ends[0] // 10**9, UTC).date(), found


def _down(nanoseconds: int | None) -> int | None:
    """Return whole microseconds."""
    return None if nanoseconds is None else nanoseconds // 1000
