"""Domains by their mail: where it went, and where it came from (pflogsumm's host/domain summaries)."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark.lake.schema import Tables
from spark.reports.facts import sender_domain
from spark.reports.report import SECONDS, Report, View, divide, seconds, total_seconds
from spark.reports.volume import born_within


def domains(tables: Tables, view: View) -> DataFrame:
    success = F.col("result") == "success"
    delay = F.when(success, F.col("done_ns") - F.col("birth_ns"))
    sums = (
        tables.deliveries.where(F.col("done_ns").isNotNull())
        .groupBy("domain")
        .agg(
            F.count_if(success).alias("delivered"),
            F.coalesce(F.sum(F.when(success, F.col("bytes"))), F.lit(0)).alias("bytes"),
            F.count_if(F.col("result").isin("deferral", "mangled")).alias("deferred"),
            F.count_if(F.col("result") == "failure").alias("bounced"),
            total_seconds(delay).alias("delay_sum"),
            F.count(delay).alias("delays"),
            F.max(delay).alias("delay_max"),
        )
    )
    return sums.select(
        "domain", "delivered", "bytes", "deferred", "bounced",
        divide(F.col("delay_sum"), F.col("delays")).alias("delay_avg"),
        seconds(F.col("delay_max")).cast(SECONDS).alias("delay_max"),
    ).orderBy(F.desc("delivered"), F.desc("deferred"), "domain")  # fmt: skip


def sender_domains(tables: Tables, view: View) -> DataFrame:
    born = born_within(tables, view).groupBy(sender_domain().alias("domain"))
    sums = born.agg(F.count("*").alias("received"), F.coalesce(F.sum("bytes"), F.lit(0)).alias("bytes"))
    return sums.orderBy(F.desc("received"), "domain")


REPORT = Report(
    name="domains",
    title="Domains by mail delivered",
    about="One row a recipient domain, the one with the most deliveries first; '' is recipients without a domain. "
    "Deliveries count by their end. A delay goes from a message's birth to the end of the delivery that succeeded; "
    "messages older than the log have none.",
    columns={
        "domain": "domain of the recipients",
        "delivered": "deliveries that succeeded",
        "bytes": "bytes delivered: a message counts once a recipient",
        "deferred": "deliveries that failed for now, mangled reports included",
        "bounced": "deliveries that failed for good",
        "delay_avg": "average delay of a successful delivery, seconds",
        "delay_max": "longest delay of a successful delivery, seconds",
    },
    function=domains,
)
SENDERS = Report(
    name="sender-domains",
    title="Domains by mail received from them",
    about="One row a sender domain, the one with the most messages first. MAILER-DAEMON is bounces, '' is senders "
    "without a domain, (unknown) messages whose `info` is not in the log. Messages count by their birth.",
    columns={
        "domain": "domain of the envelope sender",
        "received": "messages",
        "bytes": "bytes of those messages; a message counts once, however many its recipients",
    },
    function=sender_domains,
    windowed=False,
)
