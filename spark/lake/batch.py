"""A batch: what is new in the logs becomes rows in the build's own directory. In this process, or by Spark's executors.

Where logs and lake are directories that Python can open (here, or mounted everywhere), Python writes the files. Where
they are not, Spark reads the logs and writes the rows (spark.lake.elsewhere).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from spark.lake.matching import (
    Home,
    Outcome,
    StreamResult,
    by_host,
    join_stream,
    match_segment,
    match_stream,
    seen_lines,
)
from spark.lake.parquet import TableWriter
from spark.lake.pending import OpenRows, Pending, forget_rows
from spark.logs.plan import Plan, State, Stream
from spark.logs.segments import Segment, choose_size, cut
from spark.runtime.places import Place

# pyspark takes long to import, and a small build or a report of DuckDB's does without it.
if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Up to so many bytes of logs are matched by the driver: Spark takes longer to begin than they take.
DRIVER_BYTES = 160 << 20
# Edges of more bytes than this in all are joined by executors.
EDGES_MAX = 64 << 20
# Segments of less than a task's share are given to one task.
_TASK_BYTES = 16 << 20


@dataclass
class Batch:
    """What a batch added: rows by table, lines by kind and stream, the state for the manifest, and warnings.

    files: tables and paths of what was written; None for all that is in the update's directory.
    """

    rows: dict[str, int]
    counts: dict[str, dict[str, int]]
    state: State
    warnings: list[str] = field(default_factory=list)
    files: set[tuple[str, str]] | None = None


@dataclass(frozen=True)
class Before:
    """What was there before a batch: the table `pending`, the data files of `lines`, the manifest's state."""

    lake: str
    pending: Pending
    lines: tuple[str, ...]
    state: Mapping[str, Any]


def match_here(wanted: Plan, before: Before, home: Home) -> Iterable[StreamResult]:
    """Match each stream in one go, in this process."""
    lines = by_host(before.lines)
    for stream, parts in wanted.streams.items():
        seen = seen_lines(stream, before.lake, lines)
        segment = Segment(stream, 0, tuple(parts))
        yield match_stream(home, segment, before.pending.of(stream), mark_of(before, stream), seen)


def match_by_spark(
    wanted: Plan, before: Before, home: Home, logs: Place, session: "SparkSession", phase: Callable[[str], None]
) -> Iterable[StreamResult]:
    """Match the segments of all streams side by side, in one job of Spark's; join those of each stream."""
    from spark.runtime.executors import cores, run_on_executors

    size = choose_size(wanted.bytes, cores(session))
    return match_apart(wanted, before, home, logs, size, partial(run_on_executors, session), phase)


def match_apart(
    wanted: Plan,
    before: Before,
    home: Home,
    logs: Place,
    size: int,
    run: Callable[[Callable[[Any], Any], Sequence[Any]], Iterable[Any]],
    phase: Callable[[str], None],
) -> Iterable[StreamResult]:
    """Match segments of about `size` bytes, each with an unknown beginning; join those of each stream.

    run: does something for many tasks, side by side, and gives what comes of each, in any order.
    """
    segments = [one for stream, parts in wanted.streams.items() for one in cut(logs, stream, parts, size)]
    found: dict[Stream, list[Outcome]] = {stream: [] for stream in wanted.streams}
    for outcomes in run(_Match(home), group_segments(segments, _TASK_BYTES)):
        for outcome in outcomes:
            found[outcome.segment.stream].append(outcome)
    phase("joining segments")
    lines = by_host(before.lines)
    joins = [
        _Join(
            home,
            stream,
            before.pending.of(stream),
            mark_of(before, stream),
            tuple(sorted(outcomes, key=lambda one: one.segment.number)),
            seen_lines(stream, before.lake, lines),
        )
        for stream, outcomes in found.items()
    ]
    edges = sum(len(one.edge) for outcomes in found.values() for one in outcomes if isinstance(one.edge, bytes))
    large = any(isinstance(one.edge, str) for outcomes in found.values() for one in outcomes)
    if len(joins) > 1 and (large or edges > EDGES_MAX):
        yield from run(_run_join, joins)
    else:
        yield from map(_run_join, joins)


@dataclass(frozen=True)
class _Match:
    """What an executor does with a group of segments."""

    home: Home

    def __call__(self, segments: Sequence[Segment]) -> list[Outcome]:
        return [match_segment(self.home, segment) for segment in segments]


@dataclass(frozen=True)
class _Join:
    home: Home
    stream: Stream
    pending: OpenRows
    mark: Mapping[str, Any]
    outcomes: tuple[Outcome, ...]
    seen: Any


def _run_join(join: _Join) -> StreamResult:
    return join_stream(join.home, join.stream, join.pending, join.mark, join.outcomes, join.seen)


def mark_of(before: Before, stream: Stream) -> Mapping[str, Any]:
    """Return what the manifest keeps of a stream."""
    found: Mapping[str, Any] = before.state.get("/".join(stream), {})
    return found


def group_segments(segments: Iterable[Segment], size: int) -> list[list[Segment]]:
    """Return segments as groups for tasks, the largest first; small ones share a task."""
    groups: list[list[Segment]] = []
    room = 0
    for segment in sorted(segments, key=lambda one: one.size, reverse=True):
        if segment.size > room:
            groups.append([])
            room = size
        groups[-1].append(segment)
        room -= segment.size
    return groups


def finish(
    results: Iterable[StreamResult],
    wanted: Plan,
    before: Before,
    home: Home,
    rows: dict[str, int],
    phase: Callable[[str], None],
) -> Batch:
    """Write `pending`, and return what the batch is. A stream in trouble stays as it was."""
    batch = Batch(rows, {}, dict(wanted.state), list(wanted.warnings))
    still: list[pa.Table] = []
    done: set[Stream] = set()
    files: set[tuple[str, str]] = set()
    for result in results:
        name = "/".join(result.stream)
        if result.trouble:
            batch.warnings.append(
                f"queue {result.stream[1]} of host {result.stream[0]} is left as it was: {result.trouble}"
            )
            if name in before.state:
                batch.state[name] = before.state[name]
            else:
                batch.state.pop(name, None)
            continue
        done.add(result.stream)
        batch.counts[name] = result.counts
        batch.state[name] = _after(batch.state[name], result)
        for one in result.written:
            rows[one.table] += one.rows
            files.add((one.table, one.path))
        if result.pending is not None and result.pending.num_rows:
            still.append(result.pending)
    phase("writing pending")
    writer = TableWriter(home.directory, "pending", home.today)
    for batch_of_rows in before.pending.without(done):
        writer.add({"pending": batch_of_rows})
    forget_rows()
    if still:
        writer.add({"pending": pa.concat_tables(still).combine_chunks()})
    for one in writer.close():
        rows["pending"] += one.rows
        files.add((one.table, one.path))
    batch.files = files
    return batch


def _after(state: State, result: StreamResult) -> State:
    files = {name: list(known) for name, known in state["files"].items()}
    for name, lines in result.lines.items():
        if name in files:
            files[name][2] += lines
    # What the matcher keeps has names of its own; those of spark.logs.joints are not its.
    joints: State = {name: state[name] for name in ("last", "carried") if name in state}
    return {**state, **result.mark, **joints, "files": files}
