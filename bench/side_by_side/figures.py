"""The statistics of rounds: medians, spreads, percentiles and ratios, and the lines that show them. Pure."""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

OURS, THEIRS = "queue-suite", "Postfix"


class Figure(NamedTuple):
    """A figure that each round gives for a side: its name, its unit, and whether more of it is better."""

    name: str
    unit: str
    more_is_better: bool = False


class Summary(NamedTuple):
    """The middle, the least and the greatest of several values."""

    median: float
    least: float
    most: float


def summarize(values: Sequence[float]) -> Summary:
    """Return the summary of some values, at least one."""
    return Summary(statistics.median(values), min(values), max(values))


def percentile(values: Sequence[float], share: float) -> float:
    """Return the least of the values that at least this share of them (0 to 1) does not exceed."""
    ordered = sorted(values)
    # Rounded, because 0.07 * 100 is a little more than 7.
    return ordered[max(0, math.ceil(round(share * len(ordered), 9)) - 1)]


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> Summary | None:
    """Return the summary of ours / theirs, round by round; None where nothing can be divided."""
    pairs = [one / other for one, other in zip(ours, theirs, strict=True) if other > 0]
    return summarize(pairs) if pairs else None


def rates(times: Sequence[float], counts: Sequence[int], begin: float, end: float, step: float) -> list[float]:
    """Return how much a count grew, a second, in each step from `begin` up to `end`.

    `times` and `counts` are samples of it, in order; between two of them it grows evenly.
    """
    found = []
    for number in range(round((end - begin) / step)):
        left = begin + number * step
        found.append((count_at(times, counts, left + step) - count_at(times, counts, left)) / step)
    return found


def count_at(times: Sequence[float], counts: Sequence[int], when: float) -> float:
    """Return a sampled count at a time, on the line between the samples around it."""
    for number in range(1, len(times)):
        if when <= times[number]:
            before, after = times[number - 1], times[number]
            share = 1.0 if after == before else max(0.0, (when - before) / (after - before))
            return counts[number - 1] + share * (counts[number] - counts[number - 1])
    return float(counts[-1]) if counts else 0.0


def shorten(value: float) -> str:
    """Return a number with three digits that say something, and no fraction from 100 on."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.{2 - len(str(int(abs(value)))) + 1 if abs(value) >= 1 else 3}f}"


def table(figures: Sequence[Figure], values: Mapping[str, Mapping[str, Sequence[float]]]) -> list[str]:
    """Return the lines of an experiment: of each figure both sides' median, least and most, and the ratio.

    `values` has, by side and figure, a value for each round. A figure that nobody has is left out.
    """
    lines = [_line("", OURS, THEIRS, "ratio", "better is")]
    for figure in figures:
        found = {side: values.get(side, {}).get(figure.name, []) for side in (OURS, THEIRS)}
        if not any(found.values()):
            continue
        ratio = ratios(found[OURS], found[THEIRS]) if len(found[OURS]) == len(found[THEIRS]) else None
        said = "-" if ratio is None else _show(ratio, "{:.2f}".format)
        better = "more" if figure.more_is_better else "less"
        lines.append(_line(f"{figure.name}, {figure.unit}", _cell(found[OURS]), _cell(found[THEIRS]), said, better))
    return lines


def _line(what: str, ours: str, theirs: str, ratio: str, better: str) -> str:
    return f"  {what:36} {ours:>25} {theirs:>25} {ratio:>20}  {better}"


def _cell(values: Sequence[float]) -> str:
    return _show(summarize(values), shorten) if values else "-"


def _show(found: Summary, shown: Callable[[float], str]) -> str:
    """Return the median, and the range of more than one value."""
    if found.least == found.most:
        return shown(found.median)
    return f"{shown(found.median)} ({shown(found.least)} to {shown(found.most)})"
