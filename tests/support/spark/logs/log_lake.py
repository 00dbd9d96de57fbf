"""The log pipeline as a test drives it: batch after batch over directories of logs, and what it made of them."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import pytest

from spark.lake import build as build_module
from spark.lake.batch import Before, match_apart
from spark.lake.build import Order, Summary, build
from spark.lake.matching import Home, StreamResult
from spark.lake.newest import open_local
from spark.lake.parquet import read_files
from spark.logs.plan import Plan
from spark.runtime.places import LocalPlace
from spark.runtime.progress import Progress
from spark.tables.arrow import ARROW
from support.spark.logs.log_rows import DeliveryRow, IntervalRow, MessageRow, QuarantineRow, Truth
from support.spark.logs.scripted_logs import NoSpark

ROW = TypeVar("ROW", MessageRow, DeliveryRow, IntervalRow)
Row = dict[str, Any]


class Lake:
    """A lake that is built without Spark. cut: bytes of the segments that streams are matched in; None for one each.

    run: does the tasks of segments in Spark's place.
    """

    def __init__(self, directory: Path, cut: int | None = None, run: Callable[..., Iterable[Any]] = map) -> None:
        self._directory = directory
        self._cut = cut
        self._run = run
        self.counts: list[dict[str, dict[str, int]]] = []
        self.warnings: list[str] = []

    def feed(self, logs: Path, host: str | None = None, queue: str | None = None, **tidy: Any) -> bool:
        """Run one build over LOGS; return whether there was anything new."""
        found = self.build(logs, host, queue, **tidy)
        return bool(found.lines)

    def build(self, logs: Path, host: str | None = None, queue: str | None = None, **tidy: Any) -> Summary:
        order = Order(str(logs), str(self._directory), host, queue, **tidy)
        with pytest.MonkeyPatch.context() as patch:
            if self._cut is not None:
                patch.setattr(build_module, "match_here", self._match(LocalPlace(str(logs)), self._cut))
            found = build(order, NoSpark(), Progress())
        self.warnings = found.warnings
        return found

    def _match(self, logs: LocalPlace, size: int) -> Any:
        def match(wanted: Plan, before: Before, home: Home) -> Iterable[StreamResult]:
            return match_apart(wanted, before, home, logs, size, self._run, lambda phase: None)

        return match

    def rows(self, table: str) -> list[Row]:
        """Return the rows of a table."""
        _, manifest = open_local(str(self._directory))
        found: list[Row] = read_files(str(self._directory), table, manifest.tables.get(table, {})).to_pylist()
        return found

    def truth(self) -> Truth:
        """Return what is in the tables."""
        return rows_of({table: self.rows(table) for table in ARROW})


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
