"""Lines that could not be read, with the place where they stand."""

from collections.abc import Mapping

import pyarrow as pa

from queue_report.match.block import Block
from queue_report.match.lines import Lines
from queue_report.match.rows import TEXT_MAX, fill
from queue_report.match.text import escape


class Quarantine:
    """Collects such lines of one block."""

    def __init__(self, lines: Lines, place: Mapping[str, str]) -> None:
        self._first = lines.first
        self._constant = {**place, "file": lines.file}
        self._rows: list[tuple[int | None, int | None, str, str]] = []

    def add(self, block: Block, place: int, reason: str, time_ns: int | None) -> None:
        """Add the line at a place in the block, as it is now."""
        number = None if self._first is None else self._first + int(block.numbers[place])
        # A character has four bytes at most; what is cut in two here is behind the last that is kept.
        text = escape(block.line(place)[: 4 * TEXT_MAX + 4]).decode()[:TEXT_MAX]
        self._rows.append((number, time_ns, reason, text))

    def rows(self) -> pa.RecordBatch | None:
        if not self._rows:
            return None
        columns = dict(zip(("line", "time_ns", "reason", "text"), zip(*self._rows, strict=True), strict=True))
        return fill("quarantine", columns, self._constant, len(self._rows))
