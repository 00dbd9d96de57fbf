"""A table as lines of text: columns side by side, numbers to the right, and never wider than it may be.

Pure: names, kinds, rows and a width in, lines out. A table that is too wide is narrowed in steps, each only if the one
before did not suffice: times lose the fraction of a second and decimals three of their six digits; long texts are cut;
columns are left out, the least important first. A last line says which columns those are.

Widths are in cells of a terminal: a Chinese character takes two, a combining one none.
"""

import unicodedata
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import date, datetime
from decimal import Decimal
from itertools import chain, islice
from typing import NamedTuple

NUMBERS = ("bigint", "decimal")
# The columns are as wide as the heading and these first rows need.
MEASURED = 1000
# What stands for the rest of a text that was cut.
CUT = "…"
# A text is not cut to less than this: free text, and names.
TEXT_MIN, NAME_MIN = 30, 16
# Columns that are left out first, in this order, where a report has them; then numbers, from the right.
MINOR = (
    *("example", "uid", "qp", "key", "rbytes", "sbytes", "span", "at_limit"),
    *("problems", "repeated", "deleted", "untried", "ended", "waiting"),
)
_GAP = "  "


class Layout(NamedTuple):
    """How rows are printed: the columns that are shown, by their place, with their widths; and the names of the others.

    short: times and decimals are shortened.
    """

    shown: tuple[int, ...]
    widths: tuple[int, ...]
    left_out: tuple[str, ...]
    short: bool


def format_table(
    names: Sequence[str],
    kinds: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    width: int | None = None,
    spaced: Collection[str] = (),
) -> Iterator[str]:
    """Yield the lines of a table with a heading. `spaced`: columns of text as the log has it, `_` for a space.

    width: the cells of a line; None is as wide as it comes. What a terminal would obey is escaped also then: one may
    show what `head` or `grep` lets through. Kinds are those of queue_report.reports.engine.Result. Rows pass through;
    only the first are kept for a while.
    """
    texts = _Texts(kinds, [name in spaced for name in names])
    every = iter(rows)
    first = list(islice(every, MEASURED))
    layout = lay_out(names, texts, first, width)
    right = [kinds[place] in NUMBERS for place in layout.shown]

    def line(cells: Iterable[str]) -> str:
        padded = map(pad, cells, layout.widths, right, [width is not None] * len(right))
        return _GAP.join(padded).rstrip()

    yield line(printed(names[place]) for place in layout.shown)
    for row in chain(first, every):
        yield line(texts.cell(row[place], place, layout.short) for place in layout.shown)
    if layout.left_out and width is not None:
        yield cut(_say_left_out(layout.left_out), width)


def format_single(
    names: Sequence[str],
    kinds: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    width: int | None = None,
    spaced: Collection[str] = (),
) -> Iterator[str]:
    """Yield a line for each column: its name and its value. For a table that has one row."""
    texts = _Texts(kinds, [name in spaced for name in names])
    longest = max(map(cells, names))
    for row in rows:
        for place, name in enumerate(names):
            line = f"{pad(printed(name), longest)}{_GAP}{texts.cell(row[place], place, False)}"
            yield line if width is None else cut(line, width)


def lay_out(names: Sequence[str], texts: "_Texts", rows: Sequence[Sequence[object]], width: int | None) -> Layout:
    """Return how to print rows in so many cells."""
    every = tuple(range(len(names)))
    whole = _widths(names, texts, rows, False)
    if width is None or _total(whole) <= width:
        return Layout(every, whole, (), False)
    short = _widths(names, texts, rows, True)
    least = [min(wide, max(cells(names[place]), texts.least(place))) for place, wide in enumerate(short)]
    shown = list(every)
    for place in _by_importance(names, texts, rows):
        if _total([least[kept] for kept in shown]) <= width or len(shown) == 1:
            break
        shown.remove(place)
    widths = _share([short[place] for place in shown], [least[place] for place in shown], width)
    left_out = tuple(name for place, name in enumerate(names) if place not in shown)
    return Layout(tuple(shown), tuple(widths), left_out, True)


def _by_importance(names: Sequence[str], texts: "_Texts", rows: Sequence[Sequence[object]]) -> list[int]:
    """Return the columns, the least important first.

    A text that is the same in each of several rows tells nothing; then come MINOR, the numbers from the right, and
    texts from the right. The first number and the first text come last.
    """
    minor = [names.index(name) for name in MINOR if name in names]
    same = [
        place
        for place in range(len(names))
        if texts.is_text(place) and len(rows) > 1 and len({row[place] for row in rows}) == 1
    ]
    numbers = [place for place in range(len(names)) if texts.is_number(place)]
    others = [place for place in range(len(names)) if not texts.is_number(place)]
    order = [*same, *minor, *reversed(numbers[1:]), *reversed(others[1:]), *numbers[:1], *others[:1]]
    return list(dict.fromkeys(order))


def _share(wanted: Sequence[int], least: Sequence[int], width: int) -> list[int]:
    """Return widths that fit: each column has its least, and what is left goes to the narrowest that want more."""
    given = [min(wide, width) for wide in least]
    left = width - _total(given)
    while left > 0 and (short := [place for place, wide in enumerate(given) if wide < wanted[place]]):
        given[min(short, key=lambda place: given[place])] += 1
        left -= 1
    return given


def _widths(names: Sequence[str], texts: "_Texts", rows: Sequence[Sequence[object]], short: bool) -> tuple[int, ...]:
    return tuple(
        max([cells(printed(name)), *(cells(texts.cell(row[place], place, short)) for row in rows)])
        for place, name in enumerate(names)
    )


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(_GAP) * (len(widths) - 1)


def _say_left_out(names: Sequence[str]) -> str:
    columns = "1 column" if len(names) == 1 else f"{len(names)} columns"
    verb = "does" if len(names) == 1 else "do"
    return f"({columns} {verb} not fit, --wide shows all: {' '.join(names)})"


class _Texts:
    """Makes the text of a cell, by the kind of its column."""

    def __init__(self, kinds: Sequence[str], spaced: Sequence[bool]) -> None:
        self._kinds = kinds
        self._spaced = spaced

    def is_number(self, place: int) -> bool:
        return self._kinds[place] in NUMBERS

    def is_text(self, place: int) -> bool:
        return self._kinds[place] == "text"

    def least(self, place: int) -> int:
        """Return what a column must have at least, if its values are as wide: only texts can be cut."""
        if not self.is_text(place):
            return 10**9
        return TEXT_MIN if self._spaced[place] else NAME_MIN

    def cell(self, value: object, place: int, short: bool) -> str:
        if value is None:
            return "-"
        if isinstance(value, Decimal):
            return f"{value:.3f}" if short else f"{value:.6f}"
        if isinstance(value, datetime):
            return f"{value:%Y-%m-%dT%H:%M:%SZ}" if short else iso(value)
        text = str(value).replace("_", " ") if self._spaced[place] else str(value)
        return printed(text)


def printed(text: str) -> str:
    """Return a text with escapes in the place of what a terminal would obey."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def iso(moment: date) -> str:
    """Return a UTC time (naive) in ISO 8601 with microseconds, a date as such."""
    return f"{moment.isoformat(timespec='microseconds')}Z" if isinstance(moment, datetime) else moment.isoformat()


def cells(text: str) -> int:
    """Return how many cells of a terminal a text takes."""
    return len(text) if text.isascii() else sum(map(_cells_of, text))


def _cells_of(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def cut(text: str, width: int) -> str:
    """Return a text in at most so many cells; CUT stands for what is missing."""
    if cells(text) <= width:
        return text
    taken, room = [], width - len(CUT)
    for character in text:
        room -= _cells_of(character)
        if room < 0:
            break
        taken.append(character)
    return "".join(taken) + CUT


def pad(text: str, width: int, right: bool = False, narrow: bool = False) -> str:
    """Return a text in so many cells, or more if it is wider and not to be cut (`narrow`)."""
    if narrow:
        text = cut(text, width)
    fill = " " * (width - cells(text))
    return fill + text if right else text + fill
