"""Streams by number: within a batch a small number stands for host and queue, so that no row carries both along."""

from collections.abc import Mapping
from typing import TypeAlias

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from spark.logs.plan import State
from spark.runtime.local import make_table

Stream: TypeAlias = tuple[str, str]  # Host and queue.
Numbers: TypeAlias = Mapping[Stream, int]
_STREAMS = StructType(
    [
        StructField("stream", IntegerType()),
        StructField("host", StringType()),
        StructField("queue", StringType()),
    ]
)


def number_streams(state: State) -> dict[Stream, int]:
    """Return a number for each stream of a plan's state, which has all that ever were read."""
    return {(name.split("/")[0], name.split("/")[1]): number for number, name in enumerate(sorted(state))}


def with_names(rows: DataFrame, numbers: Numbers) -> DataFrame:
    """Return rows with host and queue in place of stream."""
    return rows.join(_table(rows, numbers), "stream").drop("stream")


def with_numbers(rows: DataFrame, numbers: Numbers) -> DataFrame:
    """Return rows with stream in place of host and queue."""
    return rows.join(_table(rows, numbers), ["host", "queue"]).drop("host", "queue")


def _table(rows: DataFrame, numbers: Numbers) -> DataFrame:
    table = make_table(rows.sparkSession, [(number, *stream) for stream, number in numbers.items()], _STREAMS)
    return F.broadcast(table)
