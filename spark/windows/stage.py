"""Events between parsing and matching: in Parquet files of the staging directory, since several readers want them."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark.windows.parse import parse_lines

_PARTS = {"deliveries": ("start", "done"), "statuses": ("status", "exiting")}
# Fast to write and read; none of it outlives the batch.
_FORMAT: dict[str, bool | int | str] = {
    "parquet.block.size": 16 << 20,
    "parquet.enable.dictionary": False,
    "compression": "lz4_raw",
}


def write_staged(lines: DataFrame, staging: str) -> DataFrame:
    """Parse lines, write what they are, each reader's kinds in a part of their own, and return that: parse.PARSED."""
    kind = F.col("kind")
    part = F.when(kind.isNull(), "quarantine")
    for name, kinds in _PARTS.items():
        part = part.when(kind.isin(*kinds), name)
    return write_parts(parse_lines(lines).withColumn("part", part.otherwise("messages")), f"{staging}/events")


def write_parts(rows: DataFrame, path: str) -> DataFrame:
    """Write rows as Parquet files, those of each `part` in a directory of its own; return them as read from there."""
    rows.write.partitionBy("part").options(**_FORMAT).mode("overwrite").parquet(path)
    return rows.sparkSession.read.schema(rows.schema).option("__globPaths__", "false").parquet(path)


def of_kinds(events: DataFrame, *kinds: str) -> DataFrame:
    """Return the events of these kinds, which are of one part: where events are staged, only its files are read."""
    part = next((part for part, those in _PARTS.items() if kinds[0] in those), "messages")
    found = events.filter(F.col("kind").isin(*kinds))
    return found.filter(F.col("part") == part) if "part" in events.columns else found
