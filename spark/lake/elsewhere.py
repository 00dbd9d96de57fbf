"""A batch where logs or lake are on another file system (hdfs:, s3a:): Spark reads the logs and writes the rows.

Spark reads each log whole, as one row of bytes; executors match it as a segment of its own, and give the rows of all
tables back as columns of structures. These are staged as Parquet, and written once more by table. What is small is
matched and joined by the driver, whose files are copied there.
"""

import os
import pickle
import posixpath
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import date
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructField, StructType
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

from spark.lake.batch import Batch, Before, finish, mark_of
from spark.lake.compact import Group, rearrange
from spark.lake.manifest import Manifest
from spark.lake.matching import Home, Outcome, StreamResult, join_stream, match_segment
from spark.lake.parquet import TableWriter
from spark.lake.pending import Pending
from spark.lake.store import read_table
from spark.lake.update import Update
from spark.logs.plan import Plan, Stream
from spark.logs.reader import read_lines
from spark.logs.segments import Segment
from spark.match import Matcher
from spark.runtime.executors import cores
from spark.runtime.places import LocalPlace, Place, walk
from spark.tables.arrow import ARROW
from spark.tables.columns import PARTITIONED
from spark.tables.schema import TABLES

# Up to so many bytes of logs each table's rows are written by one task, so as one file a date and host.
ONE_TASK = 32 << 20
_ROWS = tuple(table for table in TABLES if table != "pending")
_STAGED = StructType(
    [
        StructField("table", StringType()),
        StructField("segment", IntegerType()),
        StructField("edge", BinaryType()),
        *(StructField(f"of_{table}", TABLES[table]) for table in _ROWS),
    ]
)


def match_elsewhere(
    session: SparkSession,
    logs: Place,
    lake: Place,
    update: Update,
    wanted: Plan,
    manifest: Manifest,
    today: date,
    phase: Callable[[str], None],
) -> Batch:
    """Write the rows of what is new into the update's directory. Returns the batch."""
    segments = [
        Segment(stream, number, (part,))
        for stream, parts in wanted.streams.items()
        for number, part in enumerate(parts)
    ]
    staged = _stage_rows(session, lake, update, segments)
    edges = {}
    if staged is not None:
        for row in staged.filter("table = 'edge'").select("segment", "edge").collect():
            edges[row["segment"]] = pickle.loads(row["edge"])
    phase("joining segments")
    open_ones = list(manifest.tables.get("pending", ()))
    lines = read_table(session, lake, "lines", list(manifest.tables.get("lines", ())))
    with TemporaryDirectory(prefix="queue-report-") as directory, TemporaryDirectory(prefix="queue-report-") as old:
        pending = read_table(session, lake, "pending", open_ones).toArrow().cast(ARROW["pending"])
        writer = TableWriter(old, "before", today)
        writer.add({"pending": pending})
        del pending
        before = Before("", Pending.open(old, [one.path for one in writer.close()]), (), manifest.state)
        home = Home(directory, today)
        contents = _Contents(lake, logs)
        results: list[StreamResult] = []
        dropped: list[int] = []
        for stream in wanted.streams:
            own = {at: one for at, one in enumerate(segments) if one.stream == stream}
            outcomes = [
                Outcome(one, edge=edges[at][0], lines=edges[at][1]) if at in edges else match_segment(home, one)
                for at, one in own.items()
            ]
            seen = _SparkLines(stream, lines, staged, tuple(own), directory)
            open_rows = before.pending.of(stream)
            result = join_stream(home, stream, open_rows, mark_of(before, stream), outcomes, seen, contents)
            results.append(result)
            dropped += [at for at, one in own.items() if result.trouble or one.number in result.again]
        rows = dict.fromkeys(TABLES, 0)
        batch = finish(results, wanted, before, home, rows, phase)
        if staged is not None:
            kept = staged.filter(~F.col("segment").isin(dropped)) if dropped else staged
            for table in _ROWS:
                phase(f"writing {table}")
                rows[table] += _write(lake, update, table, kept, today, wanted.bytes)
        _copy(LocalPlace(directory), lake, update, batch.files or ())
    # Spark's own commit has seen to it that nothing else is there.
    batch.files = None
    return batch


def _stage_rows(session: SparkSession, lake: Place, update: Update, segments: Sequence[Segment]) -> DataFrame | None:
    """Match all segments that are files, each by itself; return their rows and edges as staged."""
    read = {part.path: (at, one) for at, one in enumerate(segments) for part in one.parts if _is_file(one)}
    if not read:
        return None
    cores(session)
    options = session.read.format("binaryFile").option("__globPaths__", "false")
    files = options.load(list(read)).select("path", "content")
    # A file is a row, which Spark would send in groups of many.
    session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "1")
    place = lake.uri(update.home("staged"))
    _map_in_arrow(files, _MatchFiles(read), _STAGED).write.mode("overwrite").partitionBy("table").parquet(place)
    return session.read.schema(_STAGED).option("__globPaths__", "false").parquet(place)


def _map_in_arrow(
    frame: DataFrame, work: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], schema: StructType
) -> DataFrame:
    """Return frame.mapInArrow(work, schema), without pandas, which that method demands and does not use."""
    made: Any = UserDefinedFunction(work, schema, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    column = made(*(frame[name] for name in frame.columns))
    java: Any = frame._jdf
    return DataFrame(java.mapInArrow(column._jc, False, None), frame.sparkSession)


def _is_file(segment: Segment) -> bool:
    part = segment.parts[0]
    return part.content is None and not part.torn


class _MatchFiles:
    """What an executor does with files: rows of path and content."""

    def __init__(self, segments: Mapping[str, tuple[int, Segment]]) -> None:
        self._segments = dict(segments)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for path, content in zip(*(batch.column(name).to_pylist() for name in ("path", "content")), strict=True):
                at, segment = self._segments[path]
                yield from _match_file(at, segment, content)


def _match_file(at: int, segment: Segment, content: bytes) -> Iterator[pa.RecordBatch]:
    matcher = Matcher(*segment.stream, None)
    lines: Counter[str] = Counter()
    for block in read_lines(segment.parts, lines, {segment.parts[0].path: content}):
        yield from _as_staged(at, matcher.feed(block))
    rows, edge = matcher.finish()
    yield from _as_staged(at, rows)
    yield _staged(at, "edge", pa.array([pickle.dumps((pickle.dumps(edge), lines))], pa.binary()), 1)


def _as_staged(at: int, rows: Mapping[str, pa.RecordBatch | None]) -> Iterator[pa.RecordBatch]:
    for table, batch in rows.items():
        if batch is not None and batch.num_rows:
            yield _staged(at, table, batch.to_struct_array(), batch.num_rows)


def _staged(at: int, table: str, values: pa.Array, count: int) -> pa.RecordBatch:
    """Return rows in the columns of _STAGED."""
    columns = [pa.repeat(pa.scalar(table), count), pa.repeat(pa.scalar(at, pa.int32()), count)]
    columns.append(values if table == "edge" else pa.nulls(count, pa.binary()))
    columns += [
        values.cast(pa.struct(ARROW[one])) if one == table else pa.nulls(count, pa.struct(ARROW[one])) for one in _ROWS
    ]
    return pa.RecordBatch.from_arrays(columns, _STAGED.names)


def _write(lake: Place, update: Update, table: str, staged: DataFrame, today: date, size: int) -> int:
    """Write a table's staged rows; return how many."""
    rows = staged.filter(F.col("table") == table).select(f"of_{table}.*")
    if table == "quarantine":
        rows = rows.withColumn("date", F.coalesce("date", F.lit(today)))
    count = rows.count()
    if count:
        stage(lake, update, table, rows.coalesce(1) if size <= ONE_TASK else rows.hint("rebalance", "date", "host"))
    return count


class _Contents(Mapping[str, bytes]):
    """What logs hold, by their paths as Spark takes them, read as it is asked for."""

    def __init__(self, *places: Place) -> None:
        self._places = places

    def __contains__(self, path: object) -> bool:
        return bool(path)

    def __getitem__(self, path: str) -> bytes:
        place = next(place for place in self._places if path.startswith(place.root))
        return place.read(path.removeprefix(place.root).lstrip("/"))

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


class _SparkLines:
    """matching.SeenLines of a lake that only Spark reads. The driver's own lines are in local files."""

    def __init__(
        self, stream: Stream, lines: DataFrame, staged: DataFrame | None, numbers: tuple[int, ...], directory: str
    ) -> None:
        self._stream, self._lines, self._staged = stream, lines, staged
        self._numbers, self._directory = numbers, directory
        self._written: tuple[Any, ...] = ()
        self._before: tuple[int, ...] = ()

    def with_written(self, directory: str, written: Sequence[Any], before: Sequence[int] = ()) -> "_SparkLines":
        made = _SparkLines(self._stream, self._lines, self._staged, self._numbers, directory)
        made._written = tuple(written)
        made._before = tuple(self._numbers[number] for number in before)
        return made

    def __call__(self, earliest: int, latest: int) -> tuple[Any, Any]:
        from spark.lake.matching import SeenLines

        there = F.col("time_ns").between(earliest, latest)
        mine = (F.col("host") == self._stream[0]) & (F.col("queue") == self._stream[1])
        found = self._lines.filter(mine & there).select("time_ns", "print")
        if self._staged is not None and self._before:
            now = self._staged.filter(F.col("table") == "lines").filter(F.col("segment").isin(list(self._before)))
            found = found.unionByName(now.select("of_lines.*").filter(there).select("time_ns", "print"))
        table = found.toArrow()
        own = SeenLines(self._stream, ()).with_written(self._directory, self._written)(earliest, latest)
        import numpy as np

        return (
            np.concatenate([table.column("time_ns").to_numpy(), own[0]]),
            np.concatenate([table.column("print").to_numpy(), own[1]]),
        )


def _copy(source: Place, lake: Place, update: Update, files: Collection[tuple[str, str]]) -> None:
    """Copy files that the driver has written, by table and path, into the update's directory."""
    for table in TABLES:
        for path, size in walk(source, table):
            if (table, path) in files:
                target = update.home(table, path)
                lake.make_directory(posixpath.dirname(target))
                source.copy(os.path.join(table, path), 0, size, lake, target)


def put_together_by_spark(session: SparkSession, lake: Place, update: Update, group: Group) -> None:
    """Write the group's rows again, into few files of the update's directory."""
    stage(lake, update, group.table, rearrange(read_table(session, lake, group.table, list(group.paths)), group))


def stage(lake: Place, update: Update, table: str, frame: DataFrame) -> None:
    """Write rows into the update's directory, as they are distributed."""
    writer = frame.write.mode("append")
    if table in PARTITIONED:
        writer = writer.partitionBy("date", "host")
    writer.parquet(lake.uri(update.home(table)))
