"""The log pipeline: from directories of logs to tables and reports. See docs/design/lake.md.

match is pure and knows neither files nor Spark; logs says what is new in which files; lake writes tables; reports asks
DuckDB or Spark SQL; page makes a document of the answers; watch builds again and again; runtime has Spark and Java.
For programs of one's own there are `tables` and, in queue_report.logs.source, `QueueLog` (docs/notebook.md).
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

# pyspark takes long to import.
if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def tables(
    session: "SparkSession", lake: str, version: int | None = None, store: Mapping[str, str] | None = None
) -> "dict[str, DataFrame]":
    """Return the tables of a lake by name, as its last build left them, or as they were in an earlier version.

    store: settings of the lake's store, as delta-rs names them. Raises as queue_report.lake.lake.open_lake.
    """
    from queue_report.lake.lake import open_lake
    from queue_report.lake.tables import read_table
    from queue_report.schema.columns import COLUMNS

    opened = open_lake(lake, store, version)
    return {table: read_table(session, opened, table) for table in COLUMNS}
