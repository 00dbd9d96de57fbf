"""qmailanalog's zdeferrals, zfailures and zsuccesses: why. Reasons that differ in names and numbers are one."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark.lake.schema import Tables
from spark.reports.report import SECONDS, Report, View, spread, total_seconds
from spark.windows.reasons import abridge, template


def _sums(rows: DataFrame, *by: Column | str) -> DataFrame:
    """Return by, del, xdelay and print: of the reason that is the example."""
    xdelay = total_seconds(F.col("done_ns") - F.col("start_ns")).alias("xdelay")
    return rows.groupBy(*by).agg(F.count("*").alias("del"), xdelay, F.min(F.xxhash64("reason")).alias("print"))


def _show(sums: DataFrame, rows: DataFrame) -> DataFrame:
    """Add the examples. The least text of each group would be found by sorting all of them; so it is any, by its hash,
    and looked for once these are known."""
    sums = spread(sums)
    hashed = rows.select("reason", F.xxhash64("reason").alias("print"))
    chosen = hashed.join(sums.select("print"), "print", "left_semi")
    examples = chosen.groupBy("print").agg(F.min("reason").alias("example"))
    return sums.join(examples, "print", "left").orderBy(F.desc("del"), F.desc("xdelay"), "reason")


def _why(tables: Tables, *results: str) -> DataFrame:
    rows = tables.deliveries.where(F.col("result").isin(*results))
    return _show(_sums(rows, F.col("template").alias("reason"), "code", "class"), rows)


def deferrals(tables: Tables, view: View) -> DataFrame:
    """Return a row a reason, mangled reports included."""
    return _why(tables, "deferral", "mangled")


def failures(tables: Tables, view: View) -> DataFrame:
    """Return a row a reason."""
    return _why(tables, "failure")


def successes(tables: Tables, view: View) -> DataFrame:
    """Return a row a reason. Templates of successes are made here: a build has no need of them, and they are many."""
    rows = tables.deliveries.where(F.col("result") == "success")
    nearly = _sums(rows, abridge(F.col("reason")).alias("nearly"))
    sums = nearly.groupBy(template(F.col("nearly")).alias("reason")).agg(
        F.sum("del").alias("del"), F.sum("xdelay").cast(SECONDS).alias("xdelay"), F.min("print").alias("print")
    )
    return _show(sums, rows)


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
