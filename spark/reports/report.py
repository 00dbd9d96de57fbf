"""What a report is, what of a lake it looks at, and how delays are summed: shared by all of spark.reports.

A report is a pure function of a lake's tables and a view to a DataFrame whose rows come in order. Delays are decimals
of seconds with nine digits, exact to the nanosecond; counts and bytes are longs.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DecimalType

from spark.lake.schema import Tables

NANO = 1_000_000_000
SECONDS = DecimalType(28, 9)


class View(NamedTuple):
    """What a report is asked for. since, until, at: Unix time in nanoseconds; until is not part of the window.

    None is no restriction. domain is in lower case. limit: the number of rows.
    """

    since: int | None = None
    until: int | None = None
    at: int | None = None
    host: str | None = None
    domain: str | None = None
    limit: int | None = None


Function: TypeAlias = Callable[[Tables, View], DataFrame]


@dataclass(frozen=True)
class Report:
    """A report by its name. columns: by name in order, what each holds with its unit, for docs/reports.md and the page.

    about: what a row is, and in which order, in a few sentences. windowed: its function gets tables that `select` has
    cut to since and until; one that needs what was before or after them (the queue as it was) takes them uncut.
    momentary: it looks at the moment `at`. single: it always has one row, which is printed as a line a column. spaced:
    columns of text as the log has it, whose `_` a table shows as spaces.
    """

    name: str
    title: str
    about: str
    columns: dict[str, str]
    function: Function
    windowed: bool = True
    momentary: bool = False
    single: bool = False
    spaced: frozenset[str] = frozenset()


def run(report: Report, tables: Tables, view: View) -> DataFrame:
    """Return the report's rows, in its order, at most view.limit."""
    frame = report.function(select(tables, view, windowed=report.windowed), view).select(*report.columns)
    return frame if view.limit is None else frame.limit(view.limit)


def select(tables: Tables, view: View, *, windowed: bool = True) -> Tables:
    """Return what the view lets see: rows of its host, of its window and about its domain.

    A message or a delivery is in a window when it ended in it (a lost delivery: started), an interval when it reaches
    into it, a quarantined line by its stamp (those without one are in no window). What is pending has no end, so it
    is cut by host and domain only. A message is about a domain when it has a delivery to it, then or earlier.
    """
    if view.host is not None:
        tables = Tables(*(table.where(F.col("host") == view.host) for table in tables))
    messages, deliveries, pending = tables.messages, tables.deliveries, tables.pending
    if view.domain is not None:
        deliveries = deliveries.where(F.col("domain") == view.domain)
        flying = pending.where((F.col("what") == "delivery") & (F.col("domain") == view.domain))
        keys = deliveries.select("host", "queue", "key").union(flying.select("host", "queue", "key")).distinct()
        messages = messages.join(keys, ["host", "queue", "key"], "left_semi")
        waiting = pending.where(F.col("what") == "message").join(keys, ["host", "queue", "key"], "left_semi")
        pending = flying.unionByName(waiting).unionByName(pending.where(F.col("what") == "status"))
    chosen = tables._replace(messages=messages, deliveries=deliveries, pending=pending)
    return within(chosen, view) if windowed else chosen


def within(tables: Tables, view: View) -> Tables:
    """Return the tables cut to the view's window, as `select` says."""
    intervals = tables.intervals
    if view.since is not None:
        intervals = intervals.where(F.col("until_ns") > view.since)
    if view.until is not None:
        intervals = intervals.where(F.col("at_ns") < view.until)
    return tables._replace(
        messages=_cut(tables.messages, F.col("done_ns"), view),
        deliveries=_cut(tables.deliveries, F.coalesce("done_ns", "start_ns"), view),
        intervals=intervals,
        quarantine=_cut(tables.quarantine, F.col("time_ns"), view),
    )


def _cut(table: DataFrame, time_ns: Column, view: View) -> DataFrame:
    # The date is what the table is stored by: days outside of the window are not even read.
    if view.since is not None:
        table = table.where((time_ns >= view.since) & (F.col("date") >= day(view.since)))
    if view.until is not None:
        table = table.where((time_ns < view.until) & (F.col("date") <= day(view.until)))
    return table


def day(time_ns: int) -> Column:
    """Return the UTC date of a Unix time in nanoseconds, as the tables' date column has it."""
    return F.date_add(F.lit("1970-01-01").cast("date"), time_ns // (86400 * NANO))


def seconds(ns: Column) -> Column:
    """Return a number of nanoseconds (a long) as seconds, exactly."""
    whole, rest = _split(ns)
    return _join(whole, rest)


def total_seconds(ns: Column) -> Column:
    """Return the sum of nanoseconds over a group as seconds, exactly.

    Seconds and the rest are added separately: a long of nanoseconds overflows with ten million delays of 15 minutes.
    """
    whole, rest = _split(ns)
    return _join(F.sum(whole), F.sum(rest))


class Total(NamedTuple):
    """A sum of nanoseconds over a group, in two longs: by these many rows are sorted, since decimals are slow there."""

    name: str

    def sums(self, ns: Column) -> tuple[Column, Column]:
        """Return the columns for agg."""
        whole, rest = _split(ns)
        return F.sum(whole).alias(f"{self.name}_whole"), F.sum(rest).alias(f"{self.name}_rest")

    def _parts(self) -> tuple[Column, Column]:
        """Return whole seconds, rounded down, and the nanoseconds left over."""
        whole, rest = F.col(f"{self.name}_whole"), F.col(f"{self.name}_rest")
        left = F.pmod(rest, F.lit(NANO))
        return whole + F.call_function("div", rest - left, F.lit(NANO)), left

    def largest(self) -> list[Column]:
        """Return what orderBy puts the largest first by."""
        return [part.desc() for part in self._parts()]

    def seconds(self) -> Column:
        """Return the sum, as seconds."""
        return _join(*self._parts()).alias(self.name)

    def average(self, count: Column) -> Column:
        """Return the average in nanoseconds, rounded half up."""
        whole, left = self._parts()
        over = F.pmod(whole, count)
        rest = over * F.lit(NANO) + left
        full = F.call_function("div", whole - over, count) * F.lit(NANO)
        return full + F.call_function("div", 2 * rest + count, 2 * count)


def spread(rows: DataFrame, most: int = 200_000) -> DataFrame:
    """Make the rows now, and have them sent to all processes at a join unless they are more than `most`.

    A join with rows that are everywhere leaves the other side where it is, which else goes over the network, sorted.
    """
    made = rows.localCheckpoint()
    return F.broadcast(made) if made.count() <= most else made


def divide(total: Column, count: Column) -> Column:
    """Return total / count as a decimal of nine digits, rounded half up; null where count is 0."""
    return F.round(total.cast(SECONDS) / F.when(count != 0, count).cast("decimal(19,0)"), 9).cast(SECONDS)


def _split(ns: Column) -> tuple[Column, Column]:
    return F.call_function("div", ns, F.lit(NANO)), ns % F.lit(NANO)


def _join(whole: Column, rest: Column) -> Column:
    nano = F.lit("0.000000001").cast("decimal(10,9)")
    return (whole.cast("decimal(19,0)") + rest.cast("decimal(19,0)") * nano).cast(SECONDS)


def nothing() -> Column:
    """Return 0 seconds."""
    return F.lit(0).cast(SECONDS)
