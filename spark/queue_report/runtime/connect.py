"""A session on a Spark Connect server (sc://HOST:PORT): another process, of another account or machine, has Spark.

Its executors, its memory and its Python are the server's. A session only sets what Spark SQL lets a session set.
"""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from queue_base.errors import Permanent, Temporary, Usage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEME = "sc://"
# How long (seconds) a server may take to answer. Spark's own client would try for ten minutes.
PATIENCE = 20.0
_EXTRA = "install it with bin/setup-suite DIRECTORY spark connect, then run this again"


def connect_url(master: str | None, settings: Mapping[str, str]) -> str:
    """Return the URL of the Connect server that is asked for, empty for none."""
    asked = master or settings.get("spark.master") or os.environ.get("SPARK_REMOTE", "")
    return asked if asked.startswith(SCHEME) else ""


def connect(url: str, needed: Mapping[str, str], wanted: Mapping[str, str]) -> "SparkSession":
    """Return a new session. needed: our settings, wanted: the user's, which come before ours.

    Raises Permanent where a package is missing, Usage for a wrong URL or setting, Temporary where no server answers.
    """
    try:
        import grpc
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession
        from pyspark.sql.connect.client import DefaultChannelBuilder
    except ImportError as error:
        raise Permanent(f"unable to load what Spark Connect needs: {_line(error)}; {_EXTRA}") from error
    try:
        channel = DefaultChannelBuilder(url).toChannel()
    except (PySparkException, ValueError) as error:
        raise Usage(f"unable to use --remote {url}: {_line(error)}; expected {SCHEME}HOST:PORT") from error
    try:
        grpc.channel_ready_future(channel).result(PATIENCE)
    except grpc.FutureTimeoutError as error:
        why = f"no Spark Connect server answers within {PATIENCE:g} s"
        raise Temporary(f"unable to reach {url}: {why}; start it (docs/cluster.md), then run this again") from error
    finally:
        channel.close()
    name = ""
    try:
        session = SparkSession.builder.remote(url).create()
        for name, value in {**needed, **wanted}.items():
            session.conf.set(name, value)
    except PySparkException as error:
        if (error.getCondition() or "").startswith("CANNOT_MODIFY_CONFIG"):
            raise Usage(f"--conf {name}: it is a setting of the server's; give it to {url} when that starts") from error
        raise Temporary(f"unable to use {url}: {_line(error)}; run it again") from error
    return session


def _line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
