"""Lines that could not be read, with the place where they stand; and how many lines of each file were read."""

from collections import Counter
from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, IntegerType, LongType, StringType, StructField, StructType

from spark.logs.plan import Piece, Plan, State
from spark.logs.streams import Numbers, Stream
from spark.runtime.local import make_table
from spark.windows.blocks import Block, block_of
from spark.windows.read import ROWS

_PLACES = StructType(
    [
        StructField("stream", IntegerType()),
        StructField("host", StringType()),
        StructField("queue", StringType()),
        StructField("block", LongType()),
        StructField("file", StringType()),
        StructField("first_row", LongType()),
        StructField("first_line", LongType()),
        StructField("carried", BooleanType()),
    ]
)


def place_lines(
    staged: DataFrame,
    plan: Plan,
    streams: Mapping[Stream, Mapping[int, Block]],
    numbers: Numbers,
    state: State,
) -> DataFrame:
    """Return quarantine (schema.QUARANTINE, without date), and count the lines of each file in `state`.

    A stamped line that stands in the log twice is quarantined once; but not one that was cut short.
    """
    places = []
    read: Counter[tuple[str, str, str]] = Counter()
    for piece, number, block in _blocks_in_order(plan, streams):
        file = (piece.host, piece.queue, piece.name)
        first_line = piece.first_line + read[file]
        carried = piece.carried and number == piece.base
        stream = piece.host, piece.queue
        places.append((numbers[stream], *stream, number, piece.file, block.first_row, first_line, carried))
        read[file] += block.lines
    for (host, queue, name), lines in read.items():
        if name in state[f"{host}/{queue}"]["files"]:
            state[f"{host}/{queue}"]["files"][name][2] += lines
    table = F.broadcast(make_table(staged.sparkSession, places, _PLACES))
    wrong = staged.filter("part = 'quarantine'").withColumn("block", block_of())
    inside = F.col("seq").bitwiseAND(F.lit(ROWS)) - F.col("first_row")
    line = F.when(~F.col("carried") | (inside > 0), F.col("first_line") + inside)
    found = wrong.join(table, ["stream", "block"]).select(
        "host", "queue", "seq", "file", line.alias("line"), "time_ns", F.col("wrong").alias("reason"),
        F.col("line").alias("text"), "print",
    )  # fmt: skip
    return _drop_repeats(found)


def _blocks_in_order(plan: Plan, streams: Mapping[Stream, Mapping[int, Block]]) -> list[tuple[Piece, int, Block]]:
    found = []
    for piece in plan.pieces:
        blocks = streams.get((piece.host, piece.queue), {})
        last = piece.base + max(1, -(-piece.size // plan.block))
        found += [(piece, number, blocks[number]) for number in range(piece.base, last) if number in blocks]
    return found


def _drop_repeats(rows: DataFrame) -> DataFrame:
    stays = F.col("time_ns").isNull() | (F.col("reason") == "cut short")
    once = rows.filter(~stays).dropDuplicates(["host", "queue", "time_ns", "print"])
    return rows.filter(stays).unionByName(once).drop("print")
