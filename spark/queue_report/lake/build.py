"""One build: what is new in the logs goes into the lake, in one stage of Spark's and one version of the lake.

The driver looks for the streams, gives them to tasks as bins of about equal size, and commits what these have written.
Then old dates are dropped and small files put together, each a version of its own. If nothing is new, nothing is
written. A build that is beaten by another one looks again, and takes what that has left.
"""

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any, Protocol, TypeVar

from queue_base.errors import Failure, Permanent, Temporary, reason
from queue_report.lake.data_files import RowWriter, read_files, read_streams, undo
from queue_report.lake.lake import Conflict, Lake, Unsettled, Written, make_lake, open_lake
from queue_report.lake.old import take_over
from queue_report.lake.stage import Stage, StreamResult, StreamTask, TaskResult, match_task, without
from queue_report.logs.reading import find_new
from queue_report.logs.streams import SourceError, Stream, StreamLogs, find_streams
from queue_report.runtime.errors import JAVA_ERRORS, java_reason
from queue_report.runtime.files import Files, open_files, store_settings
from queue_report.runtime.progress import Progress

Task = TypeVar("Task")
Result = TypeVar("Result")

SMTPD_QUEUE = "queue-smtpd"
# So many bins a core keep all cores at work to the end.
_BINS = 3
# A bin of less than this costs more than it wins, in bytes.
_LEAST = 1 << 20
_TRIES = 5


class Runner(Protocol):
    """What runs the tasks of a build: runtime.session.Sessions, which begins a session of Spark for the first ones."""

    def cores(self) -> int:
        """Return how many tasks run at once."""

    def application(self) -> str:
        """Return the id of the application of Spark's."""

    def run(self, work: Callable[[Task], Result], tasks: Sequence[Task], progress: Progress) -> Iterable[Result]:
        """Yield what work makes of each task, in any order."""


@dataclass(frozen=True)
class Order:
    """What a build is to do. expire: days, None for never. host, queue: names for streams whose path tells none.

    smtpd_log: the log of queue-smtpd, if it is not among the logs; where its path tells none, its queue is SMTPD_QUEUE.
    settings: Spark's own that were asked for.
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

    warnings: logs that could not be read, or are out of order. version: of the lake after it. application: the id of
    Spark's, and tasks: how many its stage had; where nothing was new there was none.
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
    version: int = 0
    application: str = ""
    tasks: int = 0


def build(order: Order, runner: Runner, progress: Progress) -> Summary:
    """Build a lake from logs. Raises Permanent or Temporary, whose text tells what the lake has then.

    progress.phase is called before each phase.
    """
    begun = time.monotonic()
    work = _Build(order, runner, progress)
    try:
        summary = work.run()
    except SourceError as error:
        raise Permanent(f"unable to read logs {order.logs}: {error}; the lake is as it was") from error
    except (Conflict, OSError, *JAVA_ERRORS) as error:
        if isinstance(error, Conflict):
            why = "another build is at work on it"
        else:
            why = reason(error) if isinstance(error, OSError) else java_reason(error)
        trouble = f"unable to build lake {order.lake}: {why}"
        raise Temporary(f"{trouble}; {work.standing}, run this again to go on") from error
    summary.seconds = time.monotonic() - begun
    return summary


class _Build:
    """A build at work. standing: what of it counts if it ends now, in words."""

    def __init__(self, order: Order, runner: Runner, progress: Progress) -> None:
        self._order, self._runner, self._progress = order, runner, progress
        self._store = store_settings(order.settings)
        self.standing = "it is as it was"

    def run(self) -> Summary:
        order, phase = self._order, self._progress.phase
        phase("looking at the lake")
        roots = [self._open_logs(order.logs)]
        if order.smtpd_log is not None:
            roots.append(self._open_logs(order.smtpd_log))
        for logs in roots:
            _keep_apart(open_files(order.lake, self._store), logs)
        _look_for(roots[0])
        lake = make_lake(order.lake, self._store)
        # The build that made this version may have died before it was safe.
        lake.make_safe()
        lake = take_over(lake, phase)
        for attempt in range(_TRIES):
            try:
                lake, summary = self._add(lake, roots)
                break
            except Conflict:
                if attempt + 1 == _TRIES:
                    raise
                lake = open_lake(order.lake, self._store)
        self.standing = "what was new in the logs is in it"
        if order.expire is not None:
            phase("dropping old dates")
            before, after = lake, lake.expire(order.expire)
            if after is not None:
                summary.expired = sum(len(before.tables[name]) - len(after.tables[name]) for name in before.tables)
                lake = after
        if order.compact:
            phase("putting small files together")
            summary.compacted = lake.compact()
            phase("removing what does not count")
            lake.vacuum()
        summary.version = lake.delta.version()
        return summary

    def _open_logs(self, path: str) -> Files:
        try:
            return open_files(path, self._store)
        except OSError as error:
            raise SourceError(reason(error)) from error

    def _add(self, lake: Lake, roots: Sequence[Files]) -> tuple[Lake, Summary]:
        """Read what is new. Returns the lake after it. Raises Conflict."""
        self._progress.phase("looking at the logs")
        summary = Summary()
        known = read_streams(lake)
        tasks, sizes = self._find(roots, known, summary)
        if not tasks:
            return lake, summary
        done = self._match(lake, tasks, sizes)
        summary.application, summary.tasks = self._runner.application(), len(done)
        results = [one for task in done for one in task.streams]
        changed = {one.stream for one in results if one.changed and not one.trouble}
        _sum_up(summary, results, known)
        written = [one for task in done for one in task.written]
        if not changed:
            if not known:
                _refuse_all(results, roots[0])
            return lake, summary
        for one in written:
            if one.table != "streams":
                summary.rows[one.table] = summary.rows.get(one.table, 0) + one.rows
        return self._commit(lake, written, changed, f"read {describe_lines(summary)}"), summary

    def _commit(self, lake: Lake, written: list[Written], changed: set[Stream], done: str) -> Lake:
        """Return the next version, with what was written. Raises Conflict, OSError."""
        try:
            self._progress.phase("writing what is open")
            kept, removed = _replace(lake, changed)
            written = [*written, *kept]
            self._progress.phase("committing")
            return lake.commit(written, removed, done)
        except Unsettled as error:
            self.standing = error.standing
            raise
        except (Conflict, Failure, OSError):
            undo(lake.files, written)
            raise

    def _find(
        self, roots: Sequence[Files], known: Mapping[Stream, Any], summary: Summary
    ) -> tuple[list[StreamTask], list[int]]:
        """Return the streams that may have something new, and about how many bytes that is, the largest first."""
        found: dict[Stream, tuple[Files, StreamLogs]] = {}
        for number, logs in enumerate(roots):
            queue = self._order.queue if not number else SMTPD_QUEUE
            try:
                for stream, one in find_streams(logs, self._order.host, queue, summary.warnings).items():
                    found.setdefault(stream, (logs, one))
            except (SourceError, OSError) as error:
                why = str(error) if isinstance(error, SourceError) else _say(error, logs)
                if number:
                    summary.warnings.append(f"unable to read logs {logs.root}: {why}; the rest was read")
                    continue
                if isinstance(error, SourceError):
                    raise
                why = f"unable to read logs {logs.root}: {why}; the lake is as it was, run this again to go on"
                raise Temporary(why) from error
        tasks = []
        for stream, (logs, one) in found.items():
            state = known.get(stream, {})
            size = find_new(state, one.logs)
            if size is not None:
                tasks.append((size, StreamTask(stream, logs, one.below, state)))
        tasks.sort(key=lambda pair: pair[0], reverse=True)
        return [task for _, task in tasks], [size for size, _ in tasks]

    def _match(self, lake: Lake, tasks: Sequence[StreamTask], sizes: Sequence[int]) -> list[TaskResult]:
        """Have Spark match the streams."""
        self._progress.phase("starting Spark")
        bins = share(tasks, sizes, self._runner.cores() * _BINS)
        today = datetime.now(UTC).date()
        stage = Stage(lake.files, lake.tables["pending"], lake.tables["lines"], today)
        self._progress.phase("matching lines")
        self._progress.expect(sum(sizes))
        done = list(self._runner.run(partial(match_task, stage), bins, self._progress))
        failed = next((one for one in done if isinstance(one, Exception)), None)
        if failed is not None:
            undo(lake.files, (one for task in done if isinstance(task, TaskResult) for one in task.written))
            raise failed
        return [one for one in done if isinstance(one, TaskResult)]


def _refuse_all(results: Sequence[StreamResult], logs: Files) -> None:
    """Raise what is wrong with the first stream that could not be read."""
    trouble = next((one for one in results if one.trouble), None)
    if trouble is None:
        return
    if trouble.missing:
        raise SourceError(trouble.trouble)
    raise Temporary(f"unable to read logs {logs.root}: {trouble.trouble}; the lake is as it was")


def describe_lines(summary: Summary) -> str:
    """Return how much was read, in words."""
    total = sum(summary.lines.values())
    streams = "1 queue" if summary.streams == 1 else f"{summary.streams:,} queues"
    files = "1 file" if summary.files == 1 else f"{summary.files:,} files"
    return f"{total:,} lines of {streams} ({files}, {summary.bytes / 1e6:,.1f} MB)"


def share(tasks: Sequence[StreamTask], sizes: Sequence[int], most: int) -> list[list[StreamTask]]:
    """Return streams as bins of about equal size, at most so many; the largest streams come first."""
    count = max(1, min(most, len(tasks), -(-sum(sizes) // _LEAST)))
    bins: list[list[StreamTask]] = [[] for _ in range(count)]
    filled = [0] * count
    for task, size in zip(tasks, sizes, strict=True):
        least = min(range(count), key=filled.__getitem__)
        bins[least].append(task)
        filled[least] += size + 1
    return bins


def _replace(lake: Lake, changed: set[Stream]) -> tuple[list[Written], list[str]]:
    """Return the files of `pending` and `streams` that go, and new ones with what they have of other streams."""
    writer, removed = RowWriter(lake.files, datetime.now(UTC).date()), []
    for table in ("pending", "streams"):
        for path in lake.tables[table]:
            there = read_files(lake.files, table, [path], ["host", "queue"])
            left = without(there, changed).num_rows
            if left == there.num_rows:
                continue
            removed.append(path)
            if left:
                for batch in without(read_files(lake.files, table, [path]), changed).combine_chunks().to_batches():
                    writer.add({table: batch})
    return writer.close(), removed


def _sum_up(summary: Summary, results: Sequence[StreamResult], known: Mapping[Stream, Any]) -> None:
    whose = {one[2]: stream for stream, state in known.items() for one in state.get("files", {}).values()}
    for one in sorted(results, key=lambda one: one.stream):
        if one.trouble:
            summary.warnings.append(f"queue {one.stream[1]} of host {one.stream[0]} is left as it was: {one.trouble}")
            continue
        summary.warnings += one.warnings
        summary.files += one.files
        summary.bytes += one.bytes
        summary.streams += bool(one.counts)
        summary.lines = dict(Counter(summary.lines) + Counter(one.counts))
        copied = next((whose[head] for head in one.heads if whose.get(head, one.stream) != one.stream), None)
        if copied is not None and one.stream not in known:
            summary.warnings.append(
                f"{'/'.join(one.stream)} has the same log as {'/'.join(copied)}: "
                "each counts as a queue of its own; give one of them"
            )
        whose |= dict.fromkeys(one.heads, one.stream)


def _say(error: OSError, logs: Files) -> str:
    name = str(error.filename or "").rstrip("/")
    return f"{name}: {reason(error)}" if name not in ("", logs.root) else reason(error)


def _look_for(logs: Files) -> None:
    """Raise SourceError where there are no such logs: a name that is misspelt makes no lake."""
    try:
        logs.list()
    except FileNotFoundError as error:
        raise SourceError(reason(error)) from error
    except OSError:
        # They are looked at again, and then what is wrong is told.
        return


def _keep_apart(lake: Files, logs: Files) -> None:
    """Raise Permanent where the lake is in the logs: the next build would read it."""
    one, two = (os.path.realpath(files.root) if files.root.startswith("/") else files.root for files in (lake, logs))
    if (one + "/").startswith(two.rstrip("/") + "/"):
        raise Permanent(f"unable to build lake {lake.root}: it is inside the logs; name a directory elsewhere")
