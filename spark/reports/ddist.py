"""qmailanalog's zddist: within how long which part of the successful deliveries had happened."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from spark.lake.schema import Tables
from spark.reports.matchup import ended_deliveries
from spark.reports.report import Report, View, divide, seconds, total_seconds


def ddist(tables: Tables, view: View) -> DataFrame:
    """Return at most 91 rows.

    With x successes, of which n took no longer than a delay, that delay belongs to percentage floor(100 n / x), and
    the least one of each percentage is its doneby; a percentage without a delay has no row. All this is qmailanalog's.
    It compares delays as text, so that its doneby may be another of the same percentage (`9.1` after `10.2`), and takes
    equal delays as one in its average; here both are as it says that they are.
    """
    delay = F.col("done_ns") - F.col("birth_ns")
    delays = ended_deliveries(tables).where(F.col("result") == "success").select(delay.alias("delay"))
    # One sorted list of all delays would be the work of one task. So they are counted by buckets of a thousandth of
    # their logarithm, and sorted within each.
    delays = delays.withColumn("bucket", F.floor(F.log1p(F.greatest("delay", F.lit(0))) * 1000))
    before = Window.orderBy("bucket").rowsBetween(Window.unboundedPreceding, -1)
    everything = Window.partitionBy()
    buckets = (
        delays.groupBy("bucket")
        .agg(F.count("*").alias("n"))
        .withColumn("before", F.coalesce(F.sum("n").over(before), F.lit(0)))
        .withColumn("all", F.sum("n").over(everything))
    )
    upto = F.count("*").over(Window.partitionBy("bucket").orderBy("delay"))
    percent = F.call_function("div", (F.col("before") + upto) * 100, F.col("all"))
    rows = (
        delays.join(F.broadcast(buckets), "bucket")
        .select("delay", percent.alias("pct"))
        .groupBy("pct")
        .agg(F.min("delay").alias("least"), total_seconds(F.col("delay")).alias("total"), F.count("*").alias("n"))
    )
    sofar = Window.orderBy("pct")
    return (
        rows.withColumn("avg", divide(F.sum("total").over(sofar), F.sum("n").over(sofar)))
        .where(F.col("pct") >= 10)
        .select(seconds(F.col("least")).alias("doneby"), "avg", "pct")
        .orderBy("pct")
    )


REPORT = Report(
    "ddist",
    "Distribution of ddelays for successful deliveries",
    "The first pct% of successful deliveries all happened within doneby seconds of the message's `info`; their average "
    "was avg. From 10 to 100; a percentage that no delivery falls on has no row.",
    {
        "doneby": "ddelay, s",
        "avg": "average ddelay of all deliveries of this percentage and of those before it, s",
        "pct": "percentage",
    },
    ddist,
)
