"""One build: what is new in the logs goes into the lake; then old dates are dropped and small files put together.

Each of these is an update of its own, whole or not there. Nothing new, and nothing is written.
"""

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from queue_base.errors import Permanent, Temporary, reason
from spark.lake.compact import groups, rearrange
from spark.lake.expire import expired
from spark.lake.lock import locked
from spark.lake.manifest import Manifest, add_counts
from spark.lake.schema import TABLES
from spark.lake.storage import Storage
from spark.lake.store import PARTITIONED, read_table, read_tables
from spark.lake.update import Update, make_lake, prepare
from spark.logs.plan import Plan, SourceError
from spark.logs.sources import plan
from spark.runtime.progress import Progress
from spark.runtime.trouble import JAVA_ERRORS, java_reason
from spark.windows.match import Batch, make_batch
from spark.windows.reasons import describe

# Up to so many bytes of logs each table's rows of a batch are written by one task, so as one file a date and host.
ONE_TASK = 32 << 20
# So many tables are written at once.
_WRITERS = 3


@dataclass(frozen=True)
class Order:
    """What a build is to do. expire: days, None for never. host, queue: names for streams whose path tells none."""

    logs: str
    lake: str
    host: str | None = None
    queue: str | None = None
    expire: int | None = None
    compact: bool = False


@dataclass
class Summary:
    """What a build did: lines read by kind (see docs/logs.md), files and bytes, rows added by table, files dropped."""

    files: int = 0
    bytes: int = 0
    lines: dict[str, int] = field(default_factory=dict)
    streams: int = 0
    rows: dict[str, int] = field(default_factory=dict)
    expired: int = 0
    compacted: int = 0
    seconds: float = 0.0


def build(session: SparkSession, order: Order, progress: Progress) -> Summary:
    """Build a lake from logs. Raises Permanent or Temporary; then the lake is as it was, or as its last update left it.

    progress.phase is called before each phase.
    """
    begun = time.monotonic()
    summary = Summary()
    try:
        storage = Storage(session, order.lake)
        _keep_apart(session, order.logs, storage)
        make_lake(storage)
        with locked(storage):
            progress.phase("looking at the lake")
            manifest = prepare(storage)
            manifest = _add(session, storage, manifest, order, progress, summary)
            if order.expire is not None:
                progress.phase("dropping old dates")
                manifest = _expire(storage, manifest, order.expire, summary)
            if order.compact:
                progress.phase("putting small files together")
                manifest = _compact(session, storage, manifest, progress, summary)
    except SourceError as error:
        raise Permanent(f"unable to read logs {order.logs}: {error}; the lake is as it was") from error
    except (OSError, *JAVA_ERRORS) as error:
        why = reason(error) if isinstance(error, OSError) else java_reason(error)
        raise Temporary(
            f"unable to build lake {order.lake}: {why}; it is as it was, run this again to go on"
        ) from error
    summary.seconds = time.monotonic() - begun
    return summary


def _add(
    session: SparkSession, storage: Storage, manifest: Manifest, order: Order, progress: Progress, summary: Summary
) -> Manifest:
    """Read what is new. Returns the lake's manifest after it."""
    update = Update(storage, manifest)
    try:
        progress.phase("looking at the logs")
        wanted = plan(session, order.logs, dict(manifest.state), update.scratch(), order.host, order.queue)
        if not wanted.pieces and wanted.state == manifest.state and not update.doomed:
            update.abandon()
            return manifest
        counts: Mapping[str, Mapping[str, int]] = {}
        state = wanted.state
        if wanted.pieces:
            progress.phase("reading lines")
            batch = make_batch(session, wanted, read_tables(session, storage, manifest) if manifest.number else None)
            _stage(update, batch, wanted, manifest, progress, summary)
            counts, state = batch.counts, batch.state
        progress.phase("moving files in")
        update.move()
        progress.phase("writing the manifest")
        after = update.commit(state, add_counts(manifest.counts, counts))
        progress.phase("cleaning up")
        update.clean()
    except (Exception, KeyboardInterrupt):
        update.abandon()
        raise
    summary.files, summary.bytes = len({piece.file for piece in wanted.pieces}), wanted.bytes
    for kinds in counts.values():
        summary.lines = add_counts({"": summary.lines}, {"": kinds})[""]
    summary.streams = len(counts)
    return after


def _stage(
    update: Update, batch: Batch, wanted: Plan, manifest: Manifest, progress: Progress, summary: Summary
) -> None:
    """Write a batch's tables aside."""
    frames = batch._asdict() | {"deliveries": describe(batch.deliveries)}

    def write(table: str) -> int:
        progress.phase(f"writing {table}")
        counted = Observation()
        frame = _arrange(fit(frames[table], table), table, wanted.bytes)
        update.stage(table, frame.observe(counted, F.count(F.lit(1)).alias("rows")))
        return int(counted.get["rows"])

    # Spark plans one while it writes another.
    with ThreadPoolExecutor(_WRITERS) as pool:
        summary.rows |= zip(TABLES, pool.map(write, TABLES), strict=True)
    # pending is all that is open now; the rest is added to.
    update.drop("pending", manifest.tables.get("pending", {}))


def fit(frame: DataFrame, table: str) -> DataFrame:
    """Return a frame in the columns of a table's schema, null where it has none. Lines without a date get today's."""
    fitted = frame.to(TABLES[table])
    if table == "quarantine":
        today = F.lit(datetime.now(UTC).date())
        fitted = fitted.withColumn("date", F.coalesce("date", today))
    return fitted


def _arrange(frame: DataFrame, table: str, size: int) -> DataFrame:
    """Distribute rows so that few files are written: one of each date and host, unless there is a lot."""
    if size <= ONE_TASK:
        return frame.coalesce(1)
    return frame.hint("rebalance", "date", "host") if table in PARTITIONED else frame.hint("rebalance")


def _expire(storage: Storage, manifest: Manifest, days: int, summary: Summary) -> Manifest:
    old = expired(manifest.tables, days, datetime.now(UTC).date())
    summary.expired = sum(len(paths) for paths in old.values())
    if not summary.expired:
        return manifest
    update = Update(storage, manifest)
    for table, paths in old.items():
        update.drop(table, paths)
    after = update.commit(manifest.state, manifest.counts)
    update.clean()
    return after


def _compact(
    session: SparkSession, storage: Storage, manifest: Manifest, progress: Progress, summary: Summary
) -> Manifest:
    found = groups(manifest.tables, PARTITIONED)
    if not found:
        return manifest
    update = Update(storage, manifest)
    try:
        for group in found:
            progress.phase(f"putting {group.table} together")
            update.stage(group.table, rearrange(read_table(session, storage, group.table, list(group.paths)), group))
            update.drop(group.table, group.paths)
            summary.compacted += len(group.paths)
        progress.phase("moving files in")
        update.move()
        progress.phase("writing the manifest")
        after = update.commit(manifest.state, manifest.counts)
        progress.phase("cleaning up")
        update.clean()
    except (Exception, KeyboardInterrupt):
        update.abandon()
        raise
    return after


def _keep_apart(session: SparkSession, logs: str, storage: Storage) -> None:
    """Raise Permanent where the lake is in the logs: the next build would read it."""
    try:
        above = Storage(session, logs).root.rstrip("/") + "/"
    except OSError as error:
        # Nothing was asked of it yet: it is no file system that Spark knows.
        raise SourceError(reason(error)) from error
    if (storage.root + "/").startswith(above):
        raise Permanent(f"unable to build lake {storage.root}: it is inside the logs; name a directory elsewhere")
