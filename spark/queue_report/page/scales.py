"""Stretches of time, scales with their ticks, and how the page writes numbers: pure functions, no state.

Times are Unix seconds and written in UTC. A scale maps a value to a place from 0 to 1.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

MINUTE, HOUR, DAY, WEEK = 60, 3600, 86400, 604800

# As many bins as a plot has room for.
MOST = 260
_LENGTHS = (
    MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE, 15 * MINUTE, 30 * MINUTE,
    HOUR, 2 * HOUR, 3 * HOUR, 4 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 2 * DAY, WEEK, 4 * WEEK,
)  # fmt: skip


class Bins(NamedTuple):
    """Stretches of time of equal length: the first begins at `start` (Unix time), all in seconds."""

    start: int
    length: int
    number: int

    @property
    def end(self) -> int:
        return self.start + self.length * self.number

    def label(self, i: int) -> str:
        """Return from when to when a bin goes."""
        begin = self.start + i * self.length
        end = moment(begin + self.length)
        return f"{when(begin)} \N{EN DASH} {end:%H:%M}" if self.length < DAY else f"{moment(begin):%a %Y-%m-%d}"

    def each(self) -> str:
        """Return a bin's length, such as `3 h`."""
        for length, name in ((WEEK, "week"), (DAY, "day"), (HOUR, "hour"), (MINUTE, "minute")):
            if self.length % length == 0:
                number = self.length // length
                return name if number == 1 else f"{number} {name}s"
        return f"{self.length} s"


def make_bins(begin: float, end: float, most: int = MOST) -> Bins:
    """Return bins from the full minute, hour, day or Monday at or before begin to the one at or after end."""
    length = next((length for length in _LENGTHS if (end - begin) / length <= most), None)
    if length is None:
        # A clock that was years off: whole weeks, as many as it takes.
        length = WEEK * -(-int(end - begin) // (WEEK * most))
    offset = 4 * DAY if length % WEEK == 0 else 0
    start = (int(begin) - offset) // length * length + offset
    return Bins(start, length, max(1, -(-math.ceil(end - start) // length)))


class Tick(NamedTuple):
    """A mark on an axis: its value and what stands there."""

    value: float
    label: str


class Scale(NamedTuple):
    """Where values are between the ends of an axis, and its ticks."""

    place: Callable[[float], float]
    ticks: tuple[Tick, ...]


def linear_scale(highest: float, write: Callable[[float], str] | None = None) -> Scale:
    """Return a scale from 0 to a round number at or above the highest value, with at most six ticks."""
    step = _round_up(highest / 5) if highest > 0 else 1.0
    # Counts have no halves.
    step = math.ceil(step) if write is None else step
    top = step * max(1, math.ceil(highest / step - 1e-9))
    ticks = tuple(Tick(i * step, (write or count)(i * step)) for i in range(round(top / step) + 1))
    return Scale(lambda value: min(max(value / top, 0.0), 1.0), ticks)


def _round_up(value: float) -> float:
    """Return 1, 2, 2.5 or 5 times a power of ten, at or above the value."""
    power = 10.0 ** math.floor(math.log10(value))
    return next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= value * (1 - 1e-9))


# Delays go from microseconds to weeks, so their axis is logarithmic, with ticks where people think.
_DELAYS = (
    (0.0001, "0.1 ms"), (0.001, "1 ms"), (0.01, "10 ms"), (0.1, "0.1 s"), (1, "1 s"), (10, "10 s"), (MINUTE, "1 min"),
    (10 * MINUTE, "10 min"), (HOUR, "1 h"), (6 * HOUR, "6 h"), (DAY, "1 day"), (WEEK, "1 week"), (5 * WEEK, "5 weeks"),
)  # fmt: skip


def delay_scale(lowest: float, highest: float) -> Scale:
    """Return a logarithmic scale of seconds around two of them; what is below the first tick is put on it."""
    values = [value for value, _ in _DELAYS]
    last = min(max(bisect_left(values, highest), 1), len(values) - 1)
    first = min(max(bisect_left(values, lowest * 1.0001) - 1, 0), last - 1)
    begin, end = math.log(values[first]), math.log(values[last])
    ticks = tuple(Tick(value, label) for value, label in _DELAYS[first : last + 1])

    def place(value: float) -> float:
        return min(max((math.log(max(value, values[first])) - begin) / (end - begin), 0.0), 1.0)

    return Scale(place, ticks)


_STEPS = (
    MINUTE, 5 * MINUTE, 15 * MINUTE, 30 * MINUTE, HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR,
    DAY, 2 * DAY, WEEK, 2 * WEEK,
)  # fmt: skip
_MONTHS = (1, 3, 6, 12, 60, 120)


def time_scale(begin: float, end: float, most: int = 9) -> Scale:
    """Return a scale from one time to another, with at most about `most` ticks at full hours, days, Mondays, months."""
    end = max(end, begin + 1)
    span = end - begin
    step = next((step for step in _STEPS if span / step <= most), None)
    values = _by_month(begin, end, most) if step is None else _by_step(begin, end, step)
    ticks = tuple(Tick(value, _time_label(value, step)) for value in values)
    return Scale(lambda value: min(max((value - begin) / span, 0.0), 1.0), ticks)


def _by_step(begin: float, end: float, step: int) -> list[float]:
    # Weeks begin on Mondays; the first of January 1970 was a Thursday.
    offset = 4 * DAY if step % WEEK == 0 else 0
    first = math.ceil((begin - offset) / step)
    values = (value * step + offset for value in range(first, math.floor((end - offset) / step) + 1))
    # A quotient may be rounded to the whole number beside it.
    return [value for value in values if begin <= value <= end]


def _by_month(begin: float, end: float, most: int) -> list[float]:
    step = next((months for months in _MONTHS if (end - begin) / (months * 30 * DAY) <= most), _MONTHS[-1])
    month = moment(begin).year * 12 // step * step
    found: list[float] = []
    while month // 12 < 9999:
        value = datetime(month // 12, month % 12 + 1, 1, tzinfo=UTC).timestamp()
        if value > end:
            break
        if value >= begin:
            found.append(value)
        month += step
    return found


def _time_label(value: float, step: int | None) -> str:
    at = moment(value)
    if step is not None and step < DAY and at.hour + at.minute:
        return f"{at:%H:%M}"
    if step is None:
        return f"{at:%b %Y}" if at.month > 1 else f"{at:%Y}"
    return f"{at.day} {at:%b}"


def moment(value: float) -> datetime:
    """Return Unix seconds as a time in UTC; a stamp beyond what a date can be is put at the end of that."""
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    return epoch + timedelta(seconds=min(max(value, -60_000_000_000), 250_000_000_000))


def when(value: float) -> str:
    """Return a time as a person reads it, to the minute, such as `2026-03-09 14:05`."""
    return f"{moment(value):%Y-%m-%d %H:%M}"


def span(begin: float, end: float) -> str:
    """Return from when to when, the date once where it is one."""
    same = moment(begin).date() == moment(end).date()
    return f"{when(begin)} \N{EN DASH} {moment(end):%H:%M}" if same else f"{when(begin)} \N{EN DASH} {when(end)}"


def plural(number: int, noun: str) -> str:
    """Return a number of things, such as `1 message` and `2 messages`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def count(value: float) -> str:
    """Return a count for an axis, such as `12k`; it has no more than four digits."""
    for size, letter in ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.4g}{letter}"
    return f"{value:.4g}"


def number(value: int) -> str:
    """Return a whole number as a person reads it; one that no log of mail can have is shortened."""
    return f"{value:,}" if abs(value) < 10**12 else count(value)


def size(value: float) -> str:
    """Return a number of bytes in decimal units, such as `1.2 GB`."""
    for unit, letter in ((1e21, "ZB"), (1e18, "EB"), (1e15, "PB"), (1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if abs(value) >= unit:
            return f"{value / unit:.3g} {letter}"
    return f"{value:.0f} B"


def duration(value: float) -> str:
    """Return seconds as a person reads them, with about two figures: `0.034 s`, `2 min 5 s`, `4 d 2 h`.

    Stamps of a log are no finer than a millisecond, whatever digits they have.
    """
    if value < 0:
        return "-" + duration(-value)
    if value < 10:
        return f"{value:.2g} s" if value >= 0.001 or value == 0 else "< 1 ms"
    whole = round(value)
    for unit, name, below, small in ((DAY, "d", HOUR, "h"), (HOUR, "h", MINUTE, "min"), (MINUTE, "min", 1, "s")):
        if whole >= unit:
            rest = whole % unit // below
            return f"{whole // unit} {name} {rest} {small}" if rest else f"{whole // unit} {name}"
    return f"{whole} s"


def share(part: float, whole: float) -> str:
    """Return a part in percent; what is not quite nothing, or not quite all, does not look so."""
    if not whole:
        return "\N{EN DASH}"
    percent = 100 * part / whole
    if 0 < percent < 0.1:
        return "< 0.1 %"
    if 99.9 < percent < 100:
        return "> 99.9 %"
    return f"{percent:.1f} %"


def heights(values: Sequence[Sequence[float]]) -> float:
    """Return the highest sum of the columns of several rows of equal length."""
    return max((sum(column) for column in zip(*values, strict=True)), default=0.0)
