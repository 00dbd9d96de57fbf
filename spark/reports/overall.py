"""qmailanalog's zoverall: how many, how large and how fast."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark.lake.schema import Tables
from spark.reports.matchup import match_up
from spark.reports.report import NANO, Report, View, divide, seconds, total_seconds


def overall(tables: Tables, view: View) -> DataFrame:
    """Return one row. Averages are null where there is nothing to average; so are first, last and what needs them."""
    messages, deliveries = match_up(tables)
    ended = messages.agg(
        F.count("*").alias("messages"),
        _sum(F.col("successes") + F.col("failures")).alias("recips"),
        _sum(F.col("successes") + F.col("failures") + F.col("deferrals")).alias("tries"),
        _sum(F.col("bytes")).alias("bytes"),
        _sum(F.col("bytes") * F.col("successes")).alias("sbytes"),
        total_seconds(F.col("done_ns") - F.col("birth_ns")).alias("qtime"),
        F.min("birth_ns").alias("born"),
        F.max("done_ns").alias("ended"),
    )
    success = F.col("result") == "success"
    tried = deliveries.agg(
        F.count("*").alias("attempts"),
        F.count_if(success).alias("successes"),
        F.count_if(F.col("result") == "failure").alias("failures"),
        F.count_if(F.col("result") == "deferral").alias("deferrals"),
        total_seconds(F.when(success, F.col("done_ns") - F.col("birth_ns"))).alias("ddelay"),
        total_seconds(F.col("done_ns") - F.col("start_ns")).alias("xdelay"),
        F.min("birth_ns").alias("tried"),
        F.max("done_ns").alias("done"),
    )
    first, last = F.least("born", "tried"), F.greatest("ended", "done")
    return (
        ended.crossJoin(tried)
        .withColumn("tries_average", divide(F.col("tries"), F.col("messages")))
        .withColumn("qtime_average", divide(F.col("qtime"), F.col("messages")))
        .withColumn("ddelay_average", divide(F.col("ddelay"), F.col("successes")))
        .withColumn("xdelay_average", divide(F.col("xdelay"), F.col("attempts")))
        .withColumn("first", F.timestamp_micros(F.call_function("div", first, F.lit(1000))))
        .withColumn("last", F.timestamp_micros(F.call_function("div", last, F.lit(1000))))
        .withColumn("span", seconds(last - first))
        # divide() takes whole numbers only: nanoseconds by nanoseconds.
        .withColumn("concurrency", divide(F.col("xdelay") * NANO, last - first))
    )


def _sum(column: Column) -> Column:
    return F.coalesce(F.sum(column), F.lit(0))


REPORT = Report(
    "overall",
    "Basic statistics",
    "One row. A message counts when it has ended, and its `info` line was seen; a delivery when it has ended. "
    "The concurrency is how many deliveries were running on average: how busy the mailer is.",
    {
        "messages": "messages that ended",
        "recips": "their recipients: successes and failures",
        "tries": "their deliveries: successes, failures and deferrals",
        "tries_average": "tries a message",
        "bytes": "bytes in these messages",
        "sbytes": "bytes, each message counted once for each success",
        "qtime": "time from `info` to `end`, of all these messages, s",
        "qtime_average": "the same a message, s",
        "attempts": "deliveries that ended, of any message",
        "successes": "of these, successes",
        "failures": "failures",
        "deferrals": "deferrals, mangled reports included",
        "ddelay": "time from a message's `info` to the end of a successful delivery of it, of all successes, s",
        "ddelay_average": "the same a success, s",
        "xdelay": "time from start to end of a delivery, of all deliveries, s",
        "xdelay_average": "the same a delivery, s",
        "first": "when the first of these messages was queued",
        "last": "when the last message or delivery ended",
        "span": "time from first to last, s",
        "concurrency": "xdelay / span: deliveries in flight on average",
    },
    overall,
    single=True,
)
