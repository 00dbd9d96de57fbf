"""The rows of `pending` that a build begins with, read a row group at a time: what is open may be millions of messages.

Rows of one stream stand together, but for lakes in which several builds wrote them.
"""

import itertools
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from spark.lake.parquet import count_groups, read_file
from spark.logs.plan import Stream
from spark.match.state import SLICE


class _Run(NamedTuple):
    """Rows that stand together: a data file, the number of a row group in it, the first row in that, and how many."""

    path: str
    group: int
    start: int
    rows: int


@dataclass(frozen=True)
class OpenRows:
    """The rows of `pending` of one stream; it can be pickled. lake: the directory that has the table."""

    lake: str
    runs: tuple[_Run, ...] = ()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows, some at a time. Raises as read_file."""
        for run in self.runs:
            yield from _read_group(self.lake, run.path, run.group).slice(run.start, run.rows).to_batches(SLICE)


@lru_cache(maxsize=1)
def _read_group(lake: str, path: str, group: int) -> pa.Table:
    """Return a row group. Many small streams have one together, and are asked for in its order."""
    return read_file(lake, "pending", path, group=group)


def forget_rows() -> None:
    """Free what was kept of row groups."""
    _read_group.cache_clear()


@dataclass
class Pending:
    """The table `pending` of a lake that is a directory: its data files, and where in them each stream has its rows."""

    lake: str
    runs: dict[Stream, list[_Run]] = field(default_factory=dict)

    @classmethod
    def open(cls, lake: str, paths: Iterable[str]) -> "Pending":
        """Look at the data files (below the table's directory). Raises as read_file."""
        found = cls(lake)
        for path in paths:
            for group in range(count_groups(lake, "pending", path)):
                found._look(path, group)
        return found

    def of(self, stream: Stream) -> OpenRows:
        """Return the rows of a stream."""
        return OpenRows(self.lake, tuple(self.runs.get(stream, ())))

    def without(self, streams: Collection[Stream]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of all streams but these."""
        left = sorted(run for stream, runs in self.runs.items() if stream not in streams for run in runs)
        for (path, group), runs in itertools.groupby(left, lambda run: (run.path, run.group)):
            rows = _read_group(self.lake, path, group)
            kept = pa.concat_tables([rows.slice(run.start, run.rows) for run in runs])
            yield from kept.combine_chunks().to_batches()

    def _look(self, path: str, group: int) -> None:
        places = read_file(self.lake, "pending", path, ["host", "queue"], group=group)
        if not places.num_rows:
            return
        hosts, queues = (places.column(name).combine_chunks().dictionary_encode() for name in ("host", "queue"))
        pairs = np.stack([hosts.indices.to_numpy(), queues.indices.to_numpy()])
        starts = [0, *(np.flatnonzero((pairs[:, 1:] != pairs[:, :-1]).any(axis=0)) + 1).tolist(), places.num_rows]
        for start, end in itertools.pairwise(starts):
            stream = hosts[start].as_py(), queues[start].as_py()
            self.runs.setdefault(stream, []).append(_Run(path, group, start, end - start))
