"""Lines as the matcher is given them: a block of bytes, and where each line is in it."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Lines(NamedTuple):
    """Lines of one file, in the order of the log.

    data: the bytes. starts, ends: where each line begins, and where it ends without its newline, as places in data.
    file: path below LOGS. first: the number of the first line in its file, from 1; None where it is not known.
    torn: each of these lines was cut short, and its rest is lost.
    """

    data: bytes
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    file: str
    first: int | None = None
    torn: bool = False


def split_lines(data: bytes, file: str, first: int | None = None) -> Lines:
    """Return the lines of data. What follows the last newline, where there is anything, is a line too."""
    newlines = np.flatnonzero(np.frombuffer(data, np.uint8) == 10).astype(np.int64)
    ends = newlines if not data or data.endswith(b"\n") else np.append(newlines, len(data))
    starts = np.concatenate((np.zeros(min(1, len(ends)), np.int64), ends[:-1] + 1))
    return Lines(data, starts, ends, file, first)
