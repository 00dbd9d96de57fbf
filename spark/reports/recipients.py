"""qmailanalog's zrecipients, zrhosts and zrxdelay: what went where, and how long the other side took."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark.reports.matchup import ended_deliveries
from spark.reports.report import Report, View, divide, total_seconds
from spark.schema import Tables


def _xdelay() -> Column:
    return total_seconds(F.col("done_ns") - F.col("start_ns")).alias("xdelay")


def _by(tables: Tables, view: View, name: str, place: Column) -> DataFrame:
    success = F.col("result") == "success"
    return (
        ended_deliveries(tables)
        .groupBy(place.alias(name))
        .agg(
            F.coalesce(F.sum(F.when(success, F.col("bytes"))), F.lit(0)).alias("sbytes"),
            F.count_if(F.col("result") != "deferral").alias("mess"),
            F.count("*").alias("tries"),
            _xdelay(),
        )
        .orderBy(F.desc("mess"), F.desc("tries"), F.desc("xdelay"), name)
    )


def recipients(tables: Tables, view: View) -> DataFrame:
    """Return a row a recipient."""
    return _by(tables, view, "recipient", F.col("recipient"))


def rhosts(tables: Tables, view: View) -> DataFrame:
    """Return a row a recipients' domain: what follows the last @; without one, the recipient with its channel."""
    return _by(tables, view, "host", F.substring_index("recipient", "@", -1))


def rxdelay(tables: Tables, view: View) -> DataFrame:
    """Return a row a recipient, the quickest first."""
    return (
        ended_deliveries(tables)
        .groupBy("recipient")
        .agg(F.count("*").alias("tries"), _xdelay())
        .withColumn("avg", divide(F.col("xdelay"), F.col("tries")))
        .orderBy("avg", "tries", "recipient")
    )


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
