"""From what is said of a message number to messages: one number names many, one after the other.

A life of a number begins with `new`, `info` or a delivery's start while none is open, and ends with `end`. An `info`
with other facts than the open life's shows that this one's `end` is missing: it is lost, and the next began with the
last `new` before that `info`. What is said of a number without an open life (a second `end`, say) is nothing.

Rows go through windows over (id, host, queue) in the order of the log; all of them share one sort.
"""

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

from spark.stage import of_kinds

# Places of what an earlier batch left open, before all of this one: its messages, then their deliveries.
OPEN_SEQ = -3
# What `known` says of the open life, besides a hash of its facts.
_ENDED, _NEW, _STARTED = 0, 1, 2
_WAS = (
    "birth_ns", "info_ns", "first_ns", "successes", "failures", "deferrals", "bounce_qp", "bounce_of", "again_ns",
    "fate", "seen",
)  # fmt: skip
_PLACE = ("id", "host", "queue")


def _order() -> WindowSpec:
    return Window.partitionBy(*_PLACE).orderBy("seq")


def _before() -> WindowSpec:
    return _order().rowsBetween(Window.unboundedPreceding, -1)


def _life() -> WindowSpec:
    life = Window.partitionBy(*_PLACE, "life").orderBy("seq")
    return life.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)


def find_lives(events: DataFrame, deliveries: DataFrame, pending: DataFrame, partitions: int) -> DataFrame:
    """Return the rows that matter later, with their life: starts, bounces, first infos of bounces, and ends of lives.

    events: of messages. deliveries: of pair, without those whose message had ended before. is_last marks the last row
    of a life: the columns of a message are right in that row.
    """
    rows = _gather(events, deliveries, pending).repartition(partitions, *_PLACE)
    return _sum_up(_number(_know(_drop_repeats(rows))))


def _gather(events: DataFrame, deliveries: DataFrame, pending: DataFrame) -> DataFrame:
    """Return what is said of messages in one form. `was`: what an earlier batch knew of an open one."""
    deleted = "kind <> 'hold' OR text LIKE 'msg%: deleted by the administrator%'"
    said = of_kinds(events, "new", "info", "end", "bounce", "triple", "hold", "release").filter(deleted)
    carried = pending.filter("what = 'message'").select(
        *_PLACE, F.lit(OPEN_SEQ).cast("long").alias("seq"), F.col("first_ns").alias("time_ns"),
        F.lit("open").alias("kind"), "bytes", "qp", "uid", "sender", F.struct(*_WAS).alias("was"),
    )  # fmt: skip
    said = said.select(
        F.col("message").alias("id"), "host", "queue", "seq", "time_ns", "kind", "bytes", "qp", "uid", "sender",
        F.xxhash64("text").alias("text"),
    )  # fmt: skip
    starts = deliveries.select(
        *_PLACE, "seq", F.col("start_ns").alias("time_ns"), F.lit("start").alias("kind"), "delivery", "channel",
        "recipient", "done_ns", "done_seq", "result", "reason",
    )  # fmt: skip
    return said.unionByName(starts, allowMissingColumns=True).unionByName(carried, allowMissingColumns=True)


def _drop_repeats(rows: DataFrame) -> DataFrame:
    """Leave out lines that stand in the log a second time, with the same stamp and text."""
    text = F.xxhash64("kind", "bytes", "qp", "uid", "sender", "text", "delivery")
    same = Window.partitionBy(*_PLACE, "time_ns", text).orderBy("seq")
    return rows.withColumn("repeats", F.lag("seq").over(same)).filter("repeats IS NULL").drop("repeats", "text")


def _know(rows: DataFrame) -> DataFrame:
    """Add begins (a life does, in this row), begin_ns and birth of that life, and again: a `new` that may begin one."""
    birth = F.col("kind").isin("open", "new", "info", "start")
    last = F.last(F.when(birth, True).when(F.col("kind") == "end", False), ignorenulls=True)
    rows = rows.withColumn("alive", F.coalesce(last.over(_before()), F.lit(False))).filter(birth | F.col("alive"))
    rows = rows.withColumn("opens", ~F.col("alive"))
    kind, opens, was = F.col("kind"), F.col("opens"), F.col("was")
    facts = F.xxhash64("bytes", "sender", "qp", "uid")
    told = F.when(F.col("qp").isNotNull(), facts).when(was["birth_ns"].isNull(), _STARTED).otherwise(_NEW)
    mark = F.when(kind == "info", facts).when(kind == "end", _ENDED).when(kind == "open", told)
    mark = mark.when(opens & (kind == "start"), _STARTED).when(opens & (kind == "new"), _NEW)
    known = F.last(mark, ignorenulls=True).over(_before())
    rows = rows.withColumn("known", F.when(~opens, known))
    known = F.col("known")
    other = (known == _STARTED) | ((known != _NEW) & (known != facts))
    rows = rows.withColumn("begins", opens | F.coalesce((kind == "info") & other, F.lit(False)))
    again = F.when((kind == "new") & ~opens & (known != _NEW), F.struct(F.col("time_ns").alias("ns")))
    none = F.when(kind.isin("info", "end") | opens, F.struct(was["again_ns"].alias("ns")))
    rows = rows.withColumn("again", F.coalesce(again, none))
    return rows.withColumn("before", F.last("again", ignorenulls=True).over(_before())["ns"])


def _number(rows: DataFrame) -> DataFrame:
    """Add life (a number), when it begins, and where the next life and the next end are."""
    kind, was = F.col("kind"), F.col("was")
    begin = F.when(kind == "open", was["first_ns"]).when(~F.col("opens"), F.coalesce("before", "time_ns"))
    rows = rows.withColumn("begin_ns", F.when(F.col("begins"), begin.otherwise(F.col("time_ns"))))
    born = F.when(kind == "open", was["birth_ns"]).when(kind.isin("new", "info"), F.col("begin_ns"))
    following = "IGNORE NULLS OVER (PARTITION BY id, host, queue ORDER BY seq)"
    next_life = F.expr(f"lead(if(begins, struct(seq, begin_ns), null)) {following}")
    next_end = F.expr(f"lead(if(kind = 'end', seq, null)) {following}")
    return rows.withColumns(
        {
            "life": F.sum(F.col("begins").cast("long")).over(_order().rowsBetween(Window.unboundedPreceding, 0)),
            "born": F.when(F.col("begins"), born),
            "next_life": next_life,
            "next_end": next_end,
            "is_last": F.coalesce(F.lead("begins").over(_order()), F.lit(True)),
        }
    )


def _sum_up(rows: DataFrame) -> DataFrame:
    """Add what is known of the whole life to its rows, and keep those that matter."""
    kind, was = F.col("kind"), F.col("was")
    start, closes = kind == "start", F.least("next_end", F.col("next_life")["seq"])
    rows = rows.withColumn("counts", F.when(F.col("done_seq") < F.coalesce(closes, F.lit(1 << 62)), F.col("result")))
    info = kind.isin("info", "open")
    fate = F.when(was["fate"] == "deleted", 2 * OPEN_SEQ + 1).when(was["fate"] == "discarded", 2 * OPEN_SEQ)
    fate = fate.when(kind == "triple", 2 * F.col("seq")).when(kind == "hold", 2 * F.col("seq") + 1)

    def total(name: str, *results: str) -> Column:
        return F.sum(F.coalesce(F.col("counts").isin(*results).cast("long"), was[name], F.lit(0))).over(_life())

    def first(value: Column) -> Column:
        return F.first(value, ignorenulls=True).over(_life())

    seen = F.collect_set(F.when(start, F.xxhash64("channel", "recipient"))).over(_life())
    summed = rows.select(
        *_PLACE, "seq", "time_ns", "kind", "is_last", "delivery", "channel", "recipient", "done_ns", "done_seq",
        "result", "reason",
        ((kind == "info") & (F.col("begins") | (F.col("known") == _NEW))).alias("tells"),
        closes.isNull().alias("open"),
        first(F.when(info, F.col("bytes"))).alias("bytes"),
        first(F.when(info, F.col("qp"))).alias("qp"),
        first(F.when(info, F.col("uid"))).alias("uid"),
        first(F.when(info, F.col("sender"))).alias("sender"),
        F.col("qp").alias("bounce"),
        F.first("begin_ns").over(_life()).alias("first_ns"),
        F.first("born").over(_life()).alias("birth_ns"),
        F.last(F.coalesce(was["info_ns"], F.when(kind == "info", F.col("time_ns"))), ignorenulls=True).over(_life())
        .alias("info_ns"),
        F.max(F.when(kind == "end", F.col("time_ns"))).over(_life()).alias("end_ns"),
        F.col("next_life")["begin_ns"].alias("next_ns"),
        total("successes", "success").alias("successes"),
        total("failures", "failure").alias("failures"),
        total("deferrals", "deferral", "mangled").alias("deferrals"),
        F.array_union(F.coalesce(first(was["seen"]), F.array().cast("array<bigint>")), seen).alias("seen"),
        first(F.coalesce(was["bounce_qp"], F.when(kind == "bounce", F.col("qp")))).alias("bounce_qp"),
        first(was["bounce_of"]).alias("bounce_of"),
        F.last("again", ignorenulls=True).over(_life())["ns"].alias("again_ns"),
        F.max(fate).over(_life()).alias("fate"),
        F.max(F.when(kind == "release", F.col("seq"))).over(_life()).alias("released"),
    )  # fmt: skip
    bounce = (kind == "bounce") | (F.col("tells") & F.col("sender").isin("", "#@[]"))
    summed = summed.filter((kind == "start") | F.col("is_last") | bounce)
    deleted = F.col("fate").bitwiseAND(F.lit(1)) == 1
    undone = deleted & (F.col("released") > F.shiftright("fate", 1))
    fate = F.when(F.coalesce(undone, F.lit(False)), None).when(deleted, "deleted").when(~deleted, "discarded")
    return summed.withColumn("fate", fate).drop("released")
