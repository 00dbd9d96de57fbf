"""Which engine answers SQL about a lake: DuckDB for one in a directory of this machine, Spark for any.

Both run the same texts (statement.py) and give equal rows.
"""

import importlib.util
import os
from collections.abc import Mapping

from queue_base.errors import Permanent
from queue_report.reports.engine import Engine
from queue_report.runtime.files import local_path, store_settings
from queue_report.runtime.session import Sessions

ENGINES = ("auto", "duckdb", "spark")


def choose_engine(lake: str, kind: str = "auto") -> str:
    """Return duckdb or spark. auto is DuckDB if it is installed and the lake is a directory of this machine."""
    if kind != "auto":
        return kind
    local = local_path(lake) is not None
    return "duckdb" if local and importlib.util.find_spec("duckdb") is not None else "spark"


def check_engine(lake: str, kind: str = "auto") -> str:
    """Return choose_engine's answer.

    Raises ImportError or Permanent where that engine is not installed, Permanent where it has no Java to run on.
    """
    chosen = choose_engine(lake, kind)
    if chosen == "duckdb":
        import duckdb  # noqa: F401 - whether it can be loaded

        return chosen
    if importlib.util.find_spec("pyspark") is None:
        raise _no_engine(lake, kind)
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        from queue_report.runtime.java import choose_java

        choose_java(dict(os.environ))
    return chosen


def _no_engine(lake: str, kind: str) -> Permanent:
    if kind == "auto" and local_path(lake) is not None:
        return Permanent(
            "unable to load duckdb or pyspark: neither is installed; "
            "bin/setup-suite DIRECTORY report, or spark, then run this again"
        )
    return Permanent(
        "unable to load pyspark: it is not installed; install it with bin/setup-suite DIRECTORY spark, "
        "then run this again"
    )


def open_engine(
    lake: str,
    kind: str = "auto",
    sessions: Sessions | None = None,
    memory: int | None = None,
    version: int | None = None,
    settings: Mapping[str, str] | None = None,
) -> Engine:
    """Open a lake.

    sessions: begins Spark's session, only if Spark is the engine, and ends it; by default there is one that the process
    leaves to its end. memory: DuckDB's bound, bytes. version: an earlier one. settings: Spark's that were asked for.

    Raises Permanent where there is no lake, ImportError or Permanent where the engine is not installed, Temporary where
    the lake cannot be read now.
    """
    if choose_engine(lake, kind) == "duckdb":
        from queue_report.reports.duckdb_engine import MEMORY, DuckEngine

        return DuckEngine(lake, memory or MEMORY, version)
    if kind == "auto" and importlib.util.find_spec("pyspark") is None:
        raise _no_engine(lake, kind)
    running = (sessions or Sessions()).get()
    from queue_report.reports.spark_engine import SparkEngine

    return SparkEngine(running, lake, store_settings(settings or {}), version)
