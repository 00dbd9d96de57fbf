"""From what is said of a message number to messages: one number names many, one after the other.

A life of a number begins with `new`, `info` or a delivery's start while none is open, and ends with `end`. An `info`
with other facts than the open life's shows that this one's `end` is missing: it is lost, and the next began with the
last `new` before that `info`. What is said of a number without an open life (a second `end`, say) is nothing.

Rows go through windows over (id, stream) in the order of the log; all of them share one sort.
"""

from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame, Observation, Window, WindowSpec
from pyspark.sql import functions as F

from spark.windows.bounces import BOUNCE_SENDERS
from spark.windows.sayings import OPEN_SEQ, PLACE, drop_repeats, gather_sayings

# What `known` says of the open life, besides a hash of its facts.
_ENDED, _NEW, _STARTED = 0, 1, 2
# What is said of a message in this order may be said in one nanosecond.
_ORDER = ("orphan", "open", "new", "info", "start", "bounce", "triple", "hold", "release", "end")
_COUNTS = {"successes": ("success",), "failures": ("failure",), "deferrals": ("deferral", "mangled")}


def _order() -> WindowSpec:
    return Window.partitionBy(*PLACE).orderBy("seq")


def _before() -> WindowSpec:
    return _order().rowsBetween(Window.unboundedPreceding, -1)


def _so_far() -> WindowSpec:
    return _order().rowsBetween(Window.unboundedPreceding, 0)


def find_lives(
    events: DataFrame, deliveries: DataFrame, pending: DataFrame, partitions: int, doubts: Observation | None = None
) -> DataFrame:
    """Return the rows that matter later, with their life: starts, bounces, first infos of bounces, and ends of lives.

    events: of messages. deliveries: of pair; those whose message had ended in an earlier batch come back as kind
    `orphan`, and only their own columns and key count. is_last marks the last row of a life: the columns of a message
    are right in that row. `seen` there has the first recipient and those of earlier batches; `others` says that there
    are more, `hashed` of the life's starts with `more`. doubts: as for pair.
    """
    rows = gather_sayings(events, deliveries, pending).repartition(partitions, *PLACE)
    if doubts is None:
        rows = drop_repeats(rows)
    return _sum_up(_number(_know(_live(rows, doubts))))


def _live(rows: DataFrame, doubts: Observation | None) -> DataFrame:
    """Add opens: a life is not open before this row, and is behind it. Rows without a life go."""
    birth = F.col("kind").isin("open", "new", "info", "start")
    last = F.last(F.when(birth, True).when(F.col("kind") == "end", False), ignorenulls=True)
    shown = {"alive": F.coalesce(last.over(_before()), F.lit(False))}
    if doubts is not None:
        order = _order()
        # A line that was there before has an earlier stamp, or the same one behind what it cannot follow.
        start: Any = F
        place = reduce(lambda chain, kind: chain.when(F.col("kind") == kind, _ORDER.index(kind)), _ORDER, start)
        rows = rows.withColumn("step", F.shiftleft(place.cast("long"), 48) + F.coalesce("delivery", F.lit(0)))
        shown |= {f"prev_{name}": F.lag(name).over(order) for name in ("time_ns", "step")}
    rows = rows.withColumns(shown)
    if doubts is not None:
        time, before = F.col("time_ns"), F.col("prev_time_ns")
        doubtful = (time < before) | ((time == before) & (F.col("step") <= F.col("prev_step")))
        rows = rows.observe(doubts, F.max(F.coalesce(doubtful, F.lit(False))).alias("doubtful"))
    rows = rows.filter(birth | F.col("alive") | (F.col("kind") == "orphan"))
    return rows.withColumn("opens", birth & ~F.col("alive"))


def _know(rows: DataFrame) -> DataFrame:
    """Add begins (a life does, in this row), begin_ns and birth of that life, and again: a `new` that may begin one."""
    kind, opens, was = F.col("kind"), F.col("opens"), F.col("was")
    facts = F.col("facts")
    told = F.when(F.col("qp").isNotNull(), facts).when(was["birth_ns"].isNull(), _STARTED).otherwise(_NEW)
    mark = F.when(kind == "info", facts).when(kind == "end", _ENDED).when(kind == "open", told)
    mark = mark.when(opens & (kind == "start"), _STARTED).when(opens & (kind == "new"), _NEW)
    again = F.when(kind.isin("info", "end") | opens, F.struct(was["again_ns"].alias("ns")))
    again = again.when(kind == "new", F.struct(F.col("time_ns").alias("ns")))
    rows = rows.withColumns({"mark": mark, "again": again})
    rows = rows.withColumns(
        {
            "known": F.when(~opens, F.last("mark", ignorenulls=True).over(_before())),
            "before": F.last("again", ignorenulls=True).over(_before())["ns"],
        }
    )
    known = F.col("known")
    other = (known == _STARTED) | ((known != _NEW) & (known != facts))
    begins = opens | F.coalesce((kind == "info") & other, F.lit(False))
    begin = F.when(kind == "open", was["first_ns"]).when(~opens, F.coalesce("before", "time_ns"))
    rows = rows.withColumn("begins", begins)
    return rows.withColumn("begin_ns", F.when(F.col("begins"), begin.otherwise(F.col("time_ns"))))


def _number(rows: DataFrame) -> DataFrame:
    """Add life (a number), is_last, when the next life begins, and closes: where this one is over."""
    closing = F.when(F.col("begins") | (F.col("kind") == "end"), F.col("seq"))
    return rows.withColumn("closing", closing).withColumns(
        {
            "life": F.sum(F.col("begins").cast("long")).over(_so_far()),
            "closes": F.expr("lead(closing) IGNORE NULLS OVER (PARTITION BY id, stream ORDER BY seq)"),
            "is_last": F.coalesce(F.lead("begins").over(_order()), F.lit(True)) & (F.col("kind") != "orphan"),
            "next_ns": F.lead("begin_ns").over(_order()),
        }
    )


def _sum_up(rows: DataFrame) -> DataFrame:
    """Add what is known of a life up to each row, and keep the rows that matter.

    All are windows over the order of the log, so that one sort serves them: what is of a life carries its number.
    """
    so_far = _so_far()

    def last(value: Column) -> Column:
        return F.last(value, ignorenulls=True).over(so_far)

    def most(value: Column) -> Column:
        return F.max(value).over(so_far)

    kind, was, life, seq = F.col("kind"), F.col("was"), F.col("life"), F.col("seq")
    counted = F.when(F.col("done_seq") < F.coalesce("closes", F.lit(1 << 62)), F.col("result"))
    own = {
        name: F.coalesce(counted.isin(*results).cast("long"), was[name], F.lit(0)) for name, results in _COUNTS.items()
    }
    rows = rows.withColumns({f"own_{name}": value for name, value in own.items()})
    born = F.when(kind == "open", was["birth_ns"]).when(kind.isin("new", "info"), F.col("begin_ns"))
    head = F.struct("begin_ns", born.alias("born"), was["bounce_of"].alias("bounce_of"), was["seen"].alias("seen"))
    info_ns = F.when(kind == "open", was["info_ns"]).otherwise(F.col("time_ns"))
    told = F.struct("life", "qp", info_ns.alias("info_ns"), "body")
    fate = F.when(was["fate"] == "deleted", 2 * OPEN_SEQ + 1).when(was["fate"] == "discarded", 2 * OPEN_SEQ)
    fate = fate.when(kind == "triple", 2 * seq).when(kind == "hold", 2 * seq + 1)
    bounced = F.coalesce(was["bounce_qp"], F.when(kind == "bounce", F.col("qp")))
    rows = rows.withColumns(
        {
            "head": last(F.when(F.col("begins"), head)),
            "told": last(F.when(kind.isin("info", "open"), told)),
            "again": last(F.col("again")),
            "bounced": most(F.when(bounced.isNotNull(), F.struct("life", -seq, bounced.alias("qp")))),
            "fate": most(F.when(fate.isNotNull(), F.struct("life", fate.alias("fate")))),
            "released": most(F.when(kind == "release", F.struct("life", "seq"))),
            "tried": most(F.when(kind == "start", F.struct("life", -seq, "hashed"))),
            **{name: F.sum(f"own_{name}").over(so_far) for name in _COUNTS},
        }
    )
    # What there was of each number's earlier lives, at the beginning of this one.
    base = F.struct(*((F.col(name) - F.col(f"own_{name}")).alias(name) for name in _COUNTS))
    rows = rows.withColumn("more", (kind == "start") & (F.col("hashed") != F.col("tried")["hashed"]))
    rows = rows.withColumns({"base": last(F.when(F.col("begins"), base)), "other": most(F.when(F.col("more"), life))})
    bounce = (kind == "bounce") | (_tells() & F.col("body")["sender"].isin(*BOUNCE_SENDERS))
    return _show(rows.filter(kind.isin("start", "orphan") | F.col("is_last") | bounce))


def _tells() -> Column:
    """Return whether a row is the first info of its life."""
    return (F.col("kind") == "info") & (F.col("begins") | (F.col("known") == _NEW))


def _nothing() -> Column:
    return F.array().cast("array<bigint>")


def _show(rows: DataFrame) -> DataFrame:
    """Return the rows with the columns of their messages as they are known in them."""

    def of_life(column: str, field: str) -> Column:
        return F.when(F.col(column)["life"] == F.col("life"), F.col(column)[field])

    fate, released = of_life("fate", "fate"), of_life("released", "seq")
    deleted = fate.bitwiseAND(F.lit(1)) == 1
    undone = F.coalesce(deleted & (released > F.shiftright(fate, 1)), F.lit(False))
    head = F.col("head")
    body, told = F.col("body"), F.col("told")["body"]
    in_life = F.col("told")["life"] == F.col("life")
    orphan = F.when(F.col("kind") == "orphan", F.col("flight")["key"])
    tried = F.when(F.col("tried")["life"] == F.col("life"), F.array(F.col("tried")["hashed"]))
    return rows.select(
        "stream", "id", "seq", "time_ns", "kind", "is_last", "delivery", "result", "done_seq", "hashed", "more",
        "flight",
        *(body[name].alias(name) for name in ("channel", "recipient", "done_ns", "reason")),
        _tells().alias("tells"), F.coalesce(orphan, F.concat_ws(".", "id", head["begin_ns"])).alias("key"),
        (F.col("closes").isNull() & (F.col("kind") != "orphan")).alias("open"),
        *(F.when(in_life, told[name]).alias(name) for name in ("bytes", "uid", "sender")),
        of_life("told", "qp").alias("qp"), of_life("told", "info_ns").alias("info_ns"),
        F.when(_tells() | (F.col("kind") == "bounce"), F.col("qp")).alias("bounce"),
        head["begin_ns"].alias("first_ns"), head["born"].alias("birth_ns"), head["bounce_of"].alias("bounce_of"),
        F.when(F.col("kind") == "end", F.col("time_ns")).alias("end_ns"), "next_ns",
        *((F.col(name) - F.col("base")[name]).alias(name) for name in _COUNTS),
        F.array_union(F.coalesce(head["seen"], _nothing()), F.coalesce(tried, _nothing())).alias("seen"),
        F.coalesce(F.col("other") == F.col("life"), F.lit(False)).alias("others"),
        of_life("bounced", "qp").alias("bounce_qp"),
        F.when(~F.col("known").eqNullSafe(F.lit(_NEW)), F.col("again")["ns"]).alias("again_ns"),
        F.when(undone, None).when(deleted, "deleted").when(~deleted, "discarded").alias("fate"),
    )  # fmt: skip
