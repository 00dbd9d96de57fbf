"""Lines that an earlier batch has read: a log that is given again, under any names and in any pieces, adds nothing."""

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from spark.logs.plan import State
from spark.logs.streams import Numbers, Stream
from spark.runtime.local import make_table
from spark.windows.blocks import Block

_RANGES = StructType(
    [
        StructField("stream", IntegerType()),
        StructField("host", StringType()),
        StructField("queue", StringType()),
        StructField("earliest", LongType()),
        StructField("latest", LongType()),
    ]
)
_LINE = ["stream", "time_ns", "print"]


def mark_known(
    staged: DataFrame,
    lines: DataFrame | None,
    streams: Mapping[Stream, Mapping[int, Block]],
    numbers: Numbers,
    state: State,
) -> tuple[DataFrame, bool]:
    """Add `known`: whether a line is in `lines` (schema.LINES), and return whether any might be.

    state: a plan's; its `latest` are set.

    A stream whose stamps are all later than what was read before, which is nearly each in nearly each batch, has none.
    """
    ranges = []
    for (host, queue), blocks in streams.items():
        known = state[f"{host}/{queue}"]
        times = [time for block in blocks.values() for time in block.times]
        if times and known.get("latest") is not None and min(times) <= known["latest"]:
            ranges.append((numbers[host, queue], host, queue, min(times), max(times)))
        if times:
            known["latest"] = max(times) if known.get("latest") is None else max(known["latest"], *times)
    if lines is None or not ranges:
        return staged.withColumn("known", F.lit(False)), False
    earliest, latest = min(row[3] for row in ranges), max(row[4] for row in ranges)
    table = F.broadcast(make_table(staged.sparkSession, ranges, _RANGES))
    old = lines.filter(F.col("time_ns").between(earliest, latest)).join(table, ["host", "queue"])
    old = old.filter("time_ns BETWEEN earliest AND latest").select(*_LINE).distinct().withColumn("old", F.lit(True))
    marked = staged.join(old, _LINE, "left").withColumn("known", F.coalesce("old", F.lit(False))).drop("old")
    return marked, True
