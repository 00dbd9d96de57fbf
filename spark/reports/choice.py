"""Which engine answers SQL about a lake: DuckDB for one in a directory of this machine, Spark for any.

Both run the same texts (statement.py) and give equal rows.
"""

import importlib.util

from queue_base.errors import Permanent
from spark.reports.engine import Engine
from spark.runtime.places import local_path
from spark.runtime.session import Sessions

ENGINES = ("auto", "duckdb", "spark")


def choose_engine(lake: str, kind: str = "auto") -> str:
    """Return duckdb or spark. auto is DuckDB if it is installed and the lake is a directory of this machine."""
    if kind != "auto":
        return kind
    local = local_path(lake) is not None
    return "duckdb" if local and importlib.util.find_spec("duckdb") is not None else "spark"


def open_engine(
    lake: str,
    kind: str = "auto",
    sessions: Sessions | None = None,
    memory: int | None = None,
) -> Engine:
    """Open a lake. sessions: begins Spark's session, only if Spark is the engine, and ends it; by default there is one
    that the process leaves to its end. memory: DuckDB's bound, bytes.

    Raises Permanent where there is no lake or the engine is not installed, Temporary where it cannot be read now.
    """
    if choose_engine(lake, kind) == "duckdb":
        try:
            from spark.reports.duckdb_engine import MEMORY, DuckEngine
        except ImportError as error:
            raise Permanent(
                f"unable to load duckdb: {error}; "
                "install it with pip install 'queue-suite[report]', then run this again"
            ) from error
        return DuckEngine(lake, memory or MEMORY)
    if kind == "auto" and local_path(lake) is not None and importlib.util.find_spec("pyspark") is None:
        raise Permanent(
            "unable to load duckdb or pyspark: neither is installed; "
            "pip install 'queue-suite[report]' or 'queue-suite[spark]', then run this again"
        )
    from spark.lake.size import is_small_lake

    running = (sessions or Sessions()).get(little=is_small_lake(lake))
    from spark.reports.spark_engine import SparkEngine

    return SparkEngine(running, lake)
