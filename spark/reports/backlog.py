"""How many messages waited, by age, at each full hour: the queue's shape over time.

A message is in the bucket from 5 to 10 minutes during a stretch of its life. The stretches of all messages, counted up
where they begin and down where they end, give the buckets of every hour, without looking at any message twice.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from spark.lake.schema import Tables
from spark.reports.facts import lives
from spark.reports.qshape import BUCKETS, LIMITS, MINUTE, last_moment
from spark.reports.report import NANO, Report, View

_HOUR = 3600 * NANO


def backlog(tables: Tables, view: View) -> DataFrame:
    born, done = F.coalesce("birth_ns", "first_ns"), F.col("done_ns")
    edges = [0, *(limit * MINUTE for limit in LIMITS)]
    stretches = []
    for i, name in enumerate(BUCKETS):
        begin = born + edges[i]
        end = F.least(done, born + edges[i + 1]) if i + 1 < len(edges) else done  # least passes nulls by.
        first, last = _hour(begin), _hour(end)
        # It shows at the hours h with begin <= h < end.
        shows = last.isNull() | (first < last)
        stretch = F.struct(F.lit(name).alias("bucket"), first.alias("first"), last.alias("last"))
        stretches.append(F.when(shows, stretch))
    ages = lives(tables).select(F.explode(F.array_compact(F.array(*stretches))).alias("s"))
    steps = ages.select(
        F.col("s.bucket"),
        F.explode(
            F.array(
                F.struct(F.col("s.first").alias("hour"), F.lit(1).alias("step")),
                F.struct(F.col("s.last").alias("hour"), F.lit(-1).alias("step")),
            )
        ).alias("e"),
    ).select("bucket", "e.hour", "e.step")
    step = [F.sum(F.when(F.col("bucket") == name, F.col("step")).otherwise(0)).alias(name) for name in BUCKETS]
    by_hour = steps.where(F.col("hour").isNotNull()).groupBy("hour").agg(*step)
    so_far = Window.orderBy("hour").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    counts = by_hour.select("hour", *(F.sum(name).over(so_far).alias(name) for name in BUCKETS))
    every = F.col("hour") * F.lit(3600)
    # What waits at the end of the log grows older after it, but nobody knows whether it still waits.
    known = counts.where(every <= (last_moment(tables) or 0) // NANO)
    shape = known.select(F.timestamp_seconds(every).alias("at"), _total().alias("T"), *BUCKETS)
    if view.since is not None:
        shape = shape.where(every >= view.since // NANO)
    if view.until is not None:
        shape = shape.where(every < view.until // NANO)
    return shape.orderBy("at")


def _hour(ns: Column) -> Column:
    """Return the number of the first full hour at or after a time."""
    up = ns + F.lit(_HOUR - 1)
    return F.call_function("div", up - F.pmod(up, F.lit(_HOUR)), F.lit(_HOUR))


def _total() -> Column:
    total = F.col(BUCKETS[0])
    for name in BUCKETS[1:]:
        total = total + F.col(name)
    return total


REPORT = Report(
    name="backlog",
    title="The queue by age, hour by hour",
    about="The messages that waited at each full hour, by their age, as qshape has it. An hour without a row was as "
    "the one before it. In order of time.",
    columns={
        "at": "the full hour, UTC",
        "T": "messages that waited",
        **{name: f"of these, younger than {name} minutes, and in no column before" for name in BUCKETS[:-1]},
        "1280+": "of these, 1280 minutes old or older",
    },
    function=backlog,
    windowed=False,
)
