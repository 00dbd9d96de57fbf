"""A time line: rows of stretches of time, each row with a name. Pure, as plots.py is."""

from collections.abc import Sequence
from typing import NamedTuple

from spark.page.markup import Markup, shown, tag
from spark.page.plots import RIGHT, WIDTH, svg, time_axis
from spark.page.scales import time_scale

NAMES = 208
ROW = 22
TOP = 6
# A stretch is drawn at least so wide, or an outage of five minutes in a year could not be seen.
LEAST = 2.5
# How much of its row a stretch fills, by mark: the kinds differ in height, not in colour alone.
FILLED = {"dead": 0.8, "deferring": 0.5, "slow": 0.25}


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


def timeline(title: str, text: str, begin: float, end: float, rows: Sequence[Row]) -> Markup:
    """Return the plot of rows between two times (Unix, s)."""
    height = TOP + ROW * len(rows) + 30
    bottom = TOP + ROW * len(rows)
    place = time_scale(begin, end).place

    def x(share: float) -> float:
        return NAMES + share * (WIDTH - NAMES - RIGHT)

    drawn: list[Markup] = []
    for i, row in enumerate(rows):
        middle = TOP + ROW * i + ROW / 2
        drawn.append(tag("path", class_="rule", d=f"M{NAMES} {middle:.1f}H{WIDTH - RIGHT}"))
        drawn.append(tag("text", shown(row.name, 28), class_="y", x=NAMES - 8, y=middle + 4))
    shapes: list[Markup] = []
    for i, row in enumerate(rows):
        middle = TOP + ROW * i + ROW / 2
        # What fills more lies behind.
        for one in sorted(row.stretches, key=lambda stretch: -FILLED[stretch.mark]):
            left, right = x(place(one.begin)), x(place(one.end))
            high = ROW * FILLED[one.mark]
            width = max(right - left, LEAST)
            shapes.append(
                tag(
                    "rect",
                    tag("title", one.text),
                    class_=f"area {one.mark}",
                    x=min(left, WIDTH - RIGHT - LEAST),
                    y=middle - high / 2,
                    width=width,
                    height=high,
                    rx=1,
                )
            )
    axis = time_axis(begin, end, x, TOP, bottom, WIDTH)
    return svg(title, text, WIDTH, height, *axis, *drawn, tag("g", *shapes))
