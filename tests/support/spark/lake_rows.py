"""Tables written by hand, a short call a row. Times are in seconds of Unix time, and may be fractions with nine digits.

A message is named by its key, which needs no number in these tests; host and queue are h and q unless told.
"""

import datetime
import json
import shutil
import tempfile
import weakref
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow

from queue_report.lake.data_files import RowWriter
from queue_report.lake.lake import make_lake
from queue_report.match.rows import fill
from queue_report.reports import REPORTS
from queue_report.reports.duckdb_engine import DuckEngine
from queue_report.reports.engine import Engine
from queue_report.reports.report import View
from queue_report.schema.columns import COLUMNS, OF_MESSAGE
from support.spark.logs.log_files import stamp
from support.spark.matched import Stream

NANO = 1_000_000_000
Row: TypeAlias = dict[str, Any]
Seconds: TypeAlias = int | Decimal
ARROW = {
    "string": pyarrow.string(), "long": pyarrow.int64(), "int": pyarrow.int32(), "boolean": pyarrow.bool_(),
    "time": pyarrow.timestamp("us", tz="UTC"), "date": pyarrow.date32(), "longs": pyarrow.list_(pyarrow.int64()),
}  # fmt: skip


def ns(seconds: Seconds) -> int:
    """Return nanoseconds."""
    return int(seconds * NANO)


def utc(seconds: Seconds) -> datetime.datetime:
    """Return a time as the rows of a result have it: in UTC, without a zone."""
    return datetime.datetime.fromtimestamp(float(seconds), datetime.UTC).replace(tzinfo=None)


class LakeRows:
    """Rows of the tables, and a lake of them."""

    def __init__(self) -> None:
        self.rows: dict[str, list[Row]] = {name: [] for name in COLUMNS}
        self.counts: dict[str, dict[str, int]] = {}

    def message(
        self, key: str, birth: Seconds | None, done: Seconds | None, *, first: Seconds | None = None,
        sender: str | None = "s@from.example", size: int | None = 100, counts: tuple[int, int, int] = (0, 0, 0),
        recipients: int = 0, outcome: str = "delivered", host: str = "h", queue: str = "q",
    ) -> None:  # fmt: skip
        """Add a message; one without `done` waits. counts: successes, failures, deferrals."""
        born = birth if first is None else first
        assert born is not None
        row: Row = {
            "host": host, "queue": queue, "key": key, "sender": sender, "bytes": size, "first_ns": ns(born),
            "id": int(key.split(".")[0]) if key.split(".")[0].isdecimal() else None,
            "birth_ns": None if birth is None else ns(birth), "recipients": recipients,
            "successes": counts[0], "failures": counts[1], "deferrals": counts[2],
        }  # fmt: skip
        if done is None:
            self.rows["pending"].append({**row, "what": "message"})
        else:
            self.rows["messages"].append({**row, "done_ns": ns(done), "outcome": outcome, "date": day(done)})

    def delivery(
        self, key: str, recipient: str, start: Seconds, done: Seconds | None, result: str | None = "success", *,
        reason: str = "", template: str | None = None, code: str = "", kind: str = "", delivery: int = 1,
        channel: str = "remote", host: str = "h", queue: str = "q",
    ) -> None:  # fmt: skip
        """Add a delivery; one without a result is in flight. template: None is the reason. kind: its class."""
        row: Row = {
            "host": host, "queue": queue, "key": key, "recipient": recipient, "delivery": delivery,
            "domain": recipient.rpartition("@")[2] if "@" in recipient else "",
            "channel": channel, "start_ns": ns(start),
        }  # fmt: skip
        if result is None:
            self.rows["pending"].append({**row, "what": "delivery"})
            return
        end = {"done_ns": None if done is None else ns(done), "date": day(start if done is None else done)}
        said = {"reason": reason, "template": reason if template is None else template, "code": code, "class": kind}
        self.rows["deliveries"].append({**row, **end, **said, "result": result})

    def sample(self, at: Seconds, until: Seconds, local: tuple[int, int], remote: tuple[int, int], host: str) -> None:
        """Add an interval; local, remote: in flight and limit."""
        row: Row = {
            "host": host, "queue": "q", "at_ns": ns(at), "until_ns": ns(until), "date": day(until),
            "local_now": local[0], "local_limit": local[1], "remote_now": remote[0], "remote_limit": remote[1],
        }  # fmt: skip
        self.rows["intervals"].append(row)

    def alert(self, at: Seconds, kind: str, text: str, template: str, *, host: str = "h", queue: str = "q") -> None:
        """Add a line that is an alert or a warning."""
        row: Row = {"host": host, "queue": queue, "time_ns": ns(at), "date": day(at), "kind": kind}
        self.rows["alerts"].append({**row, "text": text, "template": template})

    def server_log(self, lines: Iterable[tuple[Seconds, bytes]], *, host: str = "h", queue: str = "smtpd") -> None:
        """Add what the matcher makes of a log of queue-smtpd: the time and text of each line."""
        stream = Stream(host, queue)
        stream.match([(f"{stamp(ns(at))} ".encode() + text, False) for at, text in lines])
        for table in ("sessions", "accepted", "refusals", "filters"):
            self.rows[table] += stream.rows(table)
        self.rows["pending"] += [row for row in stream.state.pack().to_pylist() if row["what"] == "session"]

    def queue_log(self, lines: Iterable[tuple[Seconds, bytes]], *, host: str = "h", queue: str = "q") -> None:
        """Add what the matcher makes of a log of queue-send."""
        stream = Stream(host, queue)
        stream.match([(f"{stamp(ns(at))} ".encode() + text, False) for at, text in lines])
        for table in ("messages", "deliveries", "stored", "runs"):
            self.rows[table] += stream.rows(table)
        self.rows["pending"] += stream.state.pack().to_pylist()

    def write(self, lake: Path) -> None:
        """Make a lake of the rows, as the first build leaves one.

        What a delivery knows of its message is that of the message here.
        """
        lives = {_place(row): row for row in (*self.rows["messages"], *self.rows["pending"]) if "delivery" not in row}
        for row in (row for name in ("deliveries", "pending") for row in self.rows[name] if "delivery" in row):
            life = lives.get(_place(row), {})
            row.update({name: life[name] for name in OF_MESSAGE if name in life})
        made = make_lake(str(lake))
        writer = RowWriter(made.files, datetime.date.today())
        for table, columns in COLUMNS.items():
            if rows := self.rows[table]:
                arrays = [pyarrow.array([_value(row, name) for row in rows], ARROW[columns[name]]) for name in columns]
                writer.add({table: pyarrow.RecordBatch.from_arrays(arrays, names=list(columns))})
        for stream, counts in self.counts.items():
            host, queue = stream.split("/")
            state = [json.dumps({"counts": counts})]
            writer.add({"streams": fill("streams", {"state": state}, {"host": host, "queue": queue}, 1)})
        made.commit(writer.close(), [], "written by a test")

    def engine(self) -> DuckEngine:
        """Return an engine over a lake of the rows, which is removed with it."""
        lake = tempfile.mkdtemp(prefix="queue-report-test-")
        self.write(Path(lake))
        engine = DuckEngine(lake)
        weakref.finalize(engine, shutil.rmtree, lake)
        return engine


def _value(row: Row, name: str) -> Any:
    """Return a value as it is stored; a time is that of its nanoseconds."""
    if row.get(name) is None and row.get(f"{name}_ns") is not None:
        return row[f"{name}_ns"] // 1000
    return row.get(name)


def _place(row: Row) -> tuple[str, ...]:
    return row["host"], row["queue"], row["key"]


def day(seconds: Seconds) -> datetime.date:
    """Return the date, UTC."""
    return datetime.datetime.fromtimestamp(float(seconds), datetime.UTC).date()


def ask(name: str, engine: Engine, view: View | None = None, *columns: str) -> list[tuple[Any, ...]]:
    """Return a report's rows in order, as tuples of these columns (all where none is named)."""
    result = engine.report(REPORTS[name], view or View())
    places = [result.names.index(column) for column in columns or result.names]
    return [tuple(row[place] for place in places) for row in result.rows]
