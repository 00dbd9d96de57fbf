"""qmailanalog's zrecipients, zrhosts and zrxdelay: what went where, and how long the other side took."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark.lake.schema import Tables
from spark.reports.matchup import ended_deliveries
from spark.reports.report import Report, Total, View, seconds

XDELAY = Total("xdelay")


def _took() -> Column:
    return F.col("done_ns") - F.col("start_ns")


def _by(tables: Tables, view: View, name: str, place: Column) -> DataFrame:
    success = F.col("result") == "success"
    sums = ended_deliveries(tables).groupBy(place.alias(name)).agg(
        F.coalesce(F.sum(F.when(success, F.col("bytes"))), F.lit(0)).alias("sbytes"),
        F.count_if(F.col("result") != "deferral").alias("mess"),
        F.count("*").alias("tries"),
        *XDELAY.sums(_took()),
    )  # fmt: skip
    rows = sums.orderBy(F.desc("mess"), F.desc("tries"), *XDELAY.largest(), name)
    return rows.select(name, "sbytes", "mess", "tries", XDELAY.seconds())


def recipients(tables: Tables, view: View) -> DataFrame:
    """Return a row a recipient."""
    return _by(tables, view, "recipient", F.col("recipient"))


def rhosts(tables: Tables, view: View) -> DataFrame:
    """Return a row a recipients' domain: what follows the last @; without one, the recipient with its channel."""
    return _by(tables, view, "host", F.substring_index("recipient", "@", -1))


def rxdelay(tables: Tables, view: View) -> DataFrame:
    """Return a row a recipient, the quickest first."""
    sums = ended_deliveries(tables).groupBy("recipient").agg(F.count("*").alias("tries"), *XDELAY.sums(_took()))
    rows = sums.select("recipient", "tries", XDELAY.average(F.col("tries")).alias("ns"))
    return rows.orderBy("ns", "tries", "recipient").withColumn("avg", seconds(F.col("ns")))


_COLUMNS = {
    "sbytes": "bytes of messages delivered there, each counted once for each success",
    "mess": "recipients of messages: successes and failures",
    "tries": "deliveries: successes, failures and deferrals",
    "xdelay": "time from start to end of all deliveries there, s",
}

RECIPIENTS = Report(
    "recipients",
    "Recipients",
    "A row a recipient, the most messages first.",
    {**_COLUMNS, "recipient": "local. or remote. and the address in lower case"},
    recipients,
)
RHOSTS = Report(
    "rhosts",
    "Recipients' hosts",
    "A row a domain of recipients, local ones too; the most messages first.",
    {**_COLUMNS, "host": "what follows the last @ of the recipient; without one, the recipient as in `recipients`"},
    rhosts,
)
RXDELAY = Report(
    "rxdelay",
    "Recipients in the best order for mailing lists",
    "A row a recipient, the quickest first: who sends to all of them does well to send in this order.",
    {
        "avg": "average time from start to end of a delivery, s",
        "tries": "deliveries that avg is made of",
        "recipient": "local. or remote. and the address in lower case",
    },
    rxdelay,
)
