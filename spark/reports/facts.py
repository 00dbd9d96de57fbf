"""What several reports look at: each message, each attempt to deliver, and each recipient with what became of it."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark.lake.schema import Tables
from spark.reports.report import NANO

# What differs most comes first: rows that are sorted by it are mostly told apart by that.
LIFE = ["key", "host", "queue"]
_FACTS = ["sender", "bytes", "birth_ns", "first_ns", "successes", "failures", "recipients"]
_ATTEMPT = [*LIFE, "channel", "recipient", "domain", "delivery", "start_ns"]


def lives(tables: Tables) -> DataFrame:
    """Return all messages: host, queue, key, sender, bytes, birth_ns, first_ns, successes, failures, recipients,
    done_ns, outcome. The last two are null for a message that waits."""
    waiting = tables.pending.where(F.col("what") == "message").select(
        *LIFE, *_FACTS, F.lit(None).cast("long").alias("done_ns"), F.lit(None).cast("string").alias("outcome")
    )
    return tables.messages.select(*LIFE, *_FACTS, "done_ns", "outcome").unionByName(waiting)


def attempts(tables: Tables) -> DataFrame:
    """Return all deliveries, those in flight too: host, queue, key, channel, recipient, domain, delivery, start_ns,
    done_ns, result. The last two are null for a delivery in flight."""
    flying = tables.pending.where(F.col("what") == "delivery").select(
        *_ATTEMPT, F.lit(None).cast("long").alias("done_ns"), F.lit(None).cast("string").alias("result")
    )
    return tables.deliveries.select(*_ATTEMPT, "done_ns", "result").unionByName(flying)


def recipients(tried: DataFrame, at: int | None = None) -> DataFrame:
    """Return the recipients of attempts: host, queue, key, domain and
    - successes, failures: how many deliveries of it ended so. More than one in all where an envelope names it twice,
      or where a crash came between a delivery and the note of it;
    - open: the latest attempt left it undecided (a deferral, a lost delivery, one in flight);
    - settled_ns: when its last success or failure ended; null where it is open;
    - settled: how many successes and failures had ended at the time `at`; all where it is None.
    Rows of one message are in one partition.
    """
    done = F.coalesce(F.col("result").isin("success", "failure"), F.lit(False))
    by_then = done if at is None else done & (F.col("done_ns") <= at)
    # All is numbers of a fixed size, which are added up in place; anything else would be sorted first.
    place = F.col("start_ns").cast("decimal(19,0)") * F.lit(10**18).cast("decimal(19,0)") + F.col("delivery")
    one = F.xxhash64("channel", "recipient").alias("recipient")
    rows = tried.select(*LIFE, "domain", one, "result", "done_ns", done.alias("done"), place.alias("place"))
    found = rows.repartition(*LIFE).groupBy(*LIFE, "domain", "recipient").agg(
        F.count_if(F.col("result") == "success").alias("successes"),
        F.count_if(F.col("result") == "failure").alias("failures"),
        F.max(F.when(F.col("done"), F.col("place"))).alias("last_done"),
        F.max(F.when(~F.col("done"), F.col("place"))).alias("last_open"),
        F.max(F.when(F.col("done"), F.col("done_ns"))).alias("settled_ns"),
        F.count_if(by_then).alias("settled"),
    )  # fmt: skip
    is_open = F.col("last_open").isNotNull() & (F.col("last_done").isNull() | (F.col("last_open") > F.col("last_done")))
    found = found.withColumn("open", is_open).drop("last_open", "last_done", "recipient")
    return found.withColumn("settled_ns", F.when(~F.col("open"), F.col("settled_ns")))


def time_of(ns: Column) -> Column:
    """Return Unix time in nanoseconds as a timestamp, cut to microseconds."""
    return F.timestamp_micros(F.call_function("div", ns, F.lit(1000)))


def slot(ns: Column, length: int) -> Column:
    """Return the start, as a timestamp, of the stretch of `length` seconds since 1970 that a Unix time in ns is in."""
    return F.timestamp_seconds(F.call_function("div", ns - F.pmod(ns, F.lit(length * NANO)), F.lit(NANO)))


def sender_domain() -> Column:
    """Return the domain of the column sender, in lower case; MAILER-DAEMON for an empty one, (unknown) for null."""
    sender = F.lower("sender")
    return (
        F.when(sender.isNull(), "(unknown)")
        .when(sender.isin("", "#@[]"), "MAILER-DAEMON")
        .when(F.instr(sender, "@") > 0, F.substring_index(sender, "@", -1))
        .otherwise("")
    )
