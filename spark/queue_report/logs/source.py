"""The data source `queue_log`: the lines of logs as a DataFrame, for questions that the tables do not answer.

    spark.dataSource.register(QueueLog)
    spark.read.format("queue_log").load("/var/log/queue")

Its options are `host` and `queue`, as those of `queue-report build`. Each queue is a partition, read in order. Lines
are as they stand in the files: one that is there twice is two rows.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from queue_base.errors import Permanent
from queue_report.logs.reading import Reading
from queue_report.logs.streams import SourceError, Stream, find_streams
from queue_report.match.block import Block, Lines
from queue_report.match.grammar import parse_event
from queue_report.match.text import escape
from queue_report.runtime.files import Files, open_files

# host, queue: whose log it is. file: below the logs; line: its number there, null where it was put together of pieces
# of two files. time, time_ns: of its stamp, null without one. kind: as the counts of a build have it, null for what is
# no line of the log. event: what follows the stamp, or all of a line without one.
_ARROW = pa.schema([
    ("host", pa.string()), ("queue", pa.string()), ("file", pa.string()), ("line", pa.int64()),
    ("time", pa.timestamp("us", "UTC")), ("time_ns", pa.int64()), ("kind", pa.string()), ("event", pa.string()),
])  # fmt: skip
SCHEMA = (
    "host string, queue string, file string, line bigint, time timestamp, time_ns bigint, kind string, event string"
)


@dataclass
class _Queue(InputPartition):
    stream: Stream
    below: str


class QueueLog(DataSource):
    """See the module."""

    @classmethod
    def name(cls) -> str:
        return "queue_log"

    def schema(self) -> str:
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        if "path" not in self.options:
            raise Permanent("unable to read queue_log: no path; use .load(LOGS)")
        return _Reader(self.options["path"], self.options.get("host"), self.options.get("queue"))


class _Reader(DataSourceReader):
    def __init__(self, path: str, host: str | None, queue: str | None) -> None:
        self._files: Files = open_files(path)
        self._names = host, queue

    def partitions(self) -> Sequence[InputPartition]:
        """Return the queues. Raises Permanent where there are no logs."""
        try:
            found = find_streams(self._files, *self._names, [])
        except SourceError as error:
            raise Permanent(f"unable to read logs {self._files.root}: {error}") from error
        return [_Queue(stream, one.below) for stream, one in found.items()]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the lines of a queue, as Arrow's batches."""
        assert isinstance(partition, _Queue)
        for lines in Reading(self._files, partition.below, {}).lines():
            if len(lines.starts):
                yield _rows(partition.stream, lines)


def _rows(stream: Stream, lines: Lines) -> pa.RecordBatch:
    block = Block(lines)
    block.read_texts()
    stamped = block.has_stamp.tolist()
    events = [
        escape(text if has else block.line(place))
        for place, (text, has) in enumerate(zip(block.texts, stamped, strict=True))
    ]
    kinds = [_kind(event) if has else None for event, has in zip(events, stamped, strict=True)]
    count, without = len(events), ~block.has_stamp
    numbers = pa.nulls(count, pa.int64()) if lines.first is None else pa.array(lines.first + block.numbers)
    columns = [
        pa.repeat(stream[0], count), pa.repeat(stream[1], count), pa.repeat(lines.file, count), numbers,
        pa.array(block.times // 1000, pa.int64(), mask=without).cast(pa.timestamp("us", "UTC")),
        pa.array(block.times, pa.int64(), mask=np.asarray(without)),
        pa.array(kinds, pa.string()), pa.array(events, pa.binary()).cast(pa.string()),
    ]  # fmt: skip
    return pa.RecordBatch.from_arrays(columns, schema=_ARROW)


def _kind(event: bytes) -> str | None:
    found = parse_event(event)
    return None if found is None else found[0].name
