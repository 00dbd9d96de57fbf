"""qmailanalog's zsendmail: a line a message and a delivery, in the style of sendmail's log."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark.reports.matchup import match_up
from spark.reports.report import Report, View, seconds
from spark.schema import Tables


def sendmail(tables: Tables, view: View) -> DataFrame:
    """Return the lines in order of time, a message's last delivery before its own line."""
    messages, deliveries = match_up(tables, view)
    status = F.when(F.col("result") == "success", "Sent").when(F.col("result") == "failure", "Failed")
    to = F.format_string(
        "qp %s: to=%s, uid=%s, ddelay=%s, xdelay=%s, stat=%s (%s)",
        _known("qp"), "recipient", _known("uid"), _elapsed("birth_ns"), _elapsed("start_ns"),
        status.otherwise("Deferred"), "reason",
    )  # fmt: skip
    sender = F.format_string(
        "qp %s: from=%s, uid=%s, size=%d, nrcpts=%d, deferrals=%d, qtime=%s",
        _known("qp"), "sender", _known("uid"), "bytes", F.col("successes") + F.col("failures"), "deferrals",
        _elapsed("birth_ns"),
    )  # fmt: skip
    stream = ["host", "queue", "done_ns"]
    lines = deliveries.select(*stream, F.lit(0).alias("last"), to.alias("line")).union(
        messages.select(*stream, F.lit(1).alias("last"), sender.alias("line"))
    )
    at = F.timestamp_micros(F.call_function("div", F.col("done_ns"), F.lit(1000)))
    return lines.withColumn("at", at).orderBy("done_ns", "host", "queue", "last", "line")


def _known(name: str) -> Column:
    return F.coalesce(F.col(name).cast("string"), F.lit("?"))


def _elapsed(since: str) -> Column:
    return F.round(seconds(F.col("done_ns") - F.col(since)), 6).cast("decimal(25,6)").cast("string")


REPORT = Report(
    "sendmail",
    "Log in sendmail's style",
    "A row a delivery and a message that ended, in order of time: what one looks for with grep. "
    "ddelay is the time since the message's `info`, xdelay the time since the start of the delivery, qtime the time of "
    "the message in the queue, all in s; nrcpts counts successes and failures.",
    {
        "at": "when it ended",
        "host": "host",
        "queue": "queue",
        "line": "`qp Q: to=…` for a delivery, `qp Q: from=…` for a message; Q is the process that queued the message",
    },
    sendmail,
    windowed=False,
)
