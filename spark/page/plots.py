"""Plots as inline SVG: bands on top of each other and lines over time. Pure: the same values make the same text.

Colours come from the page's style sheet by class, so that they follow light and dark. Each plot has a title and a
description for those who do not see it, and shows its numbers where the pointer rests; nothing needs a script.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from spark.page.markup import Markup, tag
from spark.page.scales import Scale, heights, linear_scale, moment, time_scale, when

WIDTH, HEIGHT = 960, 250
# Of two plots side by side.
SMALL = (470, 190)
LEFT, RIGHT, TOP, BOTTOM = 62, 14, 12, 28


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
        return f"{when(begin)} \N{EN DASH} {end:%H:%M}" if self.length < 86400 else f"{moment(begin):%a %Y-%m-%d}"


class Series(NamedTuple):
    """A value for each bin, with a class of the style sheet. None is a gap, in a line only."""

    name: str
    values: Sequence[float | None]
    mark: str


class Plot(NamedTuple):
    """What a plot is about, for all of them: `write` gives a value in words, `text` says in a sentence what is seen."""

    title: str
    text: str
    bins: Bins
    write: Callable[[float], str]
    width: int = WIDTH
    height: int = HEIGHT

    def x(self, place: float) -> float:
        return LEFT + place * (self.width - LEFT - RIGHT)

    def y(self, place: float) -> float:
        return self.height - BOTTOM - place * (self.height - TOP - BOTTOM)


def bands(plot: Plot, series: Sequence[Series], scale: Scale | None = None) -> Markup:
    """Return a plot of series on top of each other, the first one at the bottom, as steps: one a bin."""
    rows = [[value or 0.0 for value in one.values] for one in series]
    scale = scale or linear_scale(heights(rows))
    below = [0.0] * plot.bins.number
    drawn: list[Markup] = []
    for one, row in zip(series, rows, strict=True):
        above = [low + value for low, value in zip(below, row, strict=True)]
        drawn += _band(plot, scale, below, above, one.mark)
        below = above
    return _svg(plot, scale, drawn, series)


def lines(plot: Plot, scale: Scale, filled: Sequence[Series], drawn: Sequence[Series]) -> Markup:
    """Return a plot of lines over time. `filled` lie behind, from the bottom up, each by itself."""
    floor = [0.0] * plot.bins.number
    shapes: list[Markup] = []
    for one in filled:
        shapes += _band(plot, scale, floor, [value or 0.0 for value in one.values], one.mark)
    for one in drawn:
        shapes.append(tag("path", class_=f"line {one.mark}", d=_line(plot, scale, one.values)))
    return _svg(plot, scale, shapes, [*filled, *drawn])


def _band(plot: Plot, scale: Scale, below: Sequence[float], above: Sequence[float], mark: str) -> list[Markup]:
    """Return the area between two rows of values; nothing where it is empty, and apart where there are gaps."""
    shapes = []
    for first, last in _stretches(below, above):
        up = _steps(plot, scale, above, range(first, last), "M")
        back = _steps(plot, scale, below, range(last - 1, first - 1, -1), "L")
        shapes.append(f"{up}{back}Z")
    return [tag("path", class_=f"area {mark}", d="".join(shapes))] if shapes else []


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
    number, forward = plot.bins.number, bins.step > 0
    parts: list[str] = []
    before: float | None = None
    for i in bins:
        y = plot.y(scale.place(values[i]))
        if y != before:
            edge = plot.x((i if forward else i + 1) / number)
            parts.append(f"{'H' if before is not None else begin}{edge:.1f}{'V' if before is not None else ' '}{y:.1f}")
            before = y
    last = plot.x((bins[-1] + 1 if forward else bins[-1]) / number)
    return "".join(parts) + f"H{last:.1f}"


def _line(plot: Plot, scale: Scale, values: Sequence[float | None]) -> str:
    """Return a line through the middles of the bins, with its gaps; a value alone between two gaps is a dot."""
    parts: list[str] = []
    before = False
    for i, value in enumerate(values):
        if value is not None:
            x, y = plot.x((i + 0.5) / plot.bins.number), plot.y(scale.place(value))
            alone = not before and (i + 1 == len(values) or values[i + 1] is None)
            parts.append(f"{'L' if before else 'M'}{x:.1f} {y:.1f}{'h.1' if alone else ''}")
        before = value is not None
    return "".join(parts)


def _svg(plot: Plot, scale: Scale, shapes: Sequence[Markup], series: Sequence[Series]) -> Markup:
    return svg(
        plot.title,
        plot.text,
        plot.width,
        plot.height,
        *_rules(plot, scale),
        *time_axis(plot.bins.start, plot.bins.end, plot.x, TOP, plot.height - BOTTOM, plot.width),
        tag("g", *shapes),
        *_readings(plot, series),
    )


def svg(title: str, text: str, width: int, height: int, *children: Markup) -> Markup:
    """Return a picture with what a screen reader says of it. It takes the width of its place."""
    return tag(
        "svg", tag("title", title), tag("desc", text), *children,
        class_="plot" if width == WIDTH else "plot small", viewBox=f"0 0 {width} {height}", role="img",
        aria_label=f"{title}. {text}",
    )  # fmt: skip


def _rules(plot: Plot, scale: Scale) -> Iterator[Markup]:
    """Yield the lines across and what stands before them."""
    for i, tick in enumerate(scale.ticks):
        y = plot.y(scale.place(tick.value))
        yield tag("path", class_="rule" if i else "base", d=f"M{LEFT} {y:.1f}H{plot.width - RIGHT}")
        yield tag("text", tick.label, class_="y", x=LEFT - 8, y=y + 4)


def time_axis(
    begin: float, end: float, x: Callable[[float], float], top: float, bottom: float, width: int
) -> Iterator[Markup]:
    """Yield the marks of a time axis, and the times below it. x: from a place (0 to 1) to a coordinate."""
    scale = time_scale(begin, end, 10 if width == WIDTH else 5)
    for tick in scale.ticks:
        at = x(scale.place(tick.value))
        yield tag("path", class_="rule", d=f"M{at:.1f} {top:.1f}V{bottom + 5:.1f}")
        # What is at an end stays inside the picture.
        side = "start" if at < x(0) + 20 else "end" if at > width - 34 else "middle"
        yield tag("text", tick.label, class_="x", x=at, y=bottom + 19, text_anchor=side)


def _readings(plot: Plot, series: Sequence[Series]) -> Iterator[Markup]:
    """Yield a strip over each bin that tells its numbers where the pointer rests on it."""
    width = plot.x(1 / plot.bins.number) - plot.x(0)
    for i in range(plot.bins.number):
        found = [(one.name, one.values[i]) for one in series]
        words = [f"{name}: {plot.write(value)}" for name, value in found if value is not None]
        text = "\n".join([plot.bins.label(i), *reversed(words)])
        yield tag(
            "rect", tag("title", text), class_="hit", x=plot.x(i / plot.bins.number), y=TOP, width=width,
            height=plot.height - TOP - BOTTOM,
        )  # fmt: skip


def legend(series: Sequence[Series], *more: str) -> Markup:
    """Return what the colours mean, in the order from top to bottom."""
    items = [
        tag("li", tag("span", class_=f"key {one.mark}", aria_hidden="true"), one.name) for one in reversed(series)
    ]
    return tag("ul", *items, *(tag("li", text) for text in more), class_="legend")

