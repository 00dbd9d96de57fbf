"""From files to lines, each with its place in the order of its stream.

seq is the number of the block that the line begins in (blocks are numbered file by file, 30 bits), then the number of
the row in Spark's partition (33 bits). Spark packs blocks into partitions as it likes, but a block stays whole and
in order. So seq orders the lines of a stream as the files have them, wherever Spark reads them.
"""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, IntegerType, LongType, StringType, StructField, StructType

from spark.logs.plan import Plan
from spark.logs.streams import Numbers
from spark.runtime.local import make_table

ROW_BITS = 33
ROWS = (1 << ROW_BITS) - 1
_PIECES = StructType(
    [
        StructField("uri", StringType()),
        StructField("stream", IntegerType()),
        StructField("base", LongType()),
        StructField("torn", BooleanType()),
    ]
)


def read_lines(session: SparkSession, plan: Plan, numbers: Numbers) -> DataFrame:
    """Return the plan's lines: stream, seq, torn (it was cut short), value (without its newline)."""
    text = session.read.option("lineSep", "\n").option("__globPaths__", "false")
    lines = text.text([piece.path for piece in plan.pieces]).select(
        F.xxhash64(F.input_file_name()).alias("uri"),
        F.call_function("input_file_block_start").alias("start"),
        F.monotonically_increasing_id().bitwiseAND(F.lit(ROWS)).alias("row"),
        "value",
    )
    # By a hash, since Spark looks up numbers several times faster than strings, for each line.
    pieces = make_table(
        session,
        [(piece.uri, numbers[piece.host, piece.queue], piece.base, piece.torn) for piece in plan.pieces],
        _PIECES,
    ).withColumn("uri", F.xxhash64("uri"))
    block = F.col("base") + F.expr(f"start div {plan.block}")
    return lines.join(F.broadcast(pieces), "uri").select(
        "stream",
        F.shiftleft(block, ROW_BITS).bitwiseOR(F.col("row")).alias("seq"),
        "torn",
        "value",
    )
