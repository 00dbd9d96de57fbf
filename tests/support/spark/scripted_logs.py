"""Batches for a lake without logs: each is given as rows, so that tests of the lake need no parser and no matching."""

from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark.lake import build as build_module
from spark.lake.build import Order, Summary, build
from spark.lake.schema import TABLES, Tables
from spark.lake.store import open_tables
from spark.logs.plan import Plan
from spark.runtime.progress import Progress
from spark.windows.match import Batch

Rows = list[dict[str, Any]]
Script = list[dict[str, Rows]]


class Crash(BaseException):
    """The driver dies here: nothing may clean up after it."""


class CrashAt(Progress):
    """Crashes as a phase begins; `seen` has the phases until then."""

    def __init__(self, phase: str | None = None) -> None:
        self.seen: list[str] = []
        self._phase = phase

    def phase(self, text: str) -> None:
        self.seen.append(text)
        if text == self._phase:
            raise Crash(text)


class ScriptedLake:
    """A lake that build() makes from a script: the n-th batch is the script's n-th entry."""

    def __init__(self, spark: SparkSession, place: str, patch: pytest.MonkeyPatch) -> None:
        self.spark, self.place = spark, place
        self.logs = "/nowhere/logs"
        self.script: Script = []
        patch.setattr(build_module, "plan", self._plan)
        patch.setattr(build_module, "make_batch", self._make_batch)

    def build(self, progress: Progress | None = None, *, compact: bool = False, expire: int | None = None) -> Summary:
        order = Order(self.logs, self.place, compact=compact, expire=expire)
        return build(self.spark, order, progress or Progress())

    def tables(self) -> Tables:
        return open_tables(self.spark, self.place)

    def rows(self, table: str, *columns: str) -> list[tuple[Any, ...]]:
        """Return a table's rows in order, of some columns."""
        return sorted(tuple(row) for row in getattr(self.tables(), table).select(*columns).collect())

    def _plan(
        self, spark: SparkSession, logs: str, state: Mapping[str, Any], staging: str, host: object, queue: object
    ) -> Plan:
        at = state.get("at", 0)
        pieces: Any = (PIECE,) if at < len(self.script) else ()
        values: dict[str, Any] = dict.fromkeys(Plan.__dataclass_fields__, 1)
        values |= {"pieces": pieces, "state": {"at": at + 1} if pieces else dict(state), "staging": staging}
        return Plan(**values)

    def _make_batch(self, spark: SparkSession, plan: Plan, stored: Tables | None) -> Batch:
        rows = self.script[plan.state["at"] - 1]
        frames = {table: frame_of(spark, table, rows.get(table, [])) for table in TABLES}
        counts = {"a/q": {"new": len(rows.get("messages", []))}}
        return Batch(**frames, state=plan.state, counts=counts)


class _Piece:
    file = "a/q/current"


PIECE = _Piece()


def frame_of(spark: SparkSession, table: str, rows: Rows) -> Any:
    """Return rows in a table's columns; what a row does not state is null."""
    schema = TABLES[table]
    return spark.createDataFrame([tuple(row.get(name) for name in schema.names) for row in rows], schema)


def message(key: str, day: str = "2026-01-02", host: str = "a") -> dict[str, Any]:
    """Return a message that ended on a day."""
    done = datetime.fromisoformat(day).replace(tzinfo=UTC)
    stored = {"done": done, "date": done.date()}
    return {"host": host, "queue": "q", "key": key, "outcome": "delivered"} | stored


def pending(key: str) -> dict[str, Any]:
    return {"what": "message", "host": "a", "queue": "q", "key": key, "seen": [1, 2]}


def quarantined(text: str, day: str | None) -> dict[str, Any]:
    """Return a line that could not be read, of a day or of none."""
    return {"host": "a", "queue": "q", "text": text, "date": date.fromisoformat(day) if day else None}
