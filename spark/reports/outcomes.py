"""qmailanalog's zdeferrals, zfailures and zsuccesses: why. Reasons that differ in names and numbers are one."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark.reasons import template
from spark.reports.report import Report, View, total_seconds
from spark.schema import Tables


def _xdelay() -> Column:
    return total_seconds(F.col("done_ns") - F.col("start_ns")).alias("xdelay")


def _why(tables: Tables, *results: str) -> DataFrame:
    return (
        tables.deliveries.where(F.col("result").isin(*results))
        .groupBy(F.col("template").alias("reason"), "code", "class")
        .agg(F.count("*").alias("del"), _xdelay(), F.min("reason").alias("example"))
        .orderBy(F.desc("del"), F.desc("xdelay"), "reason")
    )


def deferrals(tables: Tables, view: View) -> DataFrame:
    """Return a row a reason, mangled reports included."""
    return _why(tables, "deferral", "mangled")


def failures(tables: Tables, view: View) -> DataFrame:
    """Return a row a reason."""
    return _why(tables, "failure")


def successes(tables: Tables, view: View) -> DataFrame:
    """Return a row a reason. Templates of successes are made here: a build has no need of them, and they are many."""
    return (
        tables.deliveries.where(F.col("result") == "success")
        .groupBy(template(F.col("reason")).alias("reason"))
        .agg(F.count("*").alias("del"), _xdelay(), F.min("reason").alias("example"))
        .orderBy(F.desc("del"), F.desc("xdelay"), "reason")
    )


_COUNTS = {
    "del": "deliveries that ended for this reason",
    "xdelay": "time from start to end of these deliveries, s",
}
_REASON = {
    "reason": "what was reported, with queue ids as ID, addresses as ADDRESS and IP, host names as HOST, numbers as N",
    "example": "one of the reasons as logged",
}
_CODE = {"code": "RFC 3463 code in the text, if any", "class": "whose trouble it is"}
_ORDER = "A row a reason, the most deliveries first."
_SPACED = frozenset({"reason", "example"})

DEFERRALS = Report(
    "deferrals",
    "Reasons for deferral",
    _ORDER,
    {**_COUNTS, **_CODE, **_REASON},
    deferrals,
    spaced=_SPACED,
)
FAILURES = Report(
    "failures",
    "Reasons for failure",
    _ORDER,
    {**_COUNTS, **_CODE, **_REASON},
    failures,
    spaced=_SPACED,
)
SUCCESSES = Report(
    "successes",
    "Reasons for success",
    _ORDER,
    {**_COUNTS, **_REASON},
    successes,
    spaced=_SPACED,
)
