"""From lines to rows: the matcher of one segment of a stream."""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from spark.match.edge import Edge
from spark.match.lines import Lines
from spark.match.state import State
from spark.match.tables import Rows

# Given two stamps, stamps and prints of the lines between them (both included) that were read in earlier segments or
# builds: the columns time_ns and print of the table `lines`. More lines do no harm.
Seen: TypeAlias = Callable[[int, int], tuple[NDArray[np.int64], NDArray[np.int32]]]


class Matcher:
    """Matches the lines of one segment, which come in the order of the log.

    state: what is open before the segment, used up by it; None where that is not known. seen: which lines were there
    before; asked only where stamps are not later than all before.
    """

    def __init__(self, host: str, queue: str, state: State | None, seen: Seen | None = None) -> None:
        raise NotImplementedError

    def feed(self, lines: Lines) -> Rows:
        """Return the rows that are complete now."""
        raise NotImplementedError

    def finish(self) -> tuple[Rows, Edge]:
        """Return the last rows, and the edge."""
        raise NotImplementedError
