"""From a lake to a page's data: runs the reports and takes their rows, as many as a page has room for."""

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, TypeAlias

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DateType, TimestampType

from spark.lake.manifest import Manifest
from spark.lake.schema import Tables
from spark.page.bins import make_bins
from spark.page.data import Moment, PageData, Row
from spark.page.plots import Bins
from spark.page.queue import CHANNELS, PROBLEMS, STREAMS, every_hour
from spark.reports import REPORTS
from spark.reports.report import View, run, select

# Rows of a page: of reasons, of domains, of episodes, of domains in a queue's shape, and of quarantine.
REASONS, DOMAINS, EPISODES, SHAPE, QUARANTINED = 40, 25, 500, 15, 20
NANO = 1_000_000_000

Arrange: TypeAlias = Callable[[DataFrame], DataFrame]


def collect(
    tables: Tables, view: View, manifest: Manifest, only: str = "", phase: Callable[[str], None] = lambda _: None
) -> PageData:
    """Return the data of a page. only: what the view leaves out, in words. phase is called with each report's name."""

    def rows_of(name: str, arrange: Arrange = lambda frame: frame, at: View = view) -> list[Row]:
        phase(name)
        return take(arrange(run(REPORTS[name], tables, at)))

    rows: dict[str, Sequence[Row]] = {name: rows_of(name) for name in ("hours", "days", "delays", "delays-hours")}
    rows["backlog"] = rows_of("backlog")
    begin, end = covered(rows, view)
    bins = make_bins(begin, end)
    rows["classify"] = rows_of("classify", _first(REASONS))
    rows["classify-hours"] = rows_of("classify-hours", lambda frame: _binned(frame, bins))
    rows["domains"] = rows_of("domains", _worst("deferred", "bounced", most=DOMAINS))
    rows["destinations"] = rows_of("destinations", _worst("seconds", most=EPISODES))
    rows["concurrency"] = rows_of("concurrency", _worst("at_limit_percent", "average", most=STREAMS))
    channels = _busiest(rows["concurrency"])
    rows["concurrency-hours"] = rows_of("concurrency-hours", lambda frame: _chosen(frame, channels))
    rows["conservation"] = rows_of("conservation")
    rows["conservation-messages"] = []
    if any(row["problems"] for row in rows["conservation"]):
        rows["conservation-messages"] = rows_of("conservation-messages", _first(PROBLEMS + 1))
    moments = [
        Moment(name, at, rows_of("qshape", _first(SHAPE + 1), view._replace(at=int(at) * NANO)))
        for name, at in choose_moments(rows["backlog"], begin, end)
    ]
    phase("quarantine")
    rows["quarantine"] = take(_quarantine(select(tables, view).quarantine))
    meanings = {name: REPORTS[name].columns for name in rows if name in REPORTS}
    lines = {name: kinds for name, kinds in manifest.counts.items() if view.host in (None, name.partition("/")[0])}
    return PageData(manifest.made, manifest.number, only, begin, end, rows, meanings, lines, moments)


def take(frame: DataFrame) -> list[Row]:
    """Return a frame's rows with times as Unix seconds: Python's own would be in the zone of this machine."""
    kinds = {field.name: field.dataType for field in frame.schema.fields}
    micros = [name for name, kind in kinds.items() if isinstance(kind, TimestampType)]
    days = [name for name, kind in kinds.items() if isinstance(kind, DateType)]
    plain = frame.withColumns(
        {name: F.unix_micros(name) for name in micros} | {name: F.unix_date(name) for name in days}
    )
    return [
        {
            name: value / 1e6 if name in micros and value is not None else _plain(value)
            for name, value in zip(plain.columns, row, strict=True)
        }
        for row in plain.collect()
    ]


def _plain(value: Any) -> Any:
    return float(value) if isinstance(value, Decimal) else value


def covered(rows: dict[str, Sequence[Row]], view: View) -> tuple[float, float]:
    """Return from when to when (Unix, s) the page goes: the view's window, or else where there is anything.

    Both are the same where there is nothing, and no window of two ends.
    """
    since, until = (None if limit is None else limit / NANO for limit in (view.since, view.until))
    begins = [row["start"] for name in ("hours", "delays-hours") for row in rows[name]]
    begins += [row["at"] for row in rows["backlog"]]
    begin = min(begins, default=until or 0.0) if since is None else since
    end = max((start + 3600 for start in begins), default=begin) if until is None else until
    return begin, max(begin, end)


def choose_moments(backlog: Sequence[Row], begin: float, end: float) -> list[tuple[str, float]]:
    """Return names and times of the moments whose queue is shown: the longest, a middling one, and the end."""
    hours = sorted(every_hour(backlog, begin, end), key=lambda hour: (hour[1]["T"], hour[0]))
    if not hours:
        return []
    found = [("The longest queue", hours[-1][0]), ("A queue of middle length", hours[len(hours) // 2][0])]
    found.append(("The queue at the last full hour", max(at for at, _ in hours)))
    # One moment may be several of these.
    return [(name, at) for i, (name, at) in enumerate(found) if at not in [other for _, other in found[:i]]]


def _first(most: int) -> Arrange:
    return lambda frame: frame.limit(most)


def _worst(*columns: str, most: int) -> Arrange:
    """Return what takes the rows with the largest sum of some columns."""

    def arrange(frame: DataFrame) -> DataFrame:
        total: Column = sum((F.col(name).cast("double") for name in columns), F.lit(0.0))
        return frame.orderBy(F.desc(total), *frame.columns[:3]).limit(most)

    return arrange


def _binned(frame: DataFrame, bins: Bins) -> DataFrame:
    """Add up a report by hour and class over stretches of time, so that years have no more rows than days."""
    seconds = F.unix_seconds("start")
    start = seconds - F.pmod(seconds - F.lit(bins.start), F.lit(bins.length))
    sums = frame.groupBy(start.alias("at"), "class").agg(
        F.sum("failures").alias("failures"), F.sum("deferrals").alias("deferrals")
    )
    named = sums.select(F.timestamp_seconds("at").alias("start"), "class", "failures", "deferrals")
    return named.orderBy("start", "class")


def _busiest(rows: Sequence[Row]) -> list[tuple[str, str, str]]:
    first = sorted(rows, key=lambda row: (-row["at_limit_percent"], -row["average"]))[:CHANNELS]
    return [(row["host"], row["queue"], row["channel"]) for row in first]


def _chosen(frame: DataFrame, channels: Sequence[tuple[str, str, str]]) -> DataFrame:
    chosen = F.lit(False)
    for host, queue, channel in channels:
        chosen = chosen | ((F.col("host") == host) & (F.col("queue") == queue) & (F.col("channel") == channel))
    return frame.where(chosen)


def _quarantine(table: DataFrame) -> DataFrame:
    """Return some lines of each reason."""
    columns = ["host", "queue", "file", "line", "reason", "text"]
    return table.select(*columns).orderBy("reason", *columns[:4]).limit(QUARANTINED)
