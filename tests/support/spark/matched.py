"""The pure matcher as a test drives it: lines in builds and blocks, and the tables that come of them."""

import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from queue_report.match import Matcher, State
from queue_report.match.block import Lines
from queue_report.match.rows import Rows
from queue_report.schema.arrow import ARROW
from queue_report.schema.columns import PARTITIONED
from support.spark.logs.log_rows import DeliveryRow, IntervalRow, MessageRow, QuarantineRow, Truth

ROW = TypeVar("ROW", MessageRow, DeliveryRow, IntervalRow)
Line = tuple[bytes, bool]  # With whether it was cut short.
HOST, QUEUE = "alpha", "main"


def blocks_of(lines: Sequence[Line], size: int) -> Iterable[Lines]:
    """Yield lines in blocks of at most `size`; those that were cut short each by itself."""
    waiting: list[bytes] = []
    for line, torn in [*lines, (b"", None)]:
        if waiting and (torn is None or torn or len(waiting) == size):
            yield _block(waiting)
            waiting = []
        if torn:
            yield _block([line])._replace(torn=True)
        elif torn is not None:
            waiting.append(line)


def _block(lines: list[bytes]) -> Lines:
    ends = np.cumsum([len(line) + 1 for line in lines]) - 1
    starts = np.concatenate(([0], ends[:-1] + 1))
    return Lines(b"\n".join(lines) + b"\n", starts.astype(np.int64), ends.astype(np.int64), "alpha/main/current", 1)


class Stream:
    """Matches the lines of one stream, build by build, and collects the rows.

    carry: what becomes of the state between two builds.
    """

    def __init__(self, host: str = HOST, queue: str = QUEUE, carry: Callable[[State], State] | None = None) -> None:
        self.host, self.queue = host, queue
        self.state = State(host, queue)
        self.batches: dict[str, list[pa.RecordBatch]] = {name: [] for name in PARTITIONED}
        self.counts: Counter[str] = Counter()
        self._carry = carry or (lambda state: state)

    @property
    def unknown(self) -> Counter[str]:
        return self.state.unknown

    def match(self, lines: Sequence[Line], size: int = 1 << 30) -> None:
        """Match what a build reads."""
        before = self._table("lines")  # Of earlier builds.
        seen = before["time_ns"].to_numpy(), before["print"].to_numpy()
        matcher = Matcher(self.state, lambda earliest, latest: seen)
        for block in blocks_of(lines, size):
            self._add(matcher.feed(block))
        self.counts += matcher.counts
        self.state = self._carry(self.state)

    def _add(self, rows: Rows) -> None:
        for name, batch in rows.items():
            batch.validate(full=True)
            assert batch.num_rows and batch.schema == ARROW[name]
            self.batches[name].append(batch)

    def _table(self, name: str) -> pa.Table:
        return pa.Table.from_batches(self.batches[name], ARROW[name])

    def rows(self, name: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self._table(name).to_pylist()
        return rows

    def truth(self) -> Truth:
        """Return the tables in the form in which they are compared."""
        packed = self.state.pack()
        packed.validate(full=True)
        pending: list[dict[str, Any]] = packed.to_pylist()
        tables = {name: self.rows(name) for name in PARTITIONED}
        for row in (*pending, *(row for name in PARTITIONED for row in tables[name])):
            check(row)
        return Truth(
            [_row(MessageRow, row) for row in tables["messages"]],
            [_row(DeliveryRow, row) for row in tables["deliveries"]],
            [_row(IntervalRow, row) for row in tables["intervals"]],
            [_row(MessageRow, row) for row in pending if row["what"] == "message"],
            [_row(DeliveryRow, row) for row in pending if row["what"] == "delivery"],
            [
                QuarantineRow(row["host"], row["queue"], row["time_ns"], row["reason"] == "cut short", row["text"])
                for row in tables["quarantine"]
            ],
        )


def match_cut(lines: Sequence[Line], *cuts: int, carried: bool = False) -> Stream:
    """Match lines that are cut there; carried: each part in a build of its own."""
    stream = Stream(carry=carry_state if carried else None)
    for start, end in itertools.pairwise((0, *cuts, len(lines))):
        stream.match(lines[start:end])
    return stream


def carry_state(state: State) -> State:
    """Return a state as the lake brings it to the next build: in the tables `pending` and `streams`."""
    return State.unpack(state.host, state.queue, state.pack(), json.loads(json.dumps(state.mark())))


def _row(kind: type[ROW], row: dict[str, Any]) -> ROW:
    return kind._make(row.get(name) for name in kind._fields)


def check(row: dict[str, Any]) -> None:
    """Each time stands in two columns, and the date is that of the row's end (of its start, where it was lost)."""
    for name, time in row.items():
        if f"{name}_ns" in row:
            nanoseconds = row[f"{name}_ns"]
            assert (nanoseconds is None) == (time is None), row
            assert time is None or round(time.timestamp() * 10**6) == nanoseconds // 1000, row
    ends = [row[name] for name in ("done_ns", "start_ns", "at_ns", "time_ns") if row.get(name) is not None]
    if "date" in row:
        assert row["date"] == (datetime.fromtimestamp(ends[0] // 10**9, UTC).date() if ends else None), row
