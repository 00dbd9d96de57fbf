"""From hours with numbers to at most a few hundred bins of equal length, which is as many as a plot has room for."""

from collections.abc import Callable, Iterable

from spark.page.plots import Bins
from spark.page.scales import DAY, HOUR, WEEK

MOST = 260
_LENGTHS = (HOUR, 2 * HOUR, 3 * HOUR, 4 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 2 * DAY, WEEK, 4 * WEEK)


def make_bins(begin: float, end: float, most: int = MOST) -> Bins:
    """Return bins from the full hour, day or Monday at or before begin to the one at or after end (Unix time, s)."""
    length = next((length for length in _LENGTHS if (end - begin) / length <= most), None)
    if length is None:
        # A clock that was years off: whole weeks, as many as it takes.
        length = WEEK * -(-int(end - begin) // (WEEK * most))
    offset = 4 * DAY if length % WEEK == 0 else 0
    start = (int(begin) - offset) // length * length + offset
    return Bins(start, length, max(1, -(-int(end - start) // length)))


def fill(
    bins: Bins, points: Iterable[tuple[float, float | None]], join: Callable[[float, float], float]
) -> list[float | None]:
    """Return for each bin what `join` makes of the values in it; None where there is none.

    points: Unix time (s) and value; those in no bin count nowhere.
    """
    found: list[float | None] = [None] * bins.number
    for at, value in points:
        i = int((at - bins.start) // bins.length)
        if value is None or not 0 <= i < bins.number:
            continue
        before = found[i]
        found[i] = value if before is None else join(before, value)
    return found


def add(a: float, b: float) -> float:
    return a + b


def words(bins: Bins) -> str:
    """Return a bin's length, such as `3 h`."""
    for length, name in ((WEEK, "week"), (DAY, "day"), (HOUR, "hour")):
        if bins.length % length == 0:
            number = bins.length // length
            return name if number == 1 else f"{number} {name}s"
    return f"{bins.length} s"
