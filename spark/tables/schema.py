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

from spark.tables.columns import COLUMNS

_KINDS: dict[str, DataType] = {
    "string": StringType(), "long": LongType(), "int": IntegerType(), "boolean": BooleanType(),
    "time": TimestampType(), "date": DateType(), "longs": ArrayType(LongType()),
}  # fmt: skip

TABLES = {
    table: StructType([StructField(name, _KINDS[kind]) for name, kind in columns.items()])
    for table, columns in COLUMNS.items()
}


class Tables(NamedTuple):
    """A lake's tables as they are stored."""

    messages: DataFrame
    deliveries: DataFrame
    intervals: DataFrame
    alerts: DataFrame
    sessions: DataFrame
    accepted: DataFrame
    refusals: DataFrame
    filters: DataFrame
    pending: DataFrame
    quarantine: DataFrame
    lines: DataFrame
