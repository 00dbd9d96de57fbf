"""From status lines to intervals: samples that are equal and follow each other are one.

A stream's samples are first compared within each block, on all cores. What is at the edges of the blocks, two samples
of each, is then compared through the whole stream.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from spark.blocks import block_of

SAMPLE = ("local_now", "local_limit", "remote_now", "remote_limit")
_CARRIED_SEQ = -1
_PLACE = ("host", "queue")


def find_intervals(events: DataFrame, pending: DataFrame, partitions: int) -> DataFrame:
    """Return host, queue, at_ns, until_ns (null for the last, which is still open) and the sample.

    events: status and exiting lines. An exit ends a sample and is none.
    """
    carried = pending.filter("what = 'status'").select(
        *_PLACE, F.col("first_ns").alias("time_ns"), *SAMPLE, F.lit(_CARRIED_SEQ).cast("long").alias("seq")
    )
    once = events.groupBy(*_PLACE, "time_ns", *SAMPLE).agg(F.min("seq").alias("seq"))
    rows = once.unionByName(carried).withColumn("block", block_of()).repartition(partitions, *_PLACE, "block")
    rows = rows.withColumn("sample", F.xxhash64(*SAMPLE))
    inside = Window.partitionBy(*_PLACE, "block").orderBy("seq")
    rows = rows.withColumn("before", F.lag("sample").over(inside)).filter("before IS NULL OR before <> sample")
    rows = rows.withColumn("until_ns", F.lead("time_ns").over(inside))
    edge = F.col("before").isNull() | F.col("until_ns").isNull()
    shown: list[Column | str] = [*_PLACE, F.col("time_ns").alias("at_ns"), "until_ns", *SAMPLE]
    whole = rows.filter(~edge).select(*shown)
    return whole.unionByName(_join_edges(rows.filter(edge)).select(*shown)).filter("local_limit IS NOT NULL")


def _join_edges(rows: DataFrame) -> DataFrame:
    order = Window.partitionBy(*_PLACE).orderBy("seq")
    # The first of a block may go on with the last sample of the block before; others differ from what is before them.
    same = F.col("before").isNull() & F.coalesce(F.lag("sample").over(order) == F.col("sample"), F.lit(False))
    rows = rows.withColumns({"same": same, "until_ns": F.coalesce("until_ns", F.lead("time_ns").over(order))})
    rows = rows.withColumn("run", F.sum((~F.col("same")).cast("long")).over(order))
    return rows.groupBy(*_PLACE, "run", *SAMPLE).agg(
        F.min_by("time_ns", "seq").alias("time_ns"), F.max_by("until_ns", "seq").alias("until_ns")
    )
