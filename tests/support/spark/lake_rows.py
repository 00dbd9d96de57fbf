"""Tables written by hand, a short call a row. Times are in seconds of Unix time, and may be fractions with nine digits.

A message is named by its key, which needs no number in these tests; host and queue are h and q unless told.
"""

import datetime
from decimal import Decimal
from typing import Any, TypeAlias

from pyspark.sql import DataFrame, SparkSession

from spark.lake.schema import OF_MESSAGE, TABLES, Tables
from spark.reports import REPORTS
from spark.reports.report import View, run

NANO = 1_000_000_000
Row: TypeAlias = dict[str, Any]
Seconds: TypeAlias = int | Decimal


def ns(seconds: Seconds) -> int:
    """Return nanoseconds."""
    return int(seconds * NANO)


def utc(seconds: Seconds) -> datetime.datetime:
    """Return a time as Spark's rows have it where the time zone is UTC: without a zone, as this process shows it."""
    return datetime.datetime.fromtimestamp(float(seconds))


class LakeRows:
    """Rows of the five tables, and the Tables of them."""

    def __init__(self) -> None:
        self.rows: dict[str, list[Row]] = {name: [] for name in TABLES}

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
            "birth_ns": None if birth is None else ns(birth), "recipients": recipients,
            "successes": counts[0], "failures": counts[1], "deferrals": counts[2],
        }  # fmt: skip
        if done is None:
            self.rows["pending"].append({**row, "what": "message"})
        else:
            self.rows["messages"].append({**row, "done_ns": ns(done), "outcome": outcome, "date": _date(done)})

    def delivery(
        self, key: str, recipient: str, start: Seconds, done: Seconds | None, result: str | None = "success", *,
        reason: str = "", code: str = "", kind: str = "", delivery: int = 1, channel: str = "remote",
        host: str = "h", queue: str = "q",
    ) -> None:  # fmt: skip
        """Add a delivery; one without a result is in flight. kind: its class."""
        row: Row = {
            "host": host, "queue": queue, "key": key, "recipient": recipient, "delivery": delivery,
            "domain": recipient.rpartition("@")[2] if "@" in recipient else "",
            "channel": channel, "start_ns": ns(start),
        }  # fmt: skip
        if result is None:
            self.rows["pending"].append({**row, "what": "delivery"})
            return
        end = {"done_ns": None if done is None else ns(done), "date": _date(start if done is None else done)}
        said = {"reason": reason, "template": reason, "code": code, "class": kind}
        self.rows["deliveries"].append({**row, **end, **said, "result": result})

    def sample(self, at: Seconds, until: Seconds, local: tuple[int, int], remote: tuple[int, int], host: str) -> None:
        """Add an interval; local, remote: in flight and limit."""
        row: Row = {
            "host": host, "queue": "q", "at_ns": ns(at), "until_ns": ns(until), "date": _date(until),
            "local_now": local[0], "local_limit": local[1], "remote_now": remote[0], "remote_limit": remote[1],
        }  # fmt: skip
        self.rows["intervals"].append(row)

    def tables(self, spark: SparkSession) -> Tables:
        """Return the tables. What a delivery knows of its message is that of the message here."""
        lives = {_place(row): row for row in (*self.rows["messages"], *self.rows["pending"]) if "delivery" not in row}
        for row in (row for name in ("deliveries", "pending") for row in self.rows[name] if "delivery" in row):
            life = lives.get(_place(row), {})
            row.update({name: life[name] for name in OF_MESSAGE if name in life})
        frames = {}
        for name, schema in TABLES.items():
            rows = [tuple(map(row.get, schema.names)) for row in self.rows.get(name, [])]
            frames[name] = spark.createDataFrame(rows, schema)
        return Tables(**frames)


def _place(row: Row) -> tuple[str, ...]:
    return row["host"], row["queue"], row["key"]


def _date(seconds: Seconds) -> datetime.date:
    return datetime.datetime.fromtimestamp(float(seconds), datetime.UTC).date()


def ask(name: str, tables: Tables, view: View | None = None, *columns: str) -> list[tuple[Any, ...]]:
    """Return a report's rows in order, as tuples of these columns (all where none is named)."""
    frame: DataFrame = run(REPORTS[name], tables, view or View())
    return [tuple(row) for row in (frame.select(*columns) if columns else frame).collect()]
