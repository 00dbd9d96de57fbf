"""From starts and results to deliveries: a start, and the next event of its number in the same run of queue-send."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

CARRIED_SEQ = -2  # Deliveries of an earlier batch stand before all of this one, and behind their messages.
_SHARED = ("host", "queue", "delivery", "run", "seq", "time_ns", "kind", "message", "channel", "recipient")


def pair(events: DataFrame, pending: DataFrame, last_runs: DataFrame, partitions: int) -> DataFrame:
    """Return deliveries: one row a start that counts, with what became of it.

    events: starts and results, with `run`. pending: deliveries in flight before. last_runs: host, queue, last_run.
    Columns: host, queue, id, delivery, channel, recipient, start_ns, seq (of the start), done_ns, done_seq, result
    (`lost`; null while in flight), reason, key and open (of pending ones, else null). A line that stands in the log
    twice counts once.
    """
    carried = pending.filter("what = 'delivery'").select(
        "host", "queue", "delivery", F.lit(0).cast("long").alias("run"), F.lit(CARRIED_SEQ).cast("long").alias("seq"),
        F.col("start_ns").alias("time_ns"), F.lit("start").alias("kind"), F.col("id").alias("message"), "channel",
        "recipient", F.lit(None).cast("string").alias("result"), F.lit(None).cast("string").alias("reason"), "key",
        "open",
    )  # fmt: skip
    new = events.select(
        *_SHARED, "result", "reason", F.lit(None).cast("string").alias("key"), F.lit(None).cast("boolean").alias("open")
    )
    place = ["delivery", "host", "queue"]
    rows = new.unionByName(carried).repartition(partitions, *place)
    text = F.xxhash64("kind", "message", "channel", "recipient", "result", "reason")
    same = Window.partitionBy(*place, "time_ns", text).orderBy("seq")
    rows = rows.withColumn("repeats", F.lag("seq").over(same)).filter("repeats IS NULL")
    run = Window.partitionBy(*place, "run").orderBy("seq")
    rows = rows.select(
        *rows.columns,
        *(F.lead(name).over(run).alias(f"next_{name}") for name in ("kind", "time_ns", "seq", "result", "reason")),
    ).filter("kind = 'start'")
    done = F.col("next_kind") == "done"
    over = F.col("next_kind").isNotNull() | (F.col("run") < F.coalesce("last_run", F.lit(0)))
    return rows.join(F.broadcast(last_runs), ["host", "queue"], "left").select(
        "host", "queue", F.col("message").alias("id"), "delivery", "channel", "recipient",
        F.col("time_ns").alias("start_ns"), "seq", F.when(done, F.col("next_time_ns")).alias("done_ns"),
        F.when(done, F.col("next_seq")).alias("done_seq"),
        F.when(done, F.col("next_result")).when(over, "lost").alias("result"),
        F.when(done, F.col("next_reason")).alias("reason"), "key",
        "open",
    )  # fmt: skip
