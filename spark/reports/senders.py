"""qmailanalog's zsenders and zsuids: who sent how much, and what it cost."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark.lake.schema import Tables
from spark.reports.matchup import match_up
from spark.reports.report import Report, View, nothing, total_seconds


def _by(tables: Tables, view: View, origin: str) -> DataFrame:
    """Group by origin: sender or uid. Who has only messages that have not ended is not listed, as in qmailanalog."""
    messages, deliveries = match_up(tables)
    recips = F.col("successes") + F.col("failures")
    sums = messages.groupBy(origin).agg(
        F.count("*").alias("mess"),
        F.sum("bytes").alias("bytes"),
        F.sum(F.col("bytes") * F.col("successes")).alias("sbytes"),
        F.sum(F.col("bytes") * recips).alias("rbytes"),
        F.sum(recips).alias("recips"),
        F.sum(recips + F.col("deferrals")).alias("tries"),
    )
    delays = deliveries.groupBy(origin).agg(total_seconds(F.col("done_ns") - F.col("start_ns")).alias("xdelay"))
    rows = sums.join(delays, origin, "left").withColumn("xdelay", F.coalesce("xdelay", nothing()))
    return rows.orderBy(F.desc("mess"), F.desc("bytes"), origin)


def senders(tables: Tables, view: View) -> DataFrame:
    """Return a row a sender."""
    return _by(tables, view, "sender")


def suids(tables: Tables, view: View) -> DataFrame:
    """Return a row a user that injected mail."""
    return _by(tables, view, "uid")


_COLUMNS = {
    "mess": "messages that ended",
    "bytes": "bytes in them",
    "sbytes": "bytes, each message counted once for each success",
    "rbytes": "bytes, each message counted once for each recipient (success or failure)",
    "recips": "recipients: successes and failures",
    "tries": "deliveries: successes, failures and deferrals",
    "xdelay": "time from start to end of all deliveries of this origin, those of messages still queued too, s",
}

SENDERS = Report(
    "senders",
    "Senders",
    "A row a sender of messages that ended, the most messages first. Bounces are the sender `<>`.",
    {**_COLUMNS, "sender": "in lower case, in angle brackets"},
    senders,
)
SUIDS = Report(
    "suids",
    "Users that sent mail",
    "A row a Unix user, by the uid of the process that put the message into the queue; the most messages first.",
    {**_COLUMNS, "uid": "user id"},
    suids,
)
