"""Plots of the last hours as inline SVG. Pure: the same values make the same text.

A plot takes the width of its place: across, all is in shares of the width. Colours come from the style sheet by class,
so that they follow light and dark. Each has a sentence for those who do not see it; nothing needs a script.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from math import floor, log10
from typing import NamedTuple

from queue_wire.html import Markup, join, tag

HEIGHT, TOP, BOTTOM, LEFT = 150, 8, 20, 46
FIELD = HEIGHT - TOP - BOTTOM
_STEPS = (300, 900, 1800, 3600, 7200)  # Seconds between two marks of the time axis.
BINS = 240  # At most so many values are drawn; with more, each is the highest of its share.


class PlotLine(NamedTuple):
    """A value at each time, None in a gap, with a class of the style sheet."""

    name: str
    values: Sequence[float | None]
    mark: str


def plot(title: str, times: Sequence[float], series: Sequence[PlotLine], write: Callable[[float], str]) -> Markup:
    """Return a figure of lines over time. `times` are in seconds since the epoch, in their order."""
    keys = [tag("li", tag("span", class_=f"key {one.mark}", aria_hidden="true"), _now(one, write)) for one in series]
    head = tag("figcaption", tag("h3", title), tag("ul", *keys, class_="legend"))
    if len(times) < 2:
        return tag("figure", head, tag("p", "There will be a line when there are some samples.", class_="soft"))
    begin, end = times[0], times[-1]
    top = nice_top(max((value for one in series for value in one.values if value is not None), default=0.0))
    rules, texts = [], []
    for share in (0.0, 0.5, 1.0):
        y = TOP + FIELD * (1 - share)
        rules.append(tag("line", class_="rule", x1="0", x2="100%", y1=y, y2=y))
        texts.append(tag("text", write(top * share), x=LEFT - 6, y=y + 4, text_anchor="end"))
    marks: list[Markup] = []
    for at in time_marks(begin, end):
        share = 100 * (at - begin) / (end - begin)
        anchor = "start" if share < 4 else "end" if share > 96 else "middle"
        text = f"{datetime.fromtimestamp(at, UTC):%H:%M}"
        marks.append(tag("text", text, x=f"{share:.2f}%", y=HEIGHT - 5, text_anchor=anchor))
    lines = [
        tag("path", class_=f"line {one.mark}", d=_path(times, one.values, top), vector_effect="non-scaling-stroke")
        for one in series
    ]
    stretched = {"viewBox": "0 0 1000 100", "preserveAspectRatio": "none", "width": "100%"}
    drawn = tag("svg", *lines, y=TOP, height=FIELD, **stretched)
    axis = tag("svg", *texts, class_="axis", width=LEFT, height=HEIGHT, aria_hidden="true")
    said = _say(title, series, write)
    field = tag("svg", *rules, *marks, drawn, class_="field", height=HEIGHT, role="img", aria_label=said)
    return tag("figure", head, tag("div", axis, field, class_="plot"))


def nice_top(highest: float) -> float:
    """Return the end of an axis: 1, 2 or 5 times a power of ten that is not below the highest value."""
    if highest <= 0:
        return 1.0
    power = 10.0 ** floor(log10(highest))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= highest * 0.999999)


def time_marks(begin: float, end: float) -> list[float]:
    """Return the full hours, or parts of hours, between two times; at most 8."""
    step = next((one for one in _STEPS if (end - begin) / one <= 7), _STEPS[-1])
    first = int(begin // step + 1) * step
    return [float(at) for at in range(first, int(end) + 1, step)][:8]


def _path(times: Sequence[float], values: Sequence[float | None], top: float) -> str:
    """Return the line of one series, with gaps, in a field of 1000 by 100."""
    begin, length = times[0], times[-1] - times[0]
    share = max(1, -(-len(values) // BINS))
    parts: list[str] = []
    drawing = False
    for at in range(0, len(values), share):
        known = [value for value in values[at : at + share] if value is not None]
        if not known:
            drawing = False
            continue
        x = 1000 * (times[min(at + share, len(times)) - 1] - begin) / length
        y = 100 * (1 - max(known) / top)
        # A value between two gaps is a dot.
        parts.append(f"{'L' if drawing else 'M'}{x:.1f} {y:.1f}" + ("" if drawing else "h.01"))
        drawing = True
    return "".join(parts)


def _now(series: PlotLine, write: Callable[[float], str]) -> Markup:
    last = series.values[-1] if series.values else None
    return join(f"{series.name} ", tag("b", "\N{EN DASH}" if last is None else write(last)))


def _say(title: str, series: Sequence[PlotLine], write: Callable[[float], str]) -> str:
    parts = []
    for one in series:
        known = [value for value in one.values if value is not None]
        if known:
            least, most, last = write(min(known)), write(max(known)), write(known[-1])
            parts.append(f"{one.name}: lowest {least}, highest {most}, last {last}")
    return f"{title}. " + "; ".join(parts)
