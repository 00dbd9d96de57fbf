"""What came and went: by hour, by day, by hour of the day (pflogsumm's traffic summaries).

A message counts where it was received (its birth), a delivery where it ended; so messages that wait count as well.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark.lake.schema import Tables
from spark.reports.facts import lives, slot
from spark.reports.report import Report, View, within

_COUNTS = {
    "received": "messages that came in",
    "bytes": "bytes of those messages",
    "delivered": "deliveries that succeeded; one a recipient",
    "deferred": "deliveries that failed for now, mangled reports included; a recipient counts each time",
    "bounced": "deliveries that failed for good; one a recipient",
}


def born_within(tables: Tables, view: View) -> DataFrame:
    """Return the messages that were received in the view's window; those older than the log are in none."""
    born = lives(tables).where(F.col("birth_ns").isNotNull())
    if view.since is not None:
        born = born.where(F.col("birth_ns") >= view.since)
    return born if view.until is None else born.where(F.col("birth_ns") < view.until)


def _traffic(tables: Tables, view: View, length: int) -> DataFrame:
    """Return start, the counts: one row for each `length` seconds in which there was anything."""
    zero = F.lit(0).cast("long")
    one = F.lit(1).cast("long")
    came = born_within(tables, view).select(
        F.col("birth_ns").alias("ns"), one.alias("received"), F.coalesce("bytes", zero).alias("bytes"),
        *(zero.alias(name) for name in ("delivered", "deferred", "bounced")),
    )  # fmt: skip
    went = within(tables, view).deliveries.where(F.col("done_ns").isNotNull())
    went = went.select(
        F.col("done_ns").alias("ns"), zero.alias("received"), zero.alias("bytes"), _is("success").alias("delivered"),
        _is("deferral", "mangled").alias("deferred"), _is("failure").alias("bounced"),
    )  # fmt: skip
    sums = [F.sum(name).alias(name) for name in _COUNTS]
    return came.union(went).groupBy(slot(F.col("ns"), length).alias("start")).agg(*sums)


def _is(*results: str) -> Column:
    return F.col("result").isin(*results).cast("long")


def hours(tables: Tables, view: View) -> DataFrame:
    return _traffic(tables, view, 3600).orderBy("start")


def days(tables: Tables, view: View) -> DataFrame:
    return _traffic(tables, view, 86400).orderBy("start")


def daytime(tables: Tables, view: View) -> DataFrame:
    traffic = _traffic(tables, view, 3600).select(F.hour("start").alias("hour"), F.to_date("start").alias("day"), "*")
    session = traffic.sparkSession
    none = session.range(24).select(
        F.col("id").cast("int").alias("hour"), F.lit(None).cast("date").alias("day"),
        F.lit(None).cast("timestamp").alias("start"), *(F.lit(0).cast("long").alias(name) for name in _COUNTS),
    )  # fmt: skip
    both = traffic.select(*none.columns).union(none)
    number = F.greatest(F.lit(1), F.col("days"))
    number_of_days = traffic.agg(F.count_distinct("day").alias("days"))
    sums = both.groupBy("hour").agg(*(F.sum(name).alias(name) for name in _COUNTS))
    means = [F.round(F.col(name).cast("decimal(20,0)") / number.cast("decimal(10,0)"), 2) for name in _COUNTS]
    averages = [mean.cast("decimal(22,2)").alias(name) for mean, name in zip(means, _COUNTS, strict=True)]
    return sums.crossJoin(number_of_days).select("hour", *averages).orderBy("hour")


_START = "An hour or day in which nothing happened has no row. In order of time."

HOURS = Report(
    name="hours",
    title="Traffic by hour",
    about=_START,
    columns={"start": "start of the hour, UTC", **_COUNTS},
    function=hours,
    windowed=False,
)
DAYS = Report(
    name="days",
    title="Traffic by day",
    about=_START,
    columns={"start": "start of the day, UTC", **_COUNTS},
    function=days,
    windowed=False,
)
DAYTIME = Report(
    name="daytime",
    title="Traffic by hour of the day",
    about="pflogsumm's per-hour daily average: what an hour of the day saw, divided by the number of days that saw "
    "anything at all, to two digits. All 24 hours have a row.",
    columns={"hour": "hour of the day, 0 to 23, UTC", **{name: f"{text}, a day" for name, text in _COUNTS.items()}},
    function=daytime,
    windowed=False,
)
