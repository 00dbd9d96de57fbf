"""The lake: which of its files count, and its tables read back. build.py writes it; this is all that a report needs.

A reader sees the state after one build, whole, whatever a build does meanwhile or leaves behind when it dies.
"""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from queue_base.errors import Temporary
from spark.lake.columns import PARTITIONED
from spark.lake.manifest import Manifest
from spark.lake.newest import MANIFESTS, find_manifest, manifest_numbers, manifest_path, no_lake
from spark.lake.schema import TABLES, Tables
from spark.lake.storage import Storage
from spark.runtime.local import make_table

__all__ = [
    "MANIFESTS",
    "PARTITIONED",
    "find_manifest",
    "manifest_numbers",
    "manifest_path",
    "open_lake",
    "open_tables",
    "read_table",
    "read_tables",
]


def open_tables(session: SparkSession, lake: str) -> Tables:
    """Return the tables of a lake (a path, or a URI of any file system that Spark knows) as its last build left them.

    Raises Permanent where there is no lake, where it is something else, or of a later version; Temporary where it
    cannot be read now.
    """
    storage, manifest = open_lake(session, lake)
    return read_tables(session, storage, manifest)


def open_lake(session: SparkSession, lake: str) -> tuple[Storage, Manifest]:
    """Return where a lake is, and its manifest. Raises as open_tables does."""
    try:
        storage = Storage(session, lake)
        manifest = find_manifest(storage)
        empty = manifest is None and not storage.exists(MANIFESTS)
    except OSError as error:
        raise Temporary(f"unable to open lake {lake}: {error}; nothing is shown") from error
    if manifest is None:
        raise no_lake(lake, empty)
    return storage, manifest


def read_tables(session: SparkSession, storage: Storage, manifest: Manifest) -> Tables:
    """Return the tables that a manifest lists."""
    return Tables(
        **{table: read_table(session, storage, table, list(manifest.tables.get(table, ()))) for table in TABLES}
    )


def read_table(session: SparkSession, storage: Storage, table: str, paths: list[str]) -> DataFrame:
    """Return the rows of some files of a table, in the columns of the schema; paths are below the table's directory."""
    schema = TABLES[table]
    if not paths:
        return make_table(session, [], schema)
    return (
        session.read.schema(_stored(table))
        # The paths are names, also where a host or the lake has a bracket or a star in its own.
        .options(basePath=storage.uri(table), __globPaths__="false")
        .parquet(*(storage.uri(f"{table}/{path}") for path in paths))
        .select(*schema.names)
    )


def _stored(table: str) -> StructType:
    """Return a table's schema as Spark reads it: what the directories' names say comes last."""
    schema = TABLES[table]
    if table not in PARTITIONED:
        return schema
    last = [schema["date"], schema["host"]]
    return StructType([column for column in schema if column not in last] + last)
