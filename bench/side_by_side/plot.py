"""Plots of a rate over time, as text and as SVG. Pure."""

from collections.abc import Mapping, Sequence
from html import escape

_BARS = " ▁▂▃▄▅▆▇█"
_WIDTH, _HEIGHT, _MARGIN = 900, 240, 45
_FONT = 'font-family="sans-serif" font-size="11"'
_COLOURS = ("#1f6f8b", "#b5541c", "#4b7f52", "#7a4b8c")


def text_plot(values: Sequence[float], top: float, width: int = 100) -> str:
    """Return a line of bars, the highest being `top`; several values share a bar where there are more than `width`."""
    if not values or top <= 0:
        return ""
    share = -(-len(values) // width)
    groups = [values[at : at + share] for at in range(0, len(values), share)]
    levels = [sum(group) / len(group) / top for group in groups]
    return "".join(_BARS[min(len(_BARS) - 1, max(0, round(level * (len(_BARS) - 1))))] for level in levels)


def svg_plot(
    title: str, step: float, series: Mapping[str, Sequence[float]], marks: Mapping[str, Sequence[float]]
) -> str:
    """Return an SVG with a line for each series of rates, each value `step` seconds after the one before it.

    `marks` has the seconds at which something begins or ends, by the name of the series whose colour they get.
    """
    most = max((max(values, default=0.0) for values in series.values()), default=0.0) or 1.0
    seconds = max((len(values) * step for values in series.values()), default=0.0) or 1.0

    def x(when: float) -> float:
        return _MARGIN + when / seconds * (_WIDTH - 2 * _MARGIN)

    def y(value: float) -> float:
        return _HEIGHT - _MARGIN - value / most * (_HEIGHT - 2 * _MARGIN)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" {_FONT}>',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        f'<text x="{_MARGIN}" y="16" font-size="13">{escape(title)}</text>',
        f'<path d="M{x(0):.1f} {y(most):.1f}V{y(0):.1f}H{x(seconds):.1f}" fill="none" stroke="black"/>',
        f'<text x="{_MARGIN - 5}" y="{y(most) + 4:.1f}" text-anchor="end">{most:.0f}/s</text>',
        f'<text x="{_MARGIN - 5}" y="{y(0):.1f}" text-anchor="end">0</text>',
        f'<text x="{x(seconds):.1f}" y="{y(0) + 15:.1f}" text-anchor="end">{seconds:.1f} s</text>',
    ]
    for number, (name, values) in enumerate(series.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        points = " ".join(f"{x((at + 0.5) * step):.1f},{y(value):.1f}" for at, value in enumerate(values))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        place = f'x="{_WIDTH - _MARGIN}" y="{16 + 14 * number}" fill="{colour}" text-anchor="end"'
        parts.append(f"<text {place}>{escape(name)}</text>")
        for when in marks.get(name, ()):
            line = f"M{x(when):.1f} {y(0):.1f}V{y(most):.1f}"
            parts.append(f'<path d="{line}" stroke="{colour}" stroke-dasharray="4 3"/>')
    return "\n".join([*parts, "</svg>", ""])
