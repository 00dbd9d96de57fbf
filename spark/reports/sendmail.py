"""qmailanalog's zsendmail: a line a message and a delivery, in the style of sendmail's log."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark.lake.schema import Tables
from spark.reports.matchup import match_up
from spark.reports.report import Report, View


def sendmail(tables: Tables, view: View) -> DataFrame:
    """Return the lines in order of time, a message's last delivery before its own line."""
    messages, deliveries = match_up(tables)
    place = ["done_ns", "host", "queue"]
    own = messages.withColumns({"rcpts": F.col("successes") + F.col("failures"), "last": F.lit(1)})
    rows = deliveries.withColumn("last", F.lit(0)).unionByName(own, allowMissingColumns=True)
    # The lines are made of rows in order, once; made before, they would be made once more to see how they spread.
    rows = rows.orderBy(*place, "last", "key", "recipient", "start_ns")
    at = F.timestamp_micros(F.call_function("div", F.col("done_ns"), F.lit(1000)))
    line = F.when(F.col("last") == 0, _to()).otherwise(_from())
    return rows.select("host", "queue", at.alias("at"), line.alias("line"))


def _to() -> Column:
    status = F.when(F.col("result") == "success", "Sent").when(F.col("result") == "failure", "Failed")
    return F.concat(
        F.lit("qp "), _known("qp"), F.lit(": to="), "recipient", F.lit(", uid="), _known("uid"), F.lit(", ddelay="),
        _elapsed("birth_ns"), F.lit(", xdelay="), _elapsed("start_ns"), F.lit(", stat="), status.otherwise("Deferred"),
        F.lit(" ("), "reason", F.lit(")"),
    )  # fmt: skip


def _from() -> Column:
    return F.concat(
        F.lit("qp "), _known("qp"), F.lit(": from="), "sender", F.lit(", uid="), _known("uid"), F.lit(", size="),
        "bytes", F.lit(", nrcpts="), "rcpts", F.lit(", deferrals="), "deferrals", F.lit(", qtime="),
        _elapsed("birth_ns"),
    )  # fmt: skip


def _known(name: str) -> Column:
    return F.coalesce(F.col(name).cast("string"), F.lit("?"))


def _elapsed(since: str) -> Column:
    """Return the seconds since then with six digits, rounded."""
    took = F.col("done_ns") - F.col(since)
    micros = F.call_function("div", F.abs(took) + F.lit(500), F.lit(1000))
    whole, rest = F.call_function("div", micros, F.lit(1_000_000)), micros % F.lit(1_000_000)
    sign = F.when((took < 0) & (micros > 0), "-").otherwise("")
    return F.concat(sign, whole, F.lit("."), F.lpad(rest.cast("string"), 6, "0"))


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
)
