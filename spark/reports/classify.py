"""Failures and deferrals by RFC 3463 enhanced code and class (spark.windows.reasons says what the classes are)."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark.lake.schema import Tables
from spark.reports.facts import slot
from spark.reports.report import Report, View


def classify(tables: Tables, view: View) -> DataFrame:
    counts = _troubles(tables).groupBy("class", "code").agg(
        *_counts(),
        F.count_distinct("domain").alias("domains"),
        F.min("reason").alias("example"),
    )
    return counts.orderBy(F.desc(F.col("failures") + F.col("deferrals")), "class", "code")


def by_hour(tables: Tables, view: View) -> DataFrame:
    hours = _troubles(tables).groupBy(slot(F.col("done_ns"), 3600).alias("start"), "class").agg(*_counts())
    return hours.orderBy("start", "class")


def _troubles(tables: Tables) -> DataFrame:
    return tables.deliveries.where(F.col("result").isin("failure", "deferral", "mangled"))


def _counts() -> tuple[Column, Column]:
    failed = F.col("result") == "failure"
    return F.count_if(failed).alias("failures"), F.count_if(~failed).alias("deferrals")


_COUNTS = {
    "failures": "deliveries that failed for good",
    "deferrals": "deliveries that failed for now, mangled reports included; a recipient counts each time",
}

REPORT = Report(
    name="classify",
    title="Failures and deferrals by class and code",
    about="One row a class and code, the most frequent first. Deliveries count by their end.",
    columns={
        "class": "whose trouble it is: mailbox, full, size, domain, sender, rate, spam, tls, policy, network, system, "
        "protocol, content, local, other",
        "code": "RFC 3463 code that the reason gives, such as 4.4.1; '' for none",
        **_COUNTS,
        "domains": "recipient domains that had it",
        "example": "the alphabetically first of the reasons, as logged",
    },
    function=classify,
    spaced=frozenset({"example"}),
)
HOURS = Report(
    name="classify-hours",
    title="Failures and deferrals by hour and class",
    about="One row an hour and class of which there was anything, in order of time.",
    columns={"start": "start of the hour, UTC", "class": "as in classify", **_COUNTS},
    function=by_hour,
)
