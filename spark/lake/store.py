"""A lake's tables as Spark reads them. newest.py says which files count."""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from queue_base.errors import Temporary, reason
from spark.lake.manifest import Manifest
from spark.lake.newest import open_manifest
from spark.runtime.places import Place, open_place
from spark.tables.columns import PARTITIONED, PARTITIONS
from spark.tables.schema import TABLES, Tables


def open_tables(session: SparkSession, lake: str) -> Tables:
    """Return the tables of a lake (a path, or a URI of any file system that Spark knows) as its last build left them.

    Raises as open_lake does.
    """
    place, manifest = open_lake(session, lake)
    return read_tables(session, place, manifest)


def open_lake(session: SparkSession, lake: str) -> tuple[Place, Manifest]:
    """Return where a lake is, and its manifest. Raises as newest.open_manifest does."""
    try:
        place = open_place(lake, lambda: session, dict(session.sparkContext.getConf().getAll()))
    except OSError as error:
        raise Temporary(f"unable to open lake {lake}: {reason(error)}; nothing is shown") from error
    return place, open_manifest(place)


def read_tables(session: SparkSession, place: Place, manifest: Manifest) -> Tables:
    """Return the tables that a manifest lists."""
    return Tables(
        **{table: read_table(session, place, table, list(manifest.tables.get(table, ()))) for table in TABLES}
    )


def read_table(session: SparkSession, place: Place, table: str, paths: list[str]) -> DataFrame:
    """Return the rows of some files of a table, in the columns of the schema; paths are below the table's directory."""
    schema = TABLES[table]
    if not paths:
        return session.range(0).select(*(F.lit(None).cast(one.dataType).alias(one.name) for one in schema))
    return (
        session.read.schema(_stored(table))
        # The paths are names, also where a host or the lake has a bracket or a star in its own.
        .options(basePath=place.uri(table), __globPaths__="false")
        .parquet(*(place.uri(f"{table}/{path}") for path in paths))
        .select(*schema.names)
    )


def _stored(table: str) -> StructType:
    """Return a table's schema as Spark reads it: what the directories' names say comes last."""
    schema = TABLES[table]
    if table not in PARTITIONED:
        return schema
    last = [schema[name] for name in PARTITIONS]
    return StructType([column for column in schema if column not in last] + last)
