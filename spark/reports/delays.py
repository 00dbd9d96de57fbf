"""How long mail took: the time in the queue, and the delivery itself; overall, by domain, by hour.

Deliveries that succeeded count, by their end. Queue time goes from the message's birth to the start of the delivery
that succeeded, earlier attempts and the waits between them included; delivery time from there to its end. Together
they are what mail took. Percentiles are exact (nearest rank: always a time that occurred).
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark.lake.schema import Tables
from spark.reports.facts import slot
from spark.reports.percentiles import percentiles
from spark.reports.report import Report, View, seconds

_SHARES = {"p50": 50, "p90": 90, "p99": 99, "max": 100}
_TIMES = [f"{time}_{share}" for time in ("queue", "delivery") for share in _SHARES]


def delays(tables: Tables, view: View) -> DataFrame:
    times = _times(tables)
    return times.agg(F.count("*").alias("deliveries")).crossJoin(_spread(times, []))


def by_domain(tables: Tables, view: View) -> DataFrame:
    return _grouped(_times(tables), "domain").orderBy(F.desc("deliveries"), "domain")


def by_hour(tables: Tables, view: View) -> DataFrame:
    times = _times(tables).withColumn("start", slot(F.col("done_ns"), 3600))
    return _grouped(times, "start").orderBy("start")


def _grouped(times: DataFrame, by: str) -> DataFrame:
    return times.groupBy(by).agg(F.count("*").alias("deliveries")).join(_spread(times, [by]), [by], "left")


def _times(tables: Tables) -> DataFrame:
    """Return domain, done_ns, queue and delivery (ns) of each success; queue is null where the log begins later."""
    return tables.deliveries.where(F.col("result") == "success").select(
        "domain",
        "done_ns",
        (F.col("start_ns") - F.col("birth_ns")).alias("queue"),
        (F.col("done_ns") - F.col("start_ns")).alias("delivery"),
    )


def _spread(times: DataFrame, by: list[str]) -> DataFrame:
    found = percentiles(times, by, ["queue", "delivery"], _SHARES)
    return found.select(*by, *(seconds(F.col(name)).alias(name) for name in _TIMES))


_ABOUT = (
    "Deliveries that succeeded, by their end. Queue time: from the message's birth to the start of the delivery that "
    "succeeded, with all attempts before it; messages older than the log have none. Delivery time: from that start to "
    "the end. pN is the smallest time that N % do not exceed (nearest rank). Negative: the clock was set back."
)
_WORDS = {"p50": "median", "p90": "90th percentile", "p99": "99th percentile", "max": "longest"}
_COLUMNS = {
    "deliveries": "deliveries that succeeded",
    **{f"{time}_{p}": f"{time} time: {_WORDS[p]}, seconds" for time in ("queue", "delivery") for p in _SHARES},
}

REPORT = Report(
    name="delays",
    title="Queue time and delivery time",
    about="One row. " + _ABOUT,
    columns=_COLUMNS,
    function=delays,
    single=True,
)
DOMAINS = Report(
    name="delays-domains",
    title="Queue time and delivery time by domain",
    about="One row a recipient domain, the one with the most deliveries first. " + _ABOUT,
    columns={"domain": "domain of the recipients", **_COLUMNS},
    function=by_domain,
)
HOURS = Report(
    name="delays-hours",
    title="Queue time and delivery time by hour",
    about="One row an hour in which a delivery succeeded, in order of time; with --domain, those to one domain. "
    + _ABOUT,
    columns={"start": "start of the hour, UTC", **_COLUMNS},
    function=by_hour,
)
