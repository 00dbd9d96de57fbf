"""From starts and results to deliveries: a start, and the next event of its number in the same run of queue-send."""

from pyspark.sql import Column, DataFrame, Observation, Window
from pyspark.sql import functions as F

from spark.lake.schema import OF_MESSAGE

CARRIED_SEQ = -2  # Deliveries of an earlier batch stand before all of this one, and behind their messages.
_PLACE = ("delivery", "stream")
# What a line says. It goes through shuffles and windows as one column, which costs far less than many.
_BODY = ("message", "channel", "recipient", "result", "reason", "flight")
# What an earlier batch knew of the message of a delivery in flight.
_FLIGHT = ("key", "open", *OF_MESSAGE)
_NEXT = ("kind", "run", "time_ns", "seq", "body.result", "body.reason")


def pair(
    events: DataFrame, pending: DataFrame, last_runs: DataFrame, partitions: int, doubts: Observation | None = None
) -> DataFrame:
    """Return deliveries: one row a start that counts, with what became of it.

    events: starts and results, with `run`. pending: deliveries in flight before. last_runs: stream, last_run.
    Columns: stream, id, delivery, channel, recipient, start_ns, seq (of the start), done_ns, done_seq, result (`lost`;
    null while in flight), reason, flight (of pending ones what was known of the message: _FLIGHT; else null).

    A line that stands in the log twice counts once: without `doubts`, at the price of one more sort. With it, no line
    is looked for a second time, and `doubts` tells as `doubtful` whether one might be there.
    """
    carried = pending.filter("what = 'delivery'").withColumns(
        {
            "run": F.lit(0).cast("long"),
            "seq": F.lit(CARRIED_SEQ).cast("long"),
            "time_ns": F.col("start_ns"),
            "kind": F.lit("start"),
            "message": F.col("id"),
            "result": F.lit(None).cast("string"),
            "reason": F.lit(None).cast("string"),
            "flight": F.struct(*_FLIGHT),
        }
    )
    new = events.withColumn("flight", F.lit(None).cast(carried.schema["flight"].dataType))
    shown = (*_PLACE, "seq", "run", "time_ns", "kind", F.struct(*_BODY).alias("body"))
    rows = new.select(*shown).unionByName(carried.select(*shown)).repartition(partitions, *_PLACE)
    order = Window.partitionBy(*_PLACE).orderBy("seq")
    beside = {"next": F.lead(F.struct(*_NEXT)).over(order)}
    if doubts is None:
        rows = _drop_repeats(rows).withColumns(beside)
    else:
        beside |= {f"prev_{name}": F.lag(name).over(order) for name in ("kind", "run", "time_ns")}
        rows = rows.withColumns(beside).observe(doubts, F.max(_is_doubtful()).alias("doubtful"))
    body, following = F.col("body"), F.col("next")
    done = (following["kind"] == "done") & (following["run"] == F.col("run"))
    over = following.isNotNull() | (F.col("run") < F.coalesce("last_run", F.lit(0)))
    starts = rows.filter("kind = 'start'").join(F.broadcast(last_runs), "stream", "left")
    return starts.select(
        "stream", body["message"].alias("id"), "delivery", "seq", F.col("time_ns").alias("start_ns"),
        *(body[name].alias(name) for name in ("channel", "recipient", "flight")),
        F.when(done, following["time_ns"]).alias("done_ns"), F.when(done, following["seq"]).alias("done_seq"),
        F.when(done, following["result"]).when(over, "lost").alias("result"),
        F.when(done, following["reason"]).alias("reason"),
    )  # fmt: skip


def _drop_repeats(rows: DataFrame) -> DataFrame:
    """Leave out lines that stand in the log a second time, with the same stamp and text."""
    text = F.xxhash64("kind", "body")
    same = Window.partitionBy(*_PLACE, "time_ns", text).orderBy("seq")
    return rows.withColumn("repeats", F.lag("seq").over(same)).filter("repeats IS NULL")


def _is_doubtful() -> Column:
    """Return whether a line might be a repeated one, or one of another run because a repeated line began that.

    What was there before has an earlier stamp, or the same one behind a line that it cannot follow.
    """
    time, before, started = F.col("time_ns"), F.col("prev_time_ns"), F.col("prev_kind") == "start"
    is_done = F.col("kind") == "done"
    stranger = is_done & (F.col("run") > 0) & ~(started & (F.col("prev_run") == F.col("run")))
    doubtful = (time < before) | ((time == before) & ~(started & is_done)) | stranger
    return F.coalesce(doubtful, F.col("prev_kind").isNull() & is_done & (F.col("run") > 0))
