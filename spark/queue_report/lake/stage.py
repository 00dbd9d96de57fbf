"""The stage of a build: what one task of Spark's does with its streams. Each is matched in order, with its state known.

A task writes the rows of its streams into data files, and returns these and what became of each stream. Nothing counts
until the driver commits it, so that a task may die, be run again, or run twice.
"""

import gc
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from queue_base.errors import Failure, reason
from queue_report.lake.data_files import RowWriter, read_files, read_rows
from queue_report.lake.lake import Written, date_of
from queue_report.logs.reading import Reading
from queue_report.logs.streams import SourceError, Stream
from queue_report.match import Matcher, State
from queue_report.match.matcher import BUGS, Unmatched, name_bug
from queue_report.match.repeats import Prints, Times
from queue_report.match.rows import fill
from queue_report.runtime.files import Files

# Of a day, in nanoseconds; and the number of the day of Unix time 0.
_DAY, _FIRST_DAY = 86_400 * 10**9, date(1970, 1, 1).toordinal()


@dataclass(frozen=True)
class StreamTask:
    """A stream to be matched: its logs, its directory below them, and its state, {} for a new one."""

    stream: Stream
    logs: Files
    below: str
    state: Mapping[str, Any]


@dataclass(frozen=True)
class Stage:
    """What all tasks are told: the lake, its files of `pending` and `lines`, and the date of lines that have none."""

    lake: Files
    pending: tuple[str, ...]
    lines: tuple[str, ...]
    today: date


@dataclass
class StreamResult:
    """What became of a stream. counts: lines read by kind; heads: the hashes that its files are known by.

    trouble: why it could not be read; then nothing of it was written, and it stays as it was. missing: its logs are
    not there, or no logs; else the trouble may pass. unmatched: the rules failed on a line, which is a bug.
    """

    stream: Stream
    counts: dict[str, int] = field(default_factory=dict)
    files: int = 0
    bytes: int = 0
    heads: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    trouble: str = ""
    missing: bool = False
    unmatched: bool = False
    # Whether there is a new state; without one, nothing is new.
    changed: bool = False


@dataclass
class TaskResult:
    """What a task has done: the data files, and each stream."""

    written: list[Written]
    streams: list[StreamResult]


def match_task(stage: Stage, tasks: list[StreamTask]) -> TaskResult | Exception:
    """Match some streams, as one task of Spark's.

    What goes wrong with the lake is a result, too: Spark's report of it would be a text.
    """
    writer = own = RowWriter(stage.lake, stage.today)
    results = []
    try:
        pending = _read_pending(stage, {one.stream for one in tasks if one.state})
        with _collector_off():
            for task in tasks:
                own = RowWriter(stage.lake, stage.today)
                result = _match(stage, task, pending.pop(task.stream, None), own)
                if result.changed and not result.trouble:
                    writer.take_from(own)
                else:
                    own.undo()
                results.append(result)
        return TaskResult(writer.close(), results)
    except (Failure, OSError) as error:
        # A disk that is full does not stay so because of this.
        own.undo()
        writer.undo()
        return error


def _match(stage: Stage, task: StreamTask, pending: pa.Table | None, writer: RowWriter) -> StreamResult:
    """Match one stream; write its rows, and what is known of it. Raises OSError where the lake cannot be written."""
    host, queue = task.stream
    result = StreamResult(task.stream)
    reading = Reading(task.logs, task.below, task.state)
    blocks = reading.lines()
    try:
        state = State.unpack(host, queue, pending, task.state.get("mark"))
        matcher = Matcher(state, _SeenLines(stage, task.stream))
        while (lines := _next(blocks)) is not None:
            writer.add(matcher.feed(lines))
        after = reading.pack()
        before = {name: task.state.get(name) for name in after}
        result.files, result.bytes, result.warnings = reading.opened, reading.bytes, reading.warnings
        if after == before:
            return result
        mark = state.mark()
        for rows in state.take_slices():
            writer.add({"pending": rows})
    except SourceError as error:
        return StreamResult(task.stream, trouble=str(error), missing=True)
    except _Unreadable as error:
        return StreamResult(task.stream, trouble=str(error), missing=error.missing)
    except Unmatched as error:
        return StreamResult(task.stream, trouble=str(error), unmatched=True)
    except BUGS as error:
        return StreamResult(task.stream, trouble=f"unable to match it: {name_bug(error)}", unmatched=True)
    result.changed, result.counts = True, dict(+matcher.counts)
    result.heads = sorted({one[2] for one in after["files"].values() if one[2]})
    counts = Counter(task.state.get("counts", {})) + matcher.counts
    kept = json.dumps({**after, "mark": mark, "counts": counts}, separators=(",", ":"))
    writer.add({"streams": fill("streams", {"state": [kept]}, {"host": host, "queue": queue}, 1)})
    return result


class _Unreadable(Exception):
    """A log that cannot be read."""

    def __init__(self, error: OSError) -> None:
        name = f"{error.filename}: " if error.filename else ""
        super().__init__(f"{name}{reason(error)}")
        self.missing = isinstance(error, FileNotFoundError)


def _next(blocks: Iterator[Any]) -> Any:
    try:
        return next(blocks, None)
    except OSError as error:
        raise _Unreadable(error) from error


class _SeenLines:
    """The lines of a stream that earlier builds have read; see queue_report.match.repeats.Seen."""

    def __init__(self, stage: Stage, stream: Stream) -> None:
        self._stage, self._stream = stage, stream

    def __call__(self, earliest: int, latest: int) -> tuple[Times, Prints]:
        first, last = (date.fromordinal(_FIRST_DAY + at // _DAY).isoformat() for at in (earliest, latest))
        host, queue = self._stream
        wanted = [("host", "=", host), ("queue", "=", queue), ("time_ns", ">=", earliest), ("time_ns", "<=", latest)]
        times, prints = [np.empty(0, np.int64)], [np.empty(0, np.int32)]
        for path in self._stage.lines:
            if first <= date_of(path) <= last:
                found = read_rows(self._stage.lake, path, ["time_ns", "print"], wanted)
                times.append(found.column("time_ns").to_numpy())
                prints.append(found.column("print").to_numpy())
        return np.concatenate(times), np.concatenate(prints)


def _read_pending(stage: Stage, streams: set[Stream]) -> dict[Stream, pa.Table]:
    """Return what is open of some streams."""
    return group_rows(read_files(stage.lake, "pending", stage.pending), streams) if streams else {}


def group_rows(rows: pa.Table, streams: set[Stream]) -> dict[Stream, pa.Table]:
    """Return the rows of each of some streams, in their order."""
    if not rows.num_rows:
        return {}
    places = rows.select(["host", "queue"]).combine_chunks()
    hosts, queues = (places.column(name).combine_chunks().dictionary_encode() for name in ("host", "queue"))
    numbers = hosts.indices.to_numpy().astype(np.int64) * len(queues.dictionary) + queues.indices.to_numpy()
    order = np.argsort(numbers, kind="stable")
    cuts = np.flatnonzero(np.diff(numbers[order])) + 1
    found = {}
    for part in np.split(order, cuts):
        at = int(part[0])
        stream = hosts[at].as_py(), queues[at].as_py()
        if stream in streams:
            found[stream] = rows.take(pa.array(part))
    return found


def without(rows: pa.Table, streams: set[Stream]) -> pa.Table:
    """Return the rows of all streams but these."""
    gone = pa.array([f"{host}/{queue}" for host, queue in streams], pa.string())
    names = pc.binary_join_element_wise(rows.column("host"), rows.column("queue"), "/")
    return rows.filter(pc.invert(pc.is_in(names, gone)))


@contextmanager
def _collector_off() -> Iterator[None]:
    """Keep Python's garbage collector off: the matcher makes no cycles, and looking for some takes a fifth longer."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
