"""The tables (columns.py) in Spark's types."""

from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from spark.lake.columns import COLUMNS, OF_MESSAGE

STRING, LONG, INT, BOOLEAN = StringType(), LongType(), IntegerType(), BooleanType()
TIME, DATE = TimestampType(), DateType()


def _struct(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


# What parse makes of lines: one row a line that counts. Null is whatever the line does not have.
# stream: the number of host and queue in this batch (spark.logs.streams).
# kind: new info start done bounce delay triple end status exiting corrupt hold release dest inflow alert warning.
# seq orders the lines of a stream within a batch, and is negative for what an earlier batch carried over.
# result: success failure deferral mangled; channel: local remote; text: what follows the first word (ours, alert,
# warning). time_ns is the line's stamp. marks: how many zero statuses and exits are before it in its Spark partition.
EVENTS = _struct(
    stream=INT, seq=LONG, marks=LONG, time_ns=LONG, kind=STRING, message=LONG, delivery=LONG, bytes=LONG,
    sender=STRING, qp=LONG, uid=LONG, channel=STRING, recipient=STRING, result=STRING, reason=STRING,
    local_now=INT, local_limit=INT, remote_now=INT, remote_limit=INT, text=STRING,
)  # fmt: skip

_KINDS: dict[str, DataType] = {
    "string": STRING, "long": LONG, "int": INT, "boolean": BOOLEAN, "time": TIME, "date": DATE,
    "longs": ArrayType(LONG),
}  # fmt: skip

TABLES = {
    table: _struct(**{name: _KINDS[kind] for name, kind in columns.items()}) for table, columns in COLUMNS.items()
}
MESSAGES, DELIVERIES, INTERVALS, PENDING, QUARANTINE, LINES = TABLES.values()


class Tables(NamedTuple):
    """A lake's tables as they are stored."""

    messages: DataFrame
    deliveries: DataFrame
    intervals: DataFrame
    pending: DataFrame
    quarantine: DataFrame
    lines: DataFrame


__all__ = [
    "DELIVERIES",
    "EVENTS",
    "INTERVALS",
    "LINES",
    "MESSAGES",
    "OF_MESSAGE",
    "PENDING",
    "QUARANTINE",
    "TABLES",
    "Tables",
]
