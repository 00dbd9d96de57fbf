"""A lake's tables as Spark's DataFrames: of just the files that count, so that any Spark reads them, without a jar."""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from queue_report.lake.lake import KINDS, Lake
from queue_report.schema.columns import COLUMNS


def read_table(session: SparkSession, lake: Lake, table: str) -> DataFrame:
    """Return a table in the columns of the schema."""
    kinds = {name: "array<long>" if kind == "longs" else KINDS[kind] for name, kind in COLUMNS[table].items()}
    if not lake.tables[table]:
        return session.range(0).select(*(F.lit(None).cast(kind).alias(name) for name, kind in kinds.items()))
    stored = [f"`{name}` {kind}" for name, kind in kinds.items() if name != "date"]
    return (
        session.read.schema(", ".join([*stored, "tbl string", "date date"]))
        # The paths are names, also where the lake has a bracket or a star in its own.
        .options(basePath=lake.files.root, __globPaths__="false")
        .parquet(*lake.file_paths(table))
        .select(*kinds)
    )
