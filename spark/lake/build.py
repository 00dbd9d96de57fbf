"""One build: what is new in the logs goes into the lake; then old dates are dropped and small files put together.

Each of these is an update of its own, whole or not there. Nothing new, and nothing is written.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

from queue_base.errors import Permanent, Temporary, reason
from spark.lake.batch import DRIVER_BYTES, Batch, Before, finish, match_by_spark, match_here
from spark.lake.columns import COLUMNS, PARTITIONED
from spark.lake.compact import Group, groups, put_together
from spark.lake.expire import expired
from spark.lake.lock import locked
from spark.lake.manifest import Manifest, add_counts
from spark.lake.matching import Home
from spark.lake.parquet import read_files
from spark.lake.update import Update, make_lake, prepare
from spark.logs.plan import Plan, SourceError
from spark.logs.sources import plan
from spark.runtime.places import LocalPlace, Place, open_place
from spark.runtime.progress import Progress
from spark.runtime.trouble import call_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Spark's setting of how many bytes of logs the driver matches itself.
DRIVER_SETTING = "spark.queueReport.driverBytes"


class Sessions(Protocol):
    """Who has a session of Spark, begun as it is first asked for (runtime.session.Sessions)."""

    def get(self, *, little: bool = False) -> "SparkSession":
        """Return the session."""


@dataclass(frozen=True)
class Order:
    """What a build is to do. expire: days, None for never. host, queue: names for streams whose path tells none.

    settings: Spark's own that were asked for, with its master if one was named.
    """

    logs: str
    lake: str
    host: str | None = None
    queue: str | None = None
    expire: int | None = None
    compact: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Summary:
    """What a build did: lines read by kind (see docs/logs.md), files and bytes, rows added by table, files dropped.

    warnings: logs that could not be read, or are out of order.
    """

    files: int = 0
    bytes: int = 0
    lines: dict[str, int] = field(default_factory=dict)
    streams: int = 0
    rows: dict[str, int] = field(default_factory=dict)
    expired: int = 0
    compacted: int = 0
    seconds: float = 0.0
    warnings: list[str] = field(default_factory=list)


def build(order: Order, sessions: Sessions, progress: Progress) -> Summary:
    """Build a lake from logs. Raises Permanent or Temporary; then the lake is as it was, or as its last update left it.

    sessions: asked for a session only where Spark is needed: for many logs, or for another file system. progress.phase
    is called before each phase.
    """
    begun = time.monotonic()
    summary = Summary()
    with call_java(_Trouble(order)):
        _Build(order, sessions, progress, summary).run()
    summary.seconds = time.monotonic() - begun
    return summary


class _Trouble:
    """What a failure is told as."""

    def __init__(self, order: Order) -> None:
        self._order = order

    def source(self, error: SourceError) -> Permanent:
        return Permanent(f"unable to read logs {self._order.logs}: {error}; the lake is as it was")

    def lake(self, why: str) -> Temporary:
        return Temporary(f"unable to build lake {self._order.lake}: {why}; it is as it was, run this again to go on")
