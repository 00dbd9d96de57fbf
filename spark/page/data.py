"""What the page shows: rows of reports as plain dictionaries, and what the lake says of itself.

In rows times are Unix seconds (floats), decimals floats, and null None.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Row: TypeAlias = Mapping[str, Any]

# The manifest's name for lines that could not be read, among the kinds of lines.
UNREADABLE = "quarantine"


@dataclass(frozen=True)
class Moment:
    """The queue as qshape has it at a time (Unix, s); name says which time that is."""

    name: str
    at: float
    rows: Sequence[Row]


@dataclass(frozen=True)
class PageData:
    """All that is on a page.

    made, build: when the lake's last build ended (ISO 8601), and its number. only: what the page is restricted to, in
    words, '' for nothing. begin, end: the time that the plots cover (Unix, s). rows: by report. meanings: by report
    and column what it holds. lines: by "host/queue" the lines that were read, by kind. moments: for qshape.
    """

    made: str
    build: int
    only: str
    begin: float
    end: float
    rows: Mapping[str, Sequence[Row]]
    meanings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    lines: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    moments: Sequence[Moment] = ()

    def of(self, report: str) -> Sequence[Row]:
        """Return a report's rows, none where it was not run."""
        return self.rows.get(report, ())

    def meaning(self, report: str, column: str) -> str | None:
        return self.meanings.get(report, {}).get(column)

    def total(self, report: str, column: str) -> int:
        """Return the sum of a column."""
        return sum(row[column] or 0 for row in self.of(report))
