"""What is known of each block of the files that a batch reads: a few numbers a block, gathered on the driver.

Spark reads blocks apart from each other. What has to be counted through a whole stream (lines before a line, moments at
which nothing was in flight) is counted within each block, and the blocks' sums are added up here.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from spark.local import make_table
from spark.read import ROW_BITS, ROWS

Stream: TypeAlias = tuple[str, str]
_RUNS = StructType(
    [
        StructField("host", StringType()),
        StructField("queue", StringType()),
        StructField("block", LongType()),
        StructField("low", LongType()),
        StructField("base", LongType()),
    ]
)


@dataclass
class Block:
    """low: the smallest `marks` in it. marks: how many lines in it are marks. first_row: its first in Spark's order.

    times: stamps, the earliest and the latest among them.
    """

    low: int = 0
    marks: int = 0
    first_row: int = 0
    lines: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    times: list[int] = field(default_factory=list)


def block_of(seq: str | Column = "seq") -> Column:
    """Return the number of the block that a line is in; -1 for what an earlier batch carried over."""
    return F.shiftright(seq, ROW_BITS)


def is_mark() -> Column:
    """Return whether an event says that nothing is in flight: a run's first status, an idle one, an exit."""
    zero = (F.col("kind") == "status") & (F.col("local_now") == 0) & (F.col("remote_now") == 0)
    return F.coalesce((F.col("kind") == "exiting") | zero, F.lit(False))


def gather(lines: DataFrame) -> dict[Stream, dict[int, Block]]:
    """Return the blocks of each stream by number. lines: events, and what is quarantined (kind null)."""
    groups = lines.groupBy("host", "queue", block_of().alias("block"), F.coalesce("kind", F.lit("quarantine"))).agg(
        F.min("marks"), F.sum(is_mark().cast("long")), F.min(F.col("seq").bitwiseAND(F.lit(ROWS))), F.count("*"),
        F.min("time_ns"), F.max("time_ns"),
    )  # fmt: skip
    streams: dict[Stream, dict[int, Block]] = defaultdict(dict)
    for host, queue, number, kind, low, marks, row, count, *times in groups.collect():
        block = streams[host, queue].setdefault(number, Block(low, 0, row))
        block.low, block.first_row = min(block.low, low), min(block.first_row, row)
        block.marks += marks
        block.lines += count
        block.kinds[kind] += count
        block.times += [time for time in times if time is not None]
    return streams


def count_kinds(streams: Mapping[Stream, Mapping[int, Block]]) -> dict[str, dict[str, int]]:
    """Return lines by kind, by "host/queue"."""
    return {
        "/".join(stream): dict(sum((block.kinds for block in blocks.values()), Counter()))
        for stream, blocks in streams.items()
    }


def find_repeats(events: DataFrame) -> DataFrame:
    """Return host, queue, block, again: the seqs of marks that stand in the log a second time, or are known."""
    same = Window.partitionBy("host", "queue", "time_ns", "kind", "local_limit", "remote_limit").orderBy("seq")
    marks = events.filter(is_mark()).withColumn("before", F.lag("seq").over(same))
    again = marks.filter("known OR before IS NOT NULL").withColumn("block", block_of())
    return again.groupBy("host", "queue", "block").agg(F.sort_array(F.collect_list("seq")).alias("again"))


def number_runs(
    events: DataFrame, streams: Mapping[Stream, Mapping[int, Block]]
) -> tuple[DataFrame, dict[Stream, int], DataFrame]:
    """Return how to reckon the run of a line, the number of each stream's last run, and a DataFrame to unpersist.

    Runs are parted by marks, and a delivery does not outlive its run. run = base + (marks - low) - those of `again`
    before it. A stream's first run in a batch, which is that of what was carried over, is 0.
    """
    repeats = find_repeats(events).persist()
    dropped = {
        (host, queue, block): count
        for host, queue, block, count in repeats.select("host", "queue", "block", F.size("again")).collect()
    }
    rows: list[tuple[str, str, int, int, int]] = []
    last: dict[Stream, int] = {}
    for (host, queue), blocks in streams.items():
        base = 0
        for number in sorted(blocks):
            rows.append((host, queue, number, blocks[number].low, base))
            base += blocks[number].marks - dropped.get((host, queue, number), 0)
        last[host, queue] = base
    session = events.sparkSession
    table = make_table(session, rows, _RUNS)
    if dropped:
        table = table.join(repeats, ["host", "queue", "block"], "left")
    else:
        table = table.withColumn("again", F.lit(None).cast("array<bigint>"))
    return table, last, repeats


def add_run(events: DataFrame, runs: DataFrame) -> DataFrame:
    """Add `run` to events."""
    found = events.withColumn("block", block_of()).join(F.broadcast(runs), ["host", "queue", "block"])
    before = F.coalesce(F.size(F.filter("again", lambda seq: seq < F.col("seq"))), F.lit(0))
    before = F.when(F.col("again").isNull(), F.lit(0)).otherwise(before)
    return found.withColumn("run", F.col("base") + F.col("marks") - F.col("low") - before)


def last_runs(session_of: DataFrame, last: Mapping[Stream, int]) -> DataFrame:
    """Return host, queue, last_run."""
    schema = StructType([*_RUNS.fields[:2], StructField("last_run", LongType())])
    rows: Sequence[tuple[str, str, int]] = [(host, queue, run) for (host, queue), run in last.items()]
    return make_table(session_of.sparkSession, rows, schema)
