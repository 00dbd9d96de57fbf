"""What is said of messages, in one form: lines of the log, deliveries, and what an earlier batch left open."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from spark.windows.stage import of_kinds

# Places of what an earlier batch left, before all of this one: deliveries of messages that had ended, open messages.
# Deliveries of those are behind them (pair.CARRIED_SEQ).
ORPHAN_SEQ, OPEN_SEQ = -4, -3
_WAS = (
    "birth_ns", "info_ns", "first_ns", "successes", "failures", "deferrals", "bounce_qp", "bounce_of", "again_ns",
    "fate", "seen",
)  # fmt: skip
PLACE = ("id", "stream")
# What of a row only matters in the end. It goes through shuffle and windows as one column, which costs far less.
_BODY = ("bytes", "uid", "sender", "channel", "recipient", "done_ns", "reason")


def gather_sayings(events: DataFrame, deliveries: DataFrame, pending: DataFrame) -> DataFrame:
    """Return what is said of messages in one form.

    `was`: what an earlier batch knew of an open message, `flight`: of that of a delivery in flight.
    """
    deleted = "kind <> 'hold' OR text LIKE 'msg%: deleted by the administrator%'"
    said = of_kinds(events, "new", "info", "end", "bounce", "triple", "hold", "release").filter(deleted)
    said = said.withColumns({"id": F.col("message"), "text": F.xxhash64("text")})
    carried = pending.filter("what = 'message'").withColumns(
        {
            "seq": F.lit(OPEN_SEQ).cast("long"),
            "time_ns": F.col("first_ns"),
            "kind": F.lit("open"),
            "was": F.struct(*_WAS),
        }
    )
    orphan = F.col("flight")["open"].eqNullSafe(F.lit(False))
    starts = deliveries.withColumns(
        {
            "seq": F.when(orphan, ORPHAN_SEQ).otherwise(F.col("seq")),
            "time_ns": F.col("start_ns"),
            "kind": F.when(orphan, "orphan").otherwise("start"),
            "hashed": F.when(~orphan, F.xxhash64("channel", "recipient")),
        }
    )
    facts = F.xxhash64("bytes", "sender", "qp", "uid").alias("facts")
    common: list[Column | str] = [*PLACE, "seq", "time_ns", "kind"]
    rows = said.select(*common, "qp", facts, "text", _body("bytes", "uid", "sender"))
    tried = _body("channel", "recipient", "done_ns", "reason")
    started = starts.select(*common, "delivery", "done_seq", "result", "hashed", "flight", tried)
    opened = carried.select(*common, "qp", facts, "was", _body("bytes", "uid", "sender"))
    return rows.unionByName(started, allowMissingColumns=True).unionByName(opened, allowMissingColumns=True)


def _body(*names: str) -> Column:
    """Return the columns of a row that only matter in the end, null where it has none."""
    kinds = {"bytes": "long", "uid": "long", "done_ns": "long"}
    none = F.lit(None)
    return F.struct(
        *((F.col(name) if name in names else none.cast(kinds.get(name, "string"))).alias(name) for name in _BODY)
    ).alias("body")


def drop_repeats(rows: DataFrame) -> DataFrame:
    """Leave out lines that stand in the log a second time, with the same stamp and text."""
    text = F.xxhash64("kind", "facts", "text", "delivery")
    same = Window.partitionBy(*PLACE, "time_ns", text).orderBy("seq")
    return rows.withColumn("repeats", F.lag("seq").over(same)).filter("repeats IS NULL").drop("repeats", "text")
