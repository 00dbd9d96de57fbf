"""From deliveries to the times during which a destination gave trouble: gaps and islands by windows.

A destination is a recipient domain of one stream. Its deliveries are put in order of their end. Each is, for one of
two questions,

- bad: it failed because the destination could not be reached or put it off (trouble); it took 60 s or more (slow);
- good: the destination answered for good: a success, or a failure that is its own word (trouble); a success, or such
  a failure, in less than 60 s (slow);
- neither: a mangled report, a delivery lost in a crash, what the administrator returned; for slow every deferral.

An episode is three or more bad ones with no good one between them, and no day between two that follow each other. It
begins at the end of its first bad delivery. It ends at the end of the next good one, if that comes within a day of its
last bad one; else at the end of that last one; and it is open where neither has come before the log ends.
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from spark.reports.report import NANO, spread

DESTINATION = ["domain", "host", "queue"]
EPISODE = [*DESTINATION, "slow", "began_ns"]

LEAST = 3
GAP = 86400 * NANO
SLOW = 60 * NANO


def episodes(deliveries: DataFrame, last: int) -> DataFrame:
    """Return the episodes of ended deliveries; `last` is when the log ends (Unix time, ns).

    Columns: domain, host, queue, slow (which question), began_ns, ended_ns (null: open), last_ns (end of the last bad
    one), dead (all bad ones are of class network), attempts (bad ones), messages (distinct ones of those), reason
    (template of the first).
    """
    each = _troubled(_questions(deliveries))
    series = Window.partitionBy(*DESTINATION, "slow").orderBy("done_ns", "start_ns", "id", "delivery")
    good, done = F.col("good"), F.col("done_ns")
    after_good = F.coalesce(F.lag("good").over(series), F.lit(True))
    far = F.coalesce(done - F.lag("done_ns").over(series) > GAP, F.lit(False))
    marked = each.withColumns({"after_good": after_good, "break": (after_good | far).cast("long")})
    # Most deliveries are good ones after good ones: those are in no episode, and end none.
    near = marked.where(~(good & F.col("after_good")))
    so_far = series.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    islands = near.withColumn("island", F.sum("break").over(so_far)).groupBy(*DESTINATION, "slow", "island")
    bad = ~good
    found = islands.agg(
        F.count_if(bad).alias("attempts"),
        F.min(F.when(bad, done)).alias("began_ns"),
        F.max(F.when(bad, done)).alias("last_ns"),
        F.max(F.when(good, done)).alias("good_ns"),
        F.min(F.when(bad, F.col("network"))).alias("dead"),
        F.count_distinct(F.when(bad, F.col("key"))).alias("messages"),
        F.min_by("template", F.when(bad, F.struct("done_ns", "start_ns", "id", "delivery"))).alias("reason"),
    )
    # Also true of an episode that a gap ended: then the log goes on after the gap.
    over = F.when(F.lit(last) - F.col("last_ns") > GAP, F.col("last_ns"))
    return found.where(F.col("attempts") >= LEAST).select(
        *EPISODE, F.coalesce("good_ns", over).alias("ended_ns"), "last_ns", "dead", "attempts", "messages", "reason"
    )


def _questions(deliveries: DataFrame) -> DataFrame:
    """Return a row for each question that a delivery answers: good, and network (the class of its reason)."""
    network = F.col("class") == "network"
    asked = F.col("reason").startswith("The_administrator_has_asked_for_this_message_to_be_returned.")
    # A failure with a temporary code is mail that waited too long: the destination's answer was a deferral.
    gave_up = (F.col("result") == "failure") & (network | F.col("code").startswith("4."))
    answered = (F.col("result") == "success") | ((F.col("result") == "failure") & ~gave_up & ~asked)
    deferred = (F.col("result") == "deferral") | gave_up
    quick = F.col("done_ns") - F.col("start_ns") < SLOW
    questions = F.array(
        F.when(answered | deferred, F.struct(F.lit(False).alias("slow"), answered.alias("good"))),
        F.when(answered, F.struct(F.lit(True).alias("slow"), quick.alias("good"))),
    )
    ended = deliveries.where(F.col("done_ns").isNotNull() & F.col("result").isin("success", "failure", "deferral"))
    known = ended.withColumns({name: F.coalesce(name, F.lit("")) for name in ("reason", "code", "class")})
    each = known.select(
        *DESTINATION, "key", "id", "delivery", "start_ns", "done_ns", "template", network.alias("network"),
        F.explode(F.array_compact(questions)).alias("q"),
    )  # fmt: skip
    # Most are good ones, of which only the time counts.
    of_bad = {name: F.when(~F.col("q.good"), F.col(name)) for name in ("key", "template", "network")}
    return each.withColumns(of_bad).select(
        *DESTINATION, "q.slow", "q.good", "id", "delivery", "start_ns", "done_ns", *of_bad
    )


def _troubled(each: DataFrame) -> DataFrame:
    """Leave out destinations that have too few bad deliveries for an episode, which are most."""
    series = [*DESTINATION, "slow"]
    bad = each.where(~F.col("good")).groupBy(*series).agg(F.count("*").alias("bad"))
    return each.join(spread(bad.where(F.col("bad") >= LEAST)), series, "left_semi")
