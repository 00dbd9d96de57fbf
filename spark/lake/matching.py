"""Matching the logs of a build: segments give Parquet files and edges, which are joined to the last rows and a state.

This is plain Python on files that Python can open. It runs in Spark's executors, or in the driver.
"""

import gc
import hashlib
import os
import pickle
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from queue_base.errors import reason
from spark.lake.parquet import TableWriter, Written, open_writer, read_file
from spark.lake.pending import OpenRows
from spark.logs.plan import Stream
from spark.logs.reader import read_lines
from spark.logs.segments import Segment
from spark.match import Edge, Matcher, State, fits, join
from spark.match.matcher import BUGS, UNMATCHED, Unmatched, name_bug
from spark.match.state import SLICE
from spark.tables.partitions import escape_name, names_of

# A pickled edge of more bytes than this is left as a file, so that the driver need not hold them all.
LARGE_EDGE = 4 << 20
# Of a day, in nanoseconds.
_DAY = 86_400 * 10**9
EDGES = "edges"


@dataclass(frozen=True)
class Home:
    """Where a build writes: its own directory in the lake. today: the date of lines that have none."""

    directory: str
    today: date


@dataclass(frozen=True)
class Outcome:
    """What became of a segment. edge: pickled, or the path of a file that has it. lines: read, by file (Part.name).

    trouble: why it could not be read; then nothing was written.
    """

    segment: Segment
    written: tuple[Written, ...] = ()
    edge: bytes | str = b""
    lines: Counter[str] = field(default_factory=Counter)
    trouble: str = ""

    def open_edge(self) -> Edge:
        if isinstance(self.edge, bytes):
            found: Edge = pickle.loads(self.edge)
        else:
            with open(self.edge, "rb") as file:
                found = pickle.load(file)
        return found


@dataclass(frozen=True)
class StreamResult:
    """What became of a stream. pending: its rows of that table, if they are few; many are among what is written. mark:
    State.mark(); counts: lines read by kind.

    again: the segments that were matched a second time. trouble: why it could not be read; then nothing is written, and
    the stream stays as it was.
    """

    stream: Stream
    written: list[Written] = field(default_factory=list)
    pending: pa.Table | None = None
    mark: dict[str, Any] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    lines: Counter[str] = field(default_factory=Counter)
    again: tuple[int, ...] = ()
    trouble: str = ""


class Seen(Protocol):
    """The lines of a stream that were read before."""

    def __call__(self, earliest: int, latest: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return stamps and prints of the lines with stamps from earliest to latest."""

    def with_written(self, directory: str, written: Sequence[Written], before: Sequence[int] = ()) -> "Seen":
        """Return these lines and those of segments of this build: what is written for them, their numbers."""


@dataclass(frozen=True)
class SeenLines:
    """The lines of a stream that were read before: those of the lake, and of this build's earlier segments.

    places: directories and the data files of `lines` in them, of this stream's host.
    """

    stream: Stream
    places: tuple[tuple[str, tuple[str, ...]], ...]

    def __call__(self, earliest: int, latest: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return stamps and prints of the lines with stamps from earliest to latest."""
        first, last = _date_of(earliest), _date_of(latest)
        times, prints = [np.empty(0, np.int64)], [np.empty(0, np.int32)]
        for directory, paths in self.places:
            for path in paths:
                if not first <= names_of(path)["date"] <= last:
                    continue
                wanted = (
                    (pc.field("queue") == self.stream[1])
                    & (pc.field("time_ns") >= earliest)
                    & (pc.field("time_ns") <= latest)
                )
                found = read_file(directory, "lines", path, ["queue", "time_ns", "print"], wanted)
                times.append(found.column("time_ns").to_numpy())
                prints.append(found.column("print").to_numpy())
        return np.concatenate(times), np.concatenate(prints)

    def with_written(self, directory: str, written: Sequence[Written], before: Sequence[int] = ()) -> "SeenLines":
        paths = tuple(one.path for one in written if one.table == "lines")
        return replace(self, places=(*self.places, (directory, paths)))


def by_host(paths: Sequence[str]) -> dict[str, list[str]]:
    """Return the data files of `lines` by host."""
    found: dict[str, list[str]] = {}
    for path in paths:
        found.setdefault(path.rsplit("/", 2)[-2], []).append(path)
    return found


def seen_lines(stream: Stream, lake: str, paths: Mapping[str, Sequence[str]]) -> SeenLines:
    """Return the lines of a stream in the lake. paths: see by_host."""
    return SeenLines(stream, ((lake, tuple(paths.get(f"host={escape_name(stream[0])}", ()))),))


def _date_of(time_ns: int) -> str:
    return (datetime.fromtimestamp(0, UTC).date().fromordinal(719_163 + time_ns // _DAY)).isoformat()


def match_segment(
    home: Home,
    segment: Segment,
    state: State | None = None,
    seen: Seen | None = None,
    contents: Mapping[str, bytes] | None = None,
    again: str = "",
) -> Outcome:
    """Match a segment; write its rows. state: before it, None where that is not known; again: names a second try.

    A file that cannot be read, or a bug that a line met, is the outcome's trouble. Raises OSError where the rows cannot
    be written.
    """
    outcome, edge = _match(home, segment, state, seen, contents, again)
    return outcome if edge is None else replace(outcome, edge=_keep_edge(home, segment, edge))


def _match(
    home: Home,
    segment: Segment,
    state: State | None,
    seen: Seen | None,
    contents: Mapping[str, bytes] | None,
    again: str = "",
) -> tuple[Outcome, Edge | None]:
    """Match a segment as match_segment does; return its edge as it is, None where the outcome is trouble."""
    host, queue = segment.stream
    # An executor that was taken for dead may be at work on the same segment still: no two write the same file.
    name = _name(segment.stream, f"{segment.number}{again}-{os.urandom(4).hex()}")
    writer = TableWriter(home.directory, name, home.today)
    matcher = Matcher(host, queue, state, seen)
    lines: Counter[str] = Counter()
    with collector_off():
        try:
            blocks = read_lines(segment.parts, lines, contents)
            while (block := _next(blocks)) is not None:
                writer.add(matcher.feed(block))
            rows, edge = matcher.finish()
            writer.add(rows)
        except (_Unreadable, Unmatched, *BUGS) as error:
            remove_files(home.directory, writer.close())
            text = f"{UNMATCHED} a segment: {name_bug(error)}" if isinstance(error, BUGS) else str(error)
            return Outcome(segment, trouble=text), None
    return Outcome(segment, tuple(writer.close()), lines=lines), edge


@contextmanager
def collector_off() -> Iterator[None]:
    """Keep Python's garbage collector off: the matcher makes no cycles, and looking for some takes a fifth longer."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class _Unreadable(Exception):
    """A log that cannot be read."""


def _next(blocks: Any) -> Any:
    try:
        return next(blocks, None)
    except OSError as error:
        name = f"{error.filename}: " if error.filename else ""
        raise _Unreadable(f"{name}{reason(error)}") from error


def _name(stream: Stream, end: str) -> str:
    """Return a name for files of a stream that no other stream's have; Update.move gives them others."""
    return hashlib.blake2s("/".join(stream).encode(), digest_size=16).hexdigest() + f"-{end}"


def _keep_edge(home: Home, segment: Segment, edge: Edge) -> bytes | str:
    kept = pickle.dumps(edge, pickle.HIGHEST_PROTOCOL)
    if len(kept) <= LARGE_EDGE:
        return kept
    directory = os.path.join(home.directory, EDGES)
    os.makedirs(directory, exist_ok=True)
    path = os.path.join(directory, _name(segment.stream, f"{segment.number}-{os.urandom(4).hex()}"))
    with open(path, "wb") as file:
        file.write(kept)
    return path


def remove_files(directory: str, written: Sequence[Written]) -> None:
    """Remove files that are not to become part of the lake; another attempt at the same may have removed them."""
    for one in written:
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(directory, one.table, one.path))


def join_stream(
    home: Home,
    stream: Stream,
    pending: OpenRows,
    mark: Mapping[str, Any],
    outcomes: Sequence[Outcome],
    seen: Seen,
    contents: Mapping[str, bytes] | None = None,
) -> StreamResult:
    """Join the segments of a stream, in order; write the rows that depend on what was before each.

    pending, mark: of the stream before this build. A segment whose lines may have been read before, or whose assumed
    beginning was wrong, is matched again. Raises OSError.

    Spark may run this twice, also at the same time: what `outcomes` names is read, or removed, but never changed, and
    each attempt writes files of its own.
    """
    failed = next((outcome.trouble for outcome in outcomes if outcome.trouble), "")
    if failed:
        return _give_up(home, stream, outcomes, [], failed)
    with collector_off():
        return _join(home, stream, pending, mark, outcomes, seen, contents)


def _join(
    home: Home,
    stream: Stream,
    pending: OpenRows,
    mark: Mapping[str, Any],
    outcomes: Sequence[Outcome],
    seen: Seen,
    contents: Mapping[str, bytes] | None,
) -> StreamResult:
    try:
        state = State.unpack(*stream, pending.batches(), mark)
    except BUGS as error:
        return _give_up(home, stream, outcomes, [], f"{UNMATCHED} it with what was open: {name_bug(error)}")
    writer = TableWriter(home.directory, _name(stream, f"joined-{os.urandom(4).hex()}"), home.today)
    written: list[Written] = []
    counts: Counter[str] = Counter()
    lines: Counter[str] = Counter()
    again: list[int] = []
    stand: list[int] = []
    for given in outcomes:
        outcome, edge = given, given.open_edge()
        if not fits(state, edge):
            remove_files(home.directory, outcome.written)
            again.append(outcome.segment.number)
            known = seen.with_written(home.directory, written, stand)
            outcome, new = _match(home, outcome.segment, state, known, contents, again="-again")
            if new is None:
                rest = [one for one in outcomes if one.segment.number > outcome.segment.number]
                return _give_up(home, stream, rest, [*written, *writer.close()], outcome.trouble)
            edge = new
        else:
            stand.append(outcome.segment.number)
        try:
            rows, state = join(state, edge)
        except BUGS as error:
            rest = [one for one in outcomes if one.segment.number > outcome.segment.number]
            done = [*written, *outcome.written, *writer.close()]
            return _give_up(home, stream, rest, done, f"{UNMATCHED} its segments together: {name_bug(error)}")
        writer.add(rows)
        counts += edge.counts
        written += _place_lines(home.directory, outcome, lines)
        lines += outcome.lines
    mark_after, few = state.mark(), _pack(state, writer)
    written += writer.close()
    return StreamResult(stream, written, few, mark_after, dict(counts), lines, tuple(again))


def _pack(state: State, writer: TableWriter) -> pa.Table | None:
    """Return the rows of `pending` if they are few; else write them, slice by slice, and use up the state."""
    if len(state.messages) + len(state.stored) <= SLICE:
        return state.pack()
    for batch in state.take_slices():
        writer.add({"pending": batch})
    return None


def _give_up(
    home: Home, stream: Stream, outcomes: Sequence[Outcome], written: Sequence[Written], trouble: str
) -> StreamResult:
    for outcome in outcomes:
        remove_files(home.directory, outcome.written)
    remove_files(home.directory, written)
    return StreamResult(stream, trouble=trouble)


def _place_lines(directory: str, outcome: Outcome, before: Mapping[str, int]) -> list[Written]:
    """Return what a segment has written, its quarantined lines numbered behind those of the segments before it."""
    moved = {part.file: before[part.name] for part in outcome.segment.parts if before.get(part.name)}
    if not moved:
        return list(outcome.written)
    return [_renumber(directory, one, moved) if one.table == "quarantine" else one for one in outcome.written]


def _renumber(directory: str, written: Written, moved: Mapping[str, int]) -> Written:
    """Write quarantined lines again, their numbers in each file higher by `moved`; return the new file."""
    import pyarrow.parquet as pq

    path = f"{written.path.removesuffix('.parquet')}-{os.urandom(4).hex()}.parquet"
    target = os.path.join(directory, written.table, path)
    found = pq.ParquetFile(os.path.join(directory, written.table, written.path)).read()
    more = pa.array([moved.get(name, 0) for name in found.column("file").to_pylist()], pa.int64())
    at = found.schema.get_field_index("line")
    found = found.set_column(at, found.schema.field(at), pc.add(found.column("line"), more))
    with open_writer(target, found.schema, "quarantine") as writer:
        writer.write_table(found)
    return Written(written.table, path, os.stat(target).st_size, written.rows)


def match_stream(
    home: Home,
    segment: Segment,
    pending: OpenRows,
    mark: Mapping[str, Any],
    seen: Seen,
    contents: Mapping[str, bytes] | None = None,
) -> StreamResult:
    """Match a stream in one go: what match_segment and join_stream do, with the beginning known."""
    with collector_off():
        try:
            state = State.unpack(*segment.stream, pending.batches(), mark)
        except BUGS as error:
            return StreamResult(segment.stream, trouble=f"{UNMATCHED} it with what was open: {name_bug(error)}")
        outcome, edge = _match(home, segment, state, seen, contents)
        if edge is None:
            return StreamResult(segment.stream, trouble=outcome.trouble)
        if edge.state is None:
            raise AssertionError("a segment with a known beginning has a state behind it")
        mark_after = edge.state.mark()
        writer = TableWriter(home.directory, _name(segment.stream, f"open-{os.urandom(4).hex()}"), home.today)
        few = _pack(edge.state, writer)
    written = [*outcome.written, *writer.close()]
    return StreamResult(segment.stream, written, few, mark_after, dict(edge.counts), outcome.lines)
