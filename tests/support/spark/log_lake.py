"""The log pipeline as a test drives it: batch after batch over directories of logs, and what it made of them."""

import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from pyspark.sql import DataFrame, Row, SparkSession

from spark.lake.schema import TABLES, Tables
from spark.logs import sources
from spark.windows import match
from support.spark.log_rows import DeliveryRow, IntervalRow, MessageRow, QuarantineRow, Truth

ROW = TypeVar("ROW", MessageRow, DeliveryRow, IntervalRow)


class Lake:
    """A lake in a directory of its own, with no more about it than the pipeline's contract asks of its caller."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self._spark = spark
        self._directory = directory
        self._state: dict[str, Any] = {}
        self._batches = 0
        self.counts: list[dict[str, dict[str, int]]] = []

    def feed(self, logs: Path, host: str | None = None, queue: str | None = None) -> bool:
        """Run one batch over LOGS; return whether there was anything new."""
        staging = self._directory / "staging"
        staging.mkdir(parents=True)
        try:
            plan = sources.plan(self._spark, str(logs), self._state, str(staging), host, queue)
            if not plan.pieces:
                self._state = plan.state  # Part of a line may be new.
                return False
            batch = match.make_batch(self._spark, plan, self._tables() if self._batches else None)
            self._batches += 1
            for name in TABLES:
                getattr(batch, name).write.parquet(str(self._directory / name / str(self._batches)))
            self._state = batch.state
            self.counts.append(batch.counts)
        finally:
            shutil.rmtree(staging)
        return True

    def _tables(self) -> Tables:
        return Tables(**{name: self._read(name) for name in TABLES})

    def _read(self, name: str) -> DataFrame:
        first = self._batches if name == "pending" else 1
        paths = [str(self._directory / name / str(batch)) for batch in range(first, self._batches + 1)]
        return self._spark.read.schema(TABLES[name]).parquet(*paths)

    def truth(self) -> Truth:
        """Return what is in the tables."""
        return rows_of(self._tables()) if self._batches else Truth()


def rows_of(tables: Tables) -> Truth:
    """Bring tables to the form in which they are compared, and look at what follows from other columns."""
    pending = tables.pending.collect()
    messages, deliveries, intervals = (table.collect() for table in tables[:3])
    for row in (*messages, *deliveries, *intervals, *pending):
        _check(row)
    return Truth(
        [_row(MessageRow, row) for row in messages],
        [_row(DeliveryRow, row) for row in deliveries],
        [_row(IntervalRow, row) for row in intervals],
        [_row(MessageRow, row) for row in pending if row["what"] == "message"],
        [_row(DeliveryRow, row) for row in pending if row["what"] == "delivery"],
        [
            QuarantineRow(row["host"], row["queue"], row["time_ns"], row["reason"] == "cut short", row["text"])
            for row in tables.quarantine.collect()
        ],
    )


def _row(kind: type[ROW], row: Row) -> ROW:
    found = row.asDict()
    return kind._make(found.get(name) for name in kind._fields)


def _check(row: Row) -> None:
    """Each time stands in two columns, and the date is that of the row's end (of its start, where it was lost)."""
    found = row.asDict()
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
