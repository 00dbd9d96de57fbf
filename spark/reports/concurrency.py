"""Deliveries in flight against the limits, over time, from the log's status lines.

A sample counts until the next one. Time between two runs of queue-send, and after the last sample of the log, has
none and counts nowhere; nor does an interval whose end is before its start, or more than a year after it: the clock
was set.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark.lake.schema import Tables
from spark.reports.report import NANO, SECONDS, Report, View, total_seconds

# Shares of the limit in percent: a level is above the one before and up to its own; the last two are special.
_LEVELS = ((0, "0 %"), (25, "1-25 %"), (50, "26-50 %"), (75, "51-75 %"))
_YEAR = 366 * 86400 * NANO
_HOUR = 3600 * NANO
_CHANNEL = ["host", "queue", "channel"]


def concurrency(tables: Tables, view: View) -> DataFrame:
    return _summary(_samples(tables, view), _CHANNEL).orderBy(*_CHANNEL)


def by_hour(tables: Tables, view: View) -> DataFrame:
    """Cut each interval at the full hours."""
    first = F.call_function("div", F.col("from_ns"), F.lit(_HOUR))
    last = F.call_function("div", F.col("to_ns") - 1, F.lit(_HOUR))
    pieces = _samples(tables, view).withColumn("hour", F.explode(F.sequence(first, last)))
    begin = F.col("hour") * F.lit(_HOUR)
    cut = pieces.withColumns(
        {
            "start": F.timestamp_seconds(F.col("hour") * F.lit(3600)),
            "ns": F.least(F.col("to_ns"), begin + F.lit(_HOUR)) - F.greatest(F.col("from_ns"), begin),
        }
    )
    return _summary(cut, ["start", *_CHANNEL]).orderBy("start", *_CHANNEL)


def levels(tables: Tables, view: View) -> DataFrame:
    now, limit = F.col("now"), F.col("limit")
    names = [*(name for _, name in _LEVELS), "76-99 %", "100 %"]
    level = F.when(now >= limit, len(names) - 1)
    for i, (share, _) in enumerate(_LEVELS):
        level = level.when(now * 100 <= limit * share, i)
    level = level.otherwise(len(names) - 2)
    each = _samples(tables, view).groupBy(*_CHANNEL, level.alias("place"))
    sums = each.agg(total_seconds(F.col("ns")).alias("seconds"))
    name = F.element_at(F.array(*(F.lit(name) for name in names)), F.col("place") + 1)
    return sums.withColumn("level", name).orderBy(*_CHANNEL, "place")


def _samples(tables: Tables, view: View) -> DataFrame:
    """Return host, queue, channel, now, limit, from_ns, to_ns, ns (the time between), cut to the view's window."""
    start, end = F.col("at_ns"), F.col("until_ns")
    sane = tables.intervals.where((end > start) & (end - start <= _YEAR))
    start = start if view.since is None else F.greatest(start, F.lit(view.since))
    end = end if view.until is None else F.least(end, F.lit(view.until))
    each = F.explode(
        F.array(
            *(
                F.struct(
                    F.lit(channel).alias("channel"),
                    F.col(f"{channel}_now").cast("long").alias("now"),
                    F.col(f"{channel}_limit").cast("long").alias("limit"),
                )
                for channel in ("local", "remote")
            )
        )
    )
    cut = sane.select("host", "queue", start.alias("from_ns"), end.alias("to_ns"), each.alias("c"))
    cut = cut.select("host", "queue", "c.*", "from_ns", "to_ns", (F.col("to_ns") - F.col("from_ns")).alias("ns"))
    return cut.where((F.col("ns") > 0) & F.col("now").isNotNull())


def _summary(samples: DataFrame, by: list[str]) -> DataFrame:
    full = F.col("now") >= F.col("limit")
    sums = samples.groupBy(*by).agg(
        total_seconds(F.col("ns")).alias("seconds"),
        total_seconds(F.col("now") * F.col("ns")).alias("work"),
        F.max("now").alias("peak"),
        F.max("limit").alias("limit"),
        F.coalesce(total_seconds(F.when(full, F.col("ns"))), F.lit(0).cast(SECONDS)).alias("at_limit"),
    )
    return sums.withColumns(
        {
            "average": _ratio(F.col("work"), F.col("seconds"), 3),
            "at_limit_percent": _ratio(F.col("at_limit") * 100, F.col("seconds"), 2),
        }
    )


def _ratio(part: Column, whole: Column, digits: int) -> Column:
    # Of wider ones Spark would keep six digits of the quotient, and round twice.
    return F.round(part.cast("decimal(20,9)") / whole.cast("decimal(20,9)"), digits).cast(f"decimal(20,{digits})")


_COLUMNS = {
    "host": "host",
    "queue": "queue",
    "channel": "local or remote",
    "seconds": "time that was observed",
    "average": "deliveries in flight, averaged over that time",
    "peak": "the most at any time",
    "limit": "the highest limit of that time",
    "at_limit": "seconds during which as many were in flight as were allowed",
    "at_limit_percent": "the same, in percent of the time observed",
}
_ABOUT = (
    " Only the time between status lines counts: none between two runs of queue-send, none after the log's last one."
)

REPORT = Report(
    name="concurrency",
    title="Deliveries in flight and limits",
    about="One row a host, queue and channel." + _ABOUT,
    columns=_COLUMNS,
    function=concurrency,
)
LEVELS = Report(
    name="concurrency-levels",
    title="Time at each level of concurrency",
    about="One row a host, queue, channel and level that occurred, from the lowest." + _ABOUT,
    columns={
        "host": "host",
        "queue": "queue",
        "channel": "local or remote",
        "level": "deliveries in flight as a share of the limit then; 76-99 % is all above 75 % that is below the limit",
        "seconds": "time at that level",
    },
    function=levels,
)
HOURS = Report(
    name="concurrency-hours",
    title="Deliveries in flight and limits by hour",
    about="One row an hour, host, queue and channel, in order of time." + _ABOUT,
    columns={"start": "start of the hour, UTC", **_COLUMNS},
    function=by_hour,
)
