"""Plots over time as inline SVG, and time lines. Pure: the same values make the same text.

A plot takes the width of its place, and its text keeps its size: across, all is in shares of the width; up and down, in
pixels. Colours come from the style sheet by class, so that they follow light and dark. Each plot has a title and a
description for those who do not see it, and shows its numbers where the pointer rests; nothing needs a script.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from queue_report.page.markup import log_text
from queue_report.page.scales import Bins, Scale, heights, linear_scale, time_scale
from queue_wire.html import Markup, tag

# In pixels: of the plot, above and below the field, and of a plot that stands beside another one.
HEIGHT, SMALL = 230, 170
TOP, BOTTOM = 10, 24

# So few bins are bars, with room between them. So few values of lines are points: with a bar for each bin, without one.
BARS, POINTS, ALONE = 90, 60, 12


class Series(NamedTuple):
    """A value for each bin, with a class of the style sheet. None is a gap, in a line only."""

    name: str
    values: Sequence[float | None]
    mark: str


class Plot(NamedTuple):
    """What a plot is about: `write` gives a value in words, `text` says in a sentence what is seen."""

    title: str
    text: str
    bins: Bins
    write: Callable[[float], str]
    height: int = HEIGHT

    @property
    def field(self) -> int:
        """The height of the field, without the times below it."""
        return self.height - TOP - BOTTOM

    def y(self, place: float) -> float:
        """Return where in the field a place from 0 (bottom) to 1 is."""
        return (1 - place) * self.field


def bands(plot: Plot, series: Sequence[Series], scale: Scale | None = None) -> Markup:
    """Return a plot of series on top of each other, the first one at the bottom: bars, or steps where they are many."""
    rows = [[value or 0.0 for value in one.values] for one in series]
    scale = scale or linear_scale(heights(rows))
    below = [0.0] * plot.bins.number
    drawn: list[Markup] = []
    for one, row in zip(series, rows, strict=True):
        above = [low + value for low, value in zip(below, row, strict=True)]
        drawn += _band(plot, scale, below, above, one.mark)
        below = above
    return _framed(plot, scale, drawn, (), series)


def lines(plot: Plot, scale: Scale, filled: Sequence[Series], drawn: Sequence[Series], spread: bool = False) -> Markup:
    """Return a plot of lines over time; where there are few values, of points.

    filled: areas behind the lines, each from the bottom up. spread: points of one bin are joined from the lowest series
    to the highest.
    """
    floor = [0.0] * plot.bins.number
    shapes: list[Markup] = []
    for one in filled:
        shapes += _band(plot, scale, floor, [value or 0.0 for value in one.values], one.mark)
    known = max((sum(value is not None for value in one.values) for one in drawn), default=0)
    few = known <= (POINTS if spread else ALONE)
    points: list[Markup] = []
    if few and spread:
        shapes += _spreads(plot, scale, drawn)
    for one in drawn:
        if not (few and spread):
            shapes.append(tag("path", class_=f"line {one.mark}", d=_line(plot, scale, one.values)))
        if few:
            points += _points(plot, scale, one)
    return _framed(plot, scale, shapes, points, [*filled, *drawn])


def _band(plot: Plot, scale: Scale, below: Sequence[float], above: Sequence[float], mark: str) -> list[Markup]:
    """Return the area between two rows of values; nothing where it is empty."""
    if plot.bins.number <= BARS:
        parts = [
            f"M{i}.1 {_up(plot, scale, low)}V{_up(plot, scale, high)}H{i}.9V{_up(plot, scale, low)}Z"
            for i, (low, high) in enumerate(zip(below, above, strict=True))
            if high > low
        ]
    else:
        parts = [
            f"{_steps(plot, scale, above, range(first, last), 'M')}"
            f"{_steps(plot, scale, below, range(last - 1, first - 1, -1), 'L')}Z"
            for first, last in _stretches(below, above)
        ]
    return [tag("path", class_=f"area {mark}", d="".join(parts))] if parts else []


def _up(plot: Plot, scale: Scale, value: float) -> str:
    return f"{plot.y(scale.place(value)):.1f}".removesuffix(".0")


def _stretches(below: Sequence[float], above: Sequence[float]) -> Iterator[tuple[int, int]]:
    """Yield (first, last + 1) of each run of bins in which there is anything."""
    first: int | None = None
    for i, (low, high) in enumerate(zip(below, above, strict=True)):
        if high > low and first is None:
            first = i
        elif high <= low and first is not None:
            yield first, i
            first = None
    if first is not None:
        yield first, len(above)


def _steps(plot: Plot, scale: Scale, values: Sequence[float], bins: range, begin: str) -> str:
    """Return the outline of some bins, to the right or to the left."""
    forward = bins.step > 0
    parts: list[str] = []
    before: str | None = None
    for i in bins:
        y = _up(plot, scale, values[i])
        if y != before:
            edge = i if forward else i + 1
            parts.append(f"{begin}{edge} {y}" if before is None else f"H{edge}V{y}")
            before = y
    return "".join(parts) + f"H{bins[-1] + 1 if forward else bins[-1]}"


def _line(plot: Plot, scale: Scale, values: Sequence[float | None]) -> str:
    """Return a line through the middles of the bins, with its gaps; a value alone between two gaps is a dash."""
    parts: list[str] = []
    before = False
    for i, value in enumerate(values):
        if value is not None:
            alone = not before and (i + 1 == len(values) or values[i + 1] is None)
            parts.append(f"{'L' if before else 'M'}{i}.5 {_up(plot, scale, value)}{'h.4' if alone else ''}")
        before = value is not None
    return "".join(parts)


def _spreads(plot: Plot, scale: Scale, drawn: Sequence[Series]) -> list[Markup]:
    """Return a line for each bin from its lowest value to its highest."""
    parts = []
    for i in range(plot.bins.number):
        known = [value for one in drawn if (value := one.values[i]) is not None]
        if len(known) > 1:
            parts.append(f"M{i}.5 {_up(plot, scale, min(known))}V{_up(plot, scale, max(known))}")
    return [tag("path", class_="line spread", d="".join(parts))] if parts else []


def _points(plot: Plot, scale: Scale, one: Series) -> Iterator[Markup]:
    for i, value in enumerate(one.values):
        if value is not None:
            yield tag(
                "circle", class_=one.mark, cx=f"{_percent((i + 0.5) / plot.bins.number)}",
                cy=TOP + plot.y(scale.place(value)), r=2.5,
            )  # fmt: skip


def _percent(place: float) -> str:
    return f"{100 * place:.2f}".rstrip("0").rstrip(".") + "%"


def _framed(
    plot: Plot, scale: Scale, shapes: Sequence[Markup], points: Sequence[Markup], series: Sequence[Series]
) -> Markup:
    """Return the plot with its axes."""
    marks = [(TOP + plot.y(scale.place(tick.value)), tick.label) for tick in scale.ticks]
    rules = [tag("line", class_="rule" if i else "base", x1=0, x2="100%", y1=y, y2=y) for i, (y, _) in enumerate(marks)]
    across = f"0 0 {plot.bins.number} {plot.field}"
    # Bins are one wide here, whatever the width of the plot.
    inner: dict[str, str | float] = {"y": TOP, "width": "100%", "height": plot.field, "viewBox": across}
    inner["preserveAspectRatio"] = "none"
    field = tag(
        "svg", tag("title", plot.title), tag("desc", plot.text), *rules,
        *time_axis(plot.bins.start, plot.bins.end, TOP, plot.height - BOTTOM),
        tag("svg", *shapes, **inner), *points, tag("svg", *_readings(plot, series), class_="hits", **inner),
        class_="field", height=plot.height, role="img", aria_label=f"{plot.title}. {plot.text}",
    )  # fmt: skip
    labels = (tag("text", label, x=44, y=y + 4) for y, label in marks)
    axis = tag("svg", *labels, class_="axis", width=50, height=plot.height, aria_hidden="true")
    return tag("div", axis, field, class_="plot")


def time_axis(begin: float, end: float, top: float, bottom: float) -> Iterator[Markup]:
    """Yield the marks of a time axis, and the times below it; on a phone every other one is left out."""
    scale = time_scale(begin, end)
    for i, tick in enumerate(scale.ticks):
        at = scale.place(tick.value)
        x = _percent(at)
        yield tag("line", class_="rule", x1=x, x2=x, y1=top, y2=bottom + 4)
        # What is at an end stays inside the picture.
        side = "start" if at < 0.03 else "end" if at > 0.96 else "middle"
        yield tag("text", tick.label, class_="few" if i % 2 else None, x=x, y=bottom + 18, text_anchor=side)


def _readings(plot: Plot, series: Sequence[Series]) -> Iterator[Markup]:
    """Yield a strip over each bin with values that tells them where the pointer rests on it."""
    for i in range(plot.bins.number):
        found = [(one.name, one.values[i]) for one in series]
        words = [f"{name}: {plot.write(value)}" for name, value in found if value]
        if words:
            text = "\n".join([plot.bins.label(i), *reversed(words)])
            yield tag("rect", tag("title", text), x=i, width=1, height=plot.field)


# How much of its row a stretch fills, by mark: the kinds differ in height, not in colour alone.
FILLED = {"dead": 14, "deferring": 9, "slow": 4}
ROW = 20


class Stretch(NamedTuple):
    """From begin to end (Unix time, s) something lasted; `mark` is its kind and a class; `text` says what."""

    begin: float
    end: float
    mark: str
    text: str


class Row(NamedTuple):
    """A name, from a log, and its stretches."""

    name: str
    stretches: Sequence[Stretch]


def timeline(title: str, begin: float, end: float, rows: Sequence[Row]) -> Markup:
    """Return a table whose rows are a name and its stretches between two times (Unix, s)."""
    place = time_scale(begin, end).place
    ticks = tag("svg", *time_axis(begin, end, 0, 0), class_="lane", height=BOTTOM, aria_hidden="true")
    body = [
        tag("tr", tag("th", log_text(row.name, 60, word=24), scope="row"), tag("td", _lane(begin, end, place, row)))
        for row in rows
    ]
    foot = tag("tfoot", tag("tr", tag("td", ""), tag("td", ticks)))
    return tag("table", tag("tbody", *body), foot, class_="timeline", aria_label=title)


def _lane(begin: float, end: float, place: Callable[[float], float], row: Row) -> Markup:
    rules = (
        tag("line", class_="rule", x1=_percent(place(tick.value)), x2=_percent(place(tick.value)), y1=0, y2=ROW)
        for tick in time_scale(begin, end).ticks
    )
    drawn = []
    # What fills more lies behind.
    for one in sorted(row.stretches, key=lambda stretch: -FILLED[stretch.mark]):
        left, right = place(one.begin), place(one.end)
        # An outage of five minutes in a year is drawn too, and inside.
        width = max(right - left, 0.003)
        left = min(left, 1 - width)
        high = FILLED[one.mark]
        drawn.append(
            tag(
                "rect", tag("title", one.text), class_=one.mark, x=_percent(left), y=(ROW - high) / 2,
                width=_percent(width), height=high,
            )
        )  # fmt: skip
    base = tag("line", class_="rule", x1=0, x2="100%", y1=ROW / 2, y2=ROW / 2)
    return tag("svg", *rules, base, *drawn, class_="lane", height=ROW, role="img", aria_label=_spoken(row))


def _spoken(row: Row) -> str:
    """Return a row in words, as far as somebody listens."""
    return "; ".join(one.text.partition("\n")[0] for one in row.stretches[:5])
