"""Batches for a lake without logs: each is given as rows, so that tests of the lake need no matching, and no Spark."""

from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from spark.lake import build as build_module
from spark.lake.batch import Before
from spark.lake.build import Order, Summary, build
from spark.lake.manifest import Manifest
from spark.lake.matching import Home, StreamResult
from spark.lake.newest import open_local
from spark.lake.parquet import TableWriter, read_files
from spark.logs.plan import Part, Plan
from spark.runtime.places import Place
from spark.runtime.progress import Progress
from spark.tables.arrow import ARROW

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Rows = list[dict[str, Any]]
Script = list[dict[str, Rows]]
STREAM = ("a", "q")


class NoSpark:
    """Who is asked for a session of Spark where none is needed."""

    def get(self) -> "SparkSession":
        raise AssertionError("Spark was asked for")


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

    def __init__(self, place: str, patch: pytest.MonkeyPatch) -> None:
        self.place = place
        self.logs = "/nowhere/logs"
        self.script: Script = []
        patch.setattr(build_module, "plan", self._plan)
        patch.setattr(build_module, "match_here", self._match)

    def build(self, progress: Progress | None = None, *, compact: bool = False, expire: int | None = None) -> Summary:
        order = Order(self.logs, self.place, compact=compact, expire=expire)
        return build(order, NoSpark(), progress or Progress())

    def manifest(self) -> Manifest:
        return open_local(self.place)[1]

    def table(self, name: str, manifest: Manifest | None = None) -> pa.Table:
        """Return a table, as a manifest or the newest one has it."""
        found = manifest or self.manifest()
        return read_files(self.place, name, found.tables.get(name, {}))

    def rows(self, table: str, *columns: str) -> list[tuple[Any, ...]]:
        """Return a table's rows in order, of some columns."""
        found = self.table(table).select(columns).to_pylist()
        return sorted(tuple(row.values()) for row in found)

    def _plan(self, logs: Place, state: Mapping[str, Any], staging: Place, host: object, queue: object) -> Plan:
        at = state.get("a/q", {}).get("at", 0)
        if at >= len(self.script):
            return Plan({}, dict(state))
        return Plan({STREAM: [Part("", "a/q/current", "current", 0, 1, 1)]}, {"a/q": {"at": at + 1, "files": {}}})

    def _match(self, wanted: Plan, before: Before, home: Home) -> Iterator[StreamResult]:
        rows = self.script[wanted.state["a/q"]["at"] - 1]
        writer = TableWriter(home.directory, "scripted", home.today)
        tables = {table: table_of(table, found) for table, found in rows.items()}
        still = tables.pop("pending", None)
        writer.add(tables)
        counts = {"new": len(rows.get("messages", []))}
        yield StreamResult(STREAM, writer.close(), still, counts=counts)


def table_of(table: str, rows: Rows) -> pa.Table:
    """Return rows in a table's columns; what a row does not state is null."""
    schema = ARROW[table]
    return pa.Table.from_pylist([{name: row.get(name) for name in schema.names} for row in rows], schema)


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
