"""A lake's tables as Spark's DataFrames: of just the files that count, so that any Spark reads them, without a jar."""

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
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

from spark.lake.lake import Lake, open_lake
from spark.tables.columns import COLUMNS

_KINDS: dict[str, DataType] = {
    "string": StringType(), "long": LongType(), "int": IntegerType(), "boolean": BooleanType(),
    "time": TimestampType(), "date": DateType(), "longs": ArrayType(LongType()),
}  # fmt: skip


def tables(
    session: SparkSession, lake: str, version: int | None = None, store: Mapping[str, str] | None = None
) -> dict[str, DataFrame]:
    """Return the tables of a lake by name, as its last build left them, or as they were in an earlier version.

    Raises as open_lake does.
    """
    opened = open_lake(lake, store, version)
    return {table: read_table(session, opened, table) for table in COLUMNS}


def read_table(session: SparkSession, lake: Lake, table: str) -> DataFrame:
    """Return a table in the columns of the schema."""
    kinds = {name: _KINDS[kind] for name, kind in COLUMNS[table].items()}
    if not lake.tables[table]:
        return session.range(0).select(*(F.lit(None).cast(kind).alias(name) for name, kind in kinds.items()))
    stored = [StructField(name, kind) for name, kind in kinds.items() if name != "date"]
    schema = StructType([*stored, StructField("tbl", StringType()), StructField("date", DateType())])
    return (
        session.read.schema(schema)
        # The paths are names, also where the lake has a bracket or a star in its own.
        .options(basePath=lake.files.root, __globPaths__="false")
        .parquet(*lake.file_paths(table))
        .select(*kinds)
    )
