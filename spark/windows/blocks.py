"""What is known of each block of the files that a batch reads: a few numbers a block, gathered on the driver.

Spark reads blocks apart from each other. What has to be counted through a whole stream (lines before a line, moments at
which nothing was in flight) is counted within each block, and the blocks' sums are added up here.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, IntegerType, LongType, StructField, StructType

from spark.logs.streams import Numbers, Stream
from spark.runtime.local import make_table
from spark.windows.read import ROW_BITS, ROWS

_RUNS = StructType(
    [
        StructField("stream", IntegerType()),
        StructField("block", LongType()),
        StructField("low", LongType()),
        StructField("base", LongType()),
        StructField("again", ArrayType(LongType())),
    ]
)


_LAST = StructType([_RUNS.fields[0], StructField("last_run", LongType())])


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


def gather(lines: DataFrame, numbers: Numbers) -> dict[Stream, dict[int, Block]]:
    """Return the blocks of each stream by number. lines: events, and what is quarantined (kind null)."""
    groups = lines.groupBy("stream", block_of().alias("block"), F.coalesce("kind", F.lit("quarantine"))).agg(
        F.min("marks"), F.sum(is_mark().cast("long")), F.min(F.col("seq").bitwiseAND(F.lit(ROWS))), F.count("*"),
        F.min("time_ns"), F.max("time_ns"),
    )  # fmt: skip
    streams: dict[Stream, dict[int, Block]] = defaultdict(dict)
    names = {number: stream for stream, number in numbers.items()}
    for stream, number, kind, low, marks, row, count, *times in groups.collect():
        block = streams[names[stream]].setdefault(number, Block(low, 0, row))
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
    """Return stream, block, again: the seqs of marks that stand in the log a second time, or are known."""
    same = Window.partitionBy("stream", "time_ns", "print").orderBy("seq")
    marks = events.filter(is_mark()).withColumn("before", F.lag("seq").over(same))
    again = marks.filter("known OR before IS NOT NULL").withColumn("block", block_of())
    return again.groupBy("stream", "block").agg(F.sort_array(F.collect_list("seq")).alias("again"))


def overlap(streams: Mapping[Stream, Mapping[int, Block]]) -> bool:
    """Return whether a block of some stream has a stamp that is not later than all of the blocks before it."""
    for blocks in streams.values():
        latest = None
        for number in sorted(blocks):
            if not blocks[number].times:
                continue
            if latest is not None and min(blocks[number].times) <= latest:
                return True
            latest = max(blocks[number].times)
    return False


def number_runs(
    events: DataFrame, streams: Mapping[Stream, Mapping[int, Block]], numbers: Numbers, careful: bool
) -> tuple[DataFrame, DataFrame]:
    """Return how to reckon the run of a line, for add_run, and each stream's last run: stream, last_run.

    Runs are parted by marks, and a delivery does not outlive its run. run = base + (marks - low) - those of `again`
    before it. A stream's first run in a batch, which is that of what was carried over, is 0. careful: look for marks
    that are there a second time.
    """
    repeats = find_repeats(events).collect() if careful else []
    again = {(row["stream"], row["block"]): row["again"] for row in repeats}
    rows: list[tuple[object, ...]] = []
    last = []
    for stream, blocks in streams.items():
        base, place = 0, numbers[stream]
        for number in sorted(blocks):
            dropped = again.get((place, number), [])
            rows.append((place, number, blocks[number].low, base, dropped))
            base += blocks[number].marks - len(dropped)
        last.append((place, base))
    session = events.sparkSession
    return make_table(session, rows, _RUNS), make_table(session, last, _LAST)


def add_run(events: DataFrame, runs: DataFrame) -> DataFrame:
    """Add `run` to events."""
    found = events.withColumn("block", block_of()).join(F.broadcast(runs), ["stream", "block"])
    before = F.when(F.size("again") == 0, 0).otherwise(F.size(F.filter("again", lambda seq: seq < F.col("seq"))))
    return found.withColumn("run", F.col("base") + F.col("marks") - F.col("low") - before)
