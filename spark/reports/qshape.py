"""The queue as it was at any moment, by age and domain: Postfix's qshape, from the log.

The log names a recipient when its first delivery starts. So the queue of a moment is what is known of it later: a
recipient counts from its message's birth until its own last success or failure, also before it was first tried. A
message of which no delivery is known at all counts as one recipient of the domain (unknown).
"""

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark.lake.schema import Tables
from spark.reports.facts import LIFE, attempts, lives, recipients, sender_domain
from spark.reports.report import NANO, Report, View

# Minutes: the first bucket is [0, 5), the last has no end.
LIMITS = (5, 10, 20, 40, 80, 160, 320, 640, 1280)
BUCKETS = (*(str(limit) for limit in LIMITS), "1280+")
MINUTE = 60 * NANO

UNKNOWN = "(unknown)"


def last_moment(tables: Tables) -> int | None:
    """Return the newest stamp (Unix time, ns) of what the tables hold; None where they are empty."""
    newest = [
        table.agg(F.greatest(*(F.max(column) for column in columns)).alias("ns"))
        for table, columns in (
            (tables.messages, ["done_ns", "first_ns"]),
            (tables.deliveries, ["done_ns", "start_ns"]),
            (tables.intervals, ["until_ns", "at_ns"]),
            (tables.pending, ["first_ns", "start_ns"]),
        )
    ]
    row = reduce(DataFrame.union, newest).agg(F.max("ns")).first()
    found: int | None = row[0] if row else None
    return found


def waiting(tables: Tables, at: int) -> DataFrame:
    """Return the messages that were in the queue at a time: host, queue, key, sender, age_ns.

    A message is there from its birth (older than the log: from its first line) until its end.
    """
    born = F.coalesce("birth_ns", "first_ns")
    there = (born <= at) & (F.col("done_ns").isNull() | (F.col("done_ns") > at))
    return lives(tables).where(there).select(*LIFE, "sender", (F.lit(at) - born).alias("age_ns"))


def qshape(tables: Tables, view: View) -> DataFrame:
    at = _moment(tables, view)
    messages = waiting(tables, at).select(*LIFE, "age_ns")
    tried = attempts(tables).join(messages, LIFE, "left_semi")
    known = recipients(tried, at).select(
        *LIFE, "domain", (F.col("successes") + F.col("failures") + F.col("open").cast("long")).alias("all"), "settled"
    )
    each = messages.join(known, LIFE, "left").select(
        F.coalesce("domain", F.lit(UNKNOWN)).alias("domain"),
        "age_ns",
        F.coalesce(F.col("all") - F.col("settled"), F.lit(1)).alias("count"),
    )
    return _shape(each)


def qshape_senders(tables: Tables, view: View) -> DataFrame:
    messages = waiting(tables, _moment(tables, view))
    return _shape(messages.select(sender_domain().alias("domain"), "age_ns", F.lit(1).alias("count")))


def _moment(tables: Tables, view: View) -> int:
    if view.at is not None:
        return view.at
    return last_moment(tables) or 0


def bucket(age_ns: Column) -> Column:
    """Return the name of the bucket that an age is in."""
    found = F.when(age_ns < LIMITS[0] * MINUTE, BUCKETS[0])
    for limit, name in zip(LIMITS[1:], BUCKETS[1:-1], strict=True):
        found = found.when(age_ns < limit * MINUTE, name)
    return found.otherwise(BUCKETS[-1])


def _shape(each: DataFrame) -> DataFrame:
    """Return domain, T and the buckets, from domain, age_ns and count; the row TOTAL comes first."""
    counted = each.where(F.col("count") > 0).withColumn("bucket", bucket(F.col("age_ns")))
    columns = [F.sum(F.when(F.col("bucket") == name, F.col("count")).otherwise(0)).alias(name) for name in BUCKETS]
    counts = [F.sum("count").alias("T"), *columns]
    shape = counted.groupBy("domain").agg(*counts).withColumn("place", F.lit(1))
    sums = [F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in ("T", *BUCKETS)]
    total = shape.agg(F.lit("TOTAL").alias("domain"), *sums, F.lit(0).alias("place"))
    both = total.unionByName(shape).orderBy("place", F.desc("T"), F.length("domain"), "domain")
    return both.select("domain", "T", *BUCKETS)


_COLUMNS = {
    **{name: f"of these, younger than {name} minutes, and in no column before" for name in BUCKETS[:-1]},
    "1280+": "of these, 1280 minutes old or older",
}
_ORDER = "The moment is --at, or else the newest stamp of the lake. The row TOTAL comes first, then the largest. "

REPORT = Report(
    name="qshape",
    title="The queue by recipient domain and age",
    about=_ORDER + "What waits is counted in recipients, by the age of their message. The log names a recipient when "
    "it is first tried; what was tried later is known, and (unknown) counts messages of which nothing was tried yet.",
    columns={"domain": "domain of the recipients", "T": "recipients that wait", **_COLUMNS},
    function=qshape,
    windowed=False,
    momentary=True,
)
SENDERS = Report(
    name="qshape-senders",
    title="The queue by sender domain and age",
    about=_ORDER + "What waits is counted in messages, as by qshape -s; MAILER-DAEMON is bounces.",
    columns={"domain": "domain of the envelope sender", "T": "messages that wait", **_COLUMNS},
    function=qshape_senders,
    windowed=False,
    momentary=True,
)
