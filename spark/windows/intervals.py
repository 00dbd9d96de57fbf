"""From status lines to intervals: samples that are equal and follow each other are one.

A stream's samples are first compared within each block, on all cores. What is at the edges of the blocks, two samples
of each, is then compared through the whole stream.
"""

from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame, Observation, Window, WindowSpec
from pyspark.sql import functions as F

from spark.windows.blocks import block_of

SAMPLE = ("local_now", "local_limit", "remote_now", "remote_limit")
_CARRIED_SEQ = -1
_NEAR = (2, 3)  # A repeated line that is nearer follows its equal, and so is the same sample.
_FAR = 4


def find_intervals(
    events: DataFrame, pending: DataFrame, partitions: int, doubts: Observation | None = None
) -> DataFrame:
    """Return stream, at_ns, until_ns (null for the last, which is still open) and the sample.

    events: status and exiting lines. An exit ends a sample and is none. A line that stands in the log twice counts
    once: without `doubts`, at the price of one more shuffle. With it (see pair), only where both are near.
    """
    carried = pending.filter("what = 'status'").select(
        "stream", F.col("first_ns").alias("time_ns"), *SAMPLE, F.lit(_CARRIED_SEQ).cast("long").alias("seq")
    )
    rows = events.select("stream", "time_ns", *SAMPLE, "seq", "print")
    if doubts is None:
        rows = rows.groupBy("stream", "time_ns", *SAMPLE, "print").agg(F.min("seq").alias("seq"))
    rows = (
        rows.unionByName(carried, allowMissingColumns=True)
        .withColumn("block", block_of())
        .repartition(partitions, "stream", "block")
    )
    rows = rows.withColumn("sample", F.xxhash64(*SAMPLE))
    inside = Window.partitionBy("stream", "block").orderBy("seq")
    if doubts is not None:
        rows = _drop_near(rows, inside, doubts)
    rows = rows.withColumn("before", F.lag("sample").over(inside)).filter("before IS NULL OR before <> sample")
    rows = rows.withColumn("until_ns", F.lead("time_ns").over(inside))
    edge = F.col("before").isNull() | F.col("until_ns").isNull()
    shown: list[Column | str] = ["stream", F.col("time_ns").alias("at_ns"), "until_ns", *SAMPLE]
    whole = rows.filter(~edge).select(*shown)
    return whole.unionByName(_join_edges(rows.filter(edge)).select(*shown)).filter("local_limit IS NOT NULL")


def _drop_near(rows: DataFrame, inside: WindowSpec, doubts: Observation) -> DataFrame:
    """Leave out samples that were there a few lines before with the same stamp, and tell whether that is enough.

    It is not where nothing is in flight by them, or the queue exits: those part runs (blocks), each once more.
    """
    time = F.col("time_ns")
    idle = (F.coalesce("local_now", F.lit(0)) == 0) & (F.coalesce("remote_now", F.lit(0)) == 0)
    before = {f"time_{lines}": F.lag("time_ns", lines).over(inside) for lines in (1, *_NEAR, _FAR)}
    before |= {f"print_{lines}": F.lag("print", lines).over(inside) for lines in (1, *_NEAR)}
    same = [(time == F.col(f"time_{lines}")) & (F.col("print") == F.col(f"print_{lines}")) for lines in (1, *_NEAR)]
    again = F.coalesce(reduce(or_, same), F.lit(False))
    doubtful = (time < F.col("time_1")) | (time == F.col(f"time_{_FAR}")) | (again & idle)
    rows = rows.withColumns(before)
    rows = rows.observe(doubts, F.max(F.coalesce(doubtful, F.lit(False))).alias("doubtful"))
    return rows.filter(~again).drop(*before)


def _join_edges(rows: DataFrame) -> DataFrame:
    order = Window.partitionBy("stream").orderBy("seq")
    # The first of a block may go on with the last sample of the block before; others differ from what is before them.
    same = F.col("before").isNull() & F.coalesce(F.lag("sample").over(order) == F.col("sample"), F.lit(False))
    rows = rows.withColumns({"same": same, "until_ns": F.coalesce("until_ns", F.lead("time_ns").over(order))})
    rows = rows.withColumn("run", F.sum((~F.col("same")).cast("long")).over(order))
    return rows.groupBy("stream", "run", *SAMPLE).agg(
        F.min_by("time_ns", "seq").alias("time_ns"), F.max_by("until_ns", "seq").alias("until_ns")
    )
