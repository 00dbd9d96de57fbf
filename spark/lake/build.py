"""One build: what is new in the logs goes into the lake; then old dates are dropped and small files put together.

Each of these is an update of its own, which takes effect as a whole. If nothing is new, nothing is written.
"""

import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple, Protocol

from queue_base.errors import Permanent, Temporary, Usage, reason
from spark.lake.batch import DRIVER_BYTES, Batch, Before, finish, match_by_spark, match_here
from spark.lake.compact import Group, groups, put_together
from spark.lake.expire import expired
from spark.lake.lock import locked
from spark.lake.manifest import Manifest, add_counts
from spark.lake.matching import Home
from spark.lake.pending import Pending
from spark.lake.update import Update, make_lake, prepare
from spark.logs.plan import Plan, SourceError
from spark.logs.sources import plan
from spark.runtime.places import Place, below, open_place
from spark.runtime.progress import Progress
from spark.tables.columns import COLUMNS, PARTITIONED

# pyspark takes long to import, and a small build or a report of DuckDB's does without it.
if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Spark's setting of how many bytes of logs the driver matches itself.
DRIVER_SETTING = "spark.queueReport.driverBytes"
SMTPD_QUEUE = "queue-smtpd"


class SessionSource(Protocol):
    """What begins a session of Spark when it is first asked for one, as runtime.session.Sessions does."""

    def get(self) -> "SparkSession":
        """Return the session."""


@dataclass(frozen=True)
class Order:
    """What a build is to do. expire: days, None for never. host, queue: names for streams whose path tells none.

    smtpd_log: the log of queue-smtpd, if it is not among the logs; where its path tells none, its queue is SMTPD_QUEUE.
    settings: Spark's own that were asked for, with its master if one was named.
    """

    logs: str
    lake: str
    host: str | None = None
    queue: str | None = None
    expire: int | None = None
    compact: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)
    smtpd_log: str | None = None


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


def build(order: Order, sessions: SessionSource, progress: Progress) -> Summary:
    """Build a lake from logs. Raises Permanent or Temporary, whose text tells what the lake has then.

    sessions: asked for a session only where Spark is needed: for many logs, or for another file system. progress.phase
    is called before each phase.
    """
    begun = time.monotonic()
    work = _Build(order, sessions, progress)
    try:
        summary = work.run()
    except SourceError as error:
        raise Permanent(f"unable to read logs {order.logs}: {error}; the lake is as it was") from error
    except Exception as error:
        why = reason(error) if isinstance(error, OSError) else _java_reason(error)
        if why is None:
            raise
        trouble = f"unable to build lake {order.lake}: {why}"
        raise Temporary(f"{trouble}; {work.standing}, run this again to go on") from error
    summary.seconds = time.monotonic() - begun
    return summary


def _java_reason(error: Exception) -> str | None:
    """Return why a call of Java failed; None for another error. Without Java nothing is loaded for it."""
    if "py4j" not in sys.modules:
        return None
    from spark.runtime.errors import JAVA_ERRORS, java_reason

    return java_reason(error) if isinstance(error, JAVA_ERRORS) else None


def _driver_bytes(settings: Mapping[str, str]) -> int:
    """Return how many bytes of logs the driver matches itself. Raises Usage."""
    asked = settings.get(DRIVER_SETTING, str(DRIVER_BYTES))
    if not (asked.isascii() and asked.isdecimal() and len(asked) < 20):
        raise Usage(f"--conf {DRIVER_SETTING}={asked}: it must be a number of bytes")
    return int(asked)


class _Change(NamedTuple):
    """An update in the words of an error: what is so without it, and with it."""

    without: str
    done: str


_BATCH = _Change("it is as it was", "what was new in the logs is in it")
_EXPIRY = _Change(f"{_BATCH.done}, and no old dates were dropped", "old dates were dropped")
_COMPACTION = _Change(f"{_BATCH.done}, and no small files were put together", "small files were put together")


class _Build:
    """A build at work. standing: what of it counts if it ends now, in words."""

    def __init__(self, order: Order, sessions: SessionSource, progress: Progress) -> None:
        self._order, self._sessions, self._progress = order, sessions, progress
        self._summary = Summary()
        self._driver_bytes = _driver_bytes(order.settings)
        self.standing = _BATCH.without

    def run(self) -> Summary:
        order = self._order
        self._logs = self._open_logs(order.logs)
        others = [] if order.smtpd_log is None else [self._open_logs(order.smtpd_log)]
        self._lake = self._open(order.lake)
        for each in (self._logs, *others):
            self._keep_apart(each)
        make_lake(self._lake)
        with locked(self._lake):
            self._progress.phase("looking at the lake")
            manifest = self._add(prepare(self._lake), order.queue)
            for each in others:
                self._logs = each
                manifest = self._add_other(manifest)
            if self._order.expire is not None:
                self._progress.phase("dropping old dates")
                manifest = self._expire(manifest, self._order.expire)
            if self._order.compact:
                self._progress.phase("putting small files together")
                self._compact(manifest)
        return self._summary

    def _open_logs(self, path: str) -> Place:
        try:
            return self._open(path)
        except OSError as error:
            # Nothing was asked of it yet: it is no file system that Spark knows.
            raise SourceError(reason(error)) from error

    def _open(self, path: str) -> Place:
        return open_place(path, self._session, self._order.settings)

    def _session(self) -> "SparkSession":
        self._progress.phase("starting Spark")
        session = self._sessions.get()
        self._progress.watch(session)
        return session

    def _keep_apart(self, logs: Place) -> None:
        """Raise Permanent where the lake is in the logs: the next build would read it."""
        lake = self._lake.root
        places = [(lake, logs.root)]
        if self._lake.local is not None and logs.local is not None:
            places.append((os.path.realpath(self._lake.local), os.path.realpath(logs.local)))
        if any((one + "/").startswith(below.rstrip("/") + "/") for one, below in places):
            raise Permanent(f"unable to build lake {lake}: it is inside the logs; name a directory elsewhere")

    def _add_other(self, manifest: Manifest) -> Manifest:
        """Read what is new in the log of queue-smtpd. If it cannot be read, that is a warning: the rest is done."""
        try:
            return self._add(manifest, SMTPD_QUEUE)
        except (SourceError, Temporary) as error:
            why = f"unable to read logs {self._logs.root}: {error}" if isinstance(error, SourceError) else str(error)
            self._summary.warnings.append(f"{why}; {_BATCH.done}, but for that log")
            return manifest

    def _add(self, manifest: Manifest, queue: str | None) -> Manifest:
        """Read what is new. Returns the lake's manifest after it."""
        with self._updating(manifest, _BATCH) as update:
            self._progress.phase("looking at the logs")
            copies = below(self._lake, update.home("copies"))
            wanted = plan(self._logs, dict(manifest.state), copies, self._order.host, queue)
            batch = Batch({}, {}, wanted.state, wanted.warnings)
            if wanted.streams:
                batch = self._match(update, wanted, manifest)
            self._summary.warnings += batch.warnings
            if not batch.counts and batch.state == manifest.state and not update.doomed:
                update.abandon()
                return manifest
            self._progress.phase("moving files in")
            update.move(batch.files)
            self._progress.phase("writing the manifest")
            after = update.commit(batch.state, add_counts(manifest.counts, batch.counts))
        self._sum_up(wanted, batch)
        self._clean(update)
        return after

    @contextmanager
    def _updating(self, manifest: Manifest, change: _Change) -> Iterator[Update]:
        """Make an update; abandon it where that fails, and tell in `standing` what counts then."""
        self.standing = change.without
        update = Update(self._lake, manifest)
        try:
            yield update
        except (Exception, KeyboardInterrupt):
            in_force = update.abandon()
            if in_force is None:
                self.standing = f"nobody can tell now whether {change.done}"
            elif in_force:
                self.standing = change.done + ("" if update.is_safe else ", but a power cut may undo that")
            raise

    def _clean(self, update: Update) -> None:
        """Remove what nobody needs after a commit; where that fails, the next build does it."""
        self._progress.phase("cleaning up")
        try:
            update.clean()
        except OSError as error:
            name = error.filename or self._order.lake
            why = f"unable to clean up {name}: {reason(error)}; what was new is in the lake, the next build cleans up"
            self._summary.warnings.append(why)

    def _match(self, update: Update, wanted: Plan, manifest: Manifest) -> Batch:
        """Write the rows of what is new into the update's directory."""
        rows = dict.fromkeys(COLUMNS, 0)
        today = datetime.now(UTC).date()
        lines = tuple(manifest.tables.get("lines", ()))
        open_ones = list(manifest.tables.get("pending", ()))
        phase = self._progress.phase
        if self._logs.local is None or self._lake.local is None:
            from spark.lake.elsewhere import match_elsewhere

            session = self._session()
            phase("matching lines")
            batch = match_elsewhere(session, self._logs, self._lake, update, wanted, manifest, today, phase)
        else:
            home = Home(os.path.join(self._lake.local, update.home()), today)
            before = Before(self._lake.local, Pending.open(self._lake.local, open_ones), lines, manifest.state)
            if wanted.bytes <= self._driver_bytes:
                phase("matching lines")
                results = match_here(wanted, before, home)
            else:
                session = self._session()
                phase("matching lines")
                results = match_by_spark(wanted, before, home, self._logs, session, phase)
            batch = finish(results, wanted, before, home, rows, phase)
        if batch.counts:
            # pending is all that is open now; the rest is added to.
            update.drop("pending", open_ones)
        elif not any(batch.state[name] != manifest.state.get(name) for name in batch.state):
            raise Temporary(f"unable to read logs {self._logs.root}: {batch.warnings[0]}; the lake is as it was")
        return batch

    def _sum_up(self, wanted: Plan, batch: Batch) -> None:
        summary = self._summary
        summary.files += wanted.files
        summary.bytes += wanted.bytes
        for kinds in batch.counts.values():
            summary.lines = add_counts({"": summary.lines}, {"": kinds})[""]
        summary.streams += len(batch.counts)
        for table, rows in batch.rows.items():
            # What is pending is written anew each time.
            summary.rows[table] = rows if table == "pending" else summary.rows.get(table, 0) + rows

    def _expire(self, manifest: Manifest, days: int) -> Manifest:
        old = expired(manifest.tables, days, datetime.now(UTC).date())
        self._summary.expired = sum(len(paths) for paths in old.values())
        if not self._summary.expired:
            return manifest
        with self._updating(manifest, _EXPIRY) as update:
            for table, paths in old.items():
                update.drop(table, paths)
            after = update.commit(manifest.state, manifest.counts)
        self._clean(update)
        return after

    def _compact(self, manifest: Manifest) -> None:
        found = groups(manifest.tables, PARTITIONED)
        if not found:
            return
        with self._updating(manifest, _COMPACTION) as update:
            for group in found:
                self._progress.phase(f"putting {group.table} together")
                self._put_together(update, manifest, group)
                update.drop(group.table, group.paths)
                self._summary.compacted += len(group.paths)
            self._progress.phase("moving files in")
            update.move()
            self._progress.phase("writing the manifest")
            update.commit(manifest.state, manifest.counts)
        self._clean(update)

    def _put_together(self, update: Update, manifest: Manifest, group: Group) -> None:
        if self._lake.local is not None:
            home = os.path.join(self._lake.local, update.home())
            put_together(self._lake.local, home, group, manifest.tables[group.table])
            return
        from spark.lake.elsewhere import put_together_by_spark

        put_together_by_spark(self._session(), self._lake, update, group)
