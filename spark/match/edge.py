"""The edge of a segment: what depends on what was before it, and what is open after it."""

from collections import Counter
from dataclasses import dataclass, field

from spark.match.state import State
from spark.match.tables import Rows


@dataclass
class Edge:
    """What `join` needs of a segment; it can be pickled.

    earliest, latest: stamps of its lines (Unix nanoseconds), None where no line has one. counts: lines by kind, those
    that could not be read as `quarantine`. unknown: of these the first words that no kind of line has.
    state: what is open after the segment, where its beginning was known; else None.
    """

    host: str
    queue: str
    earliest: int | None = None
    latest: int | None = None
    counts: Counter[str] = field(default_factory=Counter)
    unknown: Counter[str] = field(default_factory=Counter)
    state: State | None = None


def fits(state: State, edge: Edge) -> bool:
    """Return whether a segment's rows stand where `state` was before it.

    They do not where a line may have been there before, by its stamp, or where the segment took a message or a
    delivery for new that was open: then match the segment again, with the state before it and with `seen`.
    """
    raise NotImplementedError


def join(state: State, edge: Edge) -> tuple[Rows, State]:
    """Return the rows that are left, and the state after the segment. `state` is used up."""
    raise NotImplementedError
