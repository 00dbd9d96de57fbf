"""What a page is made of: sections, figures, tables, and text of a log."""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from queue_report.page.scales import number, when
from queue_wire.html import Child, Markup, join, mark_unseen, tag

# The longest text of a log that the page shows whole; a reason may be 1,000 characters, and an address 900.
LONGEST = 160

DASH = "\N{EN DASH}"


def visible(text: str) -> str:
    """Return a log's text with a mark for each invisible character: controls, and those that turn the line.

    Of several marks that stand on one character only the first three are kept: more would cover the lines around.
    """
    shown = mark_unseen(text)
    if shown.isascii():
        return shown
    kept, marks = [], 0
    for c in shown:
        marks = marks + 1 if unicodedata.combining(c) or unicodedata.category(c) in ("Mn", "Me") else 0
        if marks <= 3:
            kept.append(c)
    return "".join(kept)


def shown(text: str, longest: int = LONGEST) -> str:
    """Return a log's text made visible and cut to a length."""
    if len(text) <= longest:
        return visible(text)
    cut = text[: longest - 1]
    # At the end of a word, where one is near.
    words = cut.rpartition(" ")[0]
    return visible(words if len(words) > longest * 2 // 3 else cut) + "…"


# A word that is longer may be broken, after one of some characters or wherever it must.
WORD = 36
_MARKS = "@.,;:/=_&?-"


def log_text(text: str | None, longest: int = LONGEST, class_: str = "log", word: int = WORD) -> Markup:
    """Return text of a log, kept apart from the text around it, whatever its direction of writing.

    Words stay whole, except those of more characters than `word`, which are too long for their column.
    """
    whole = shown(text or "", longest)
    if len(whole) <= word or max(map(len, whole.split()), default=0) <= word:
        return tag("bdi", whole, class_=class_)
    parts: list[Child] = []
    end = 0
    for long in re.finditer(rf"\S{{{word + 1},}}", whole):
        parts.append(whole[end : long.start()])
        for part in re.findall(rf"[^{_MARKS}]{{0,{word - 1}}}[{_MARKS}]|[^{_MARKS}]{{1,{word}}}", long[0]):
            parts += [part, tag("wbr")]
        parts.pop()
        end = long.end()
    return tag("bdi", *parts, whole[end:], class_="log")


def name_text(text: str, longest: int = 60) -> Markup:
    """Return a name from a log (a domain, an address), which is not broken unless it is long."""
    return log_text(text, longest, "log name")


def reason_text(text: str | None, longest: int = LONGEST) -> Markup:
    """Return a reason as a person reads it: `_` stands for a space in the log, `/` for a line's end."""
    plain = re.sub(r"(?<=[^/:])/(?=[A-Z])", " / ", (text or "").rstrip("/").replace("_", " "))
    return log_text(plain, longest)


def reply_text(reason: str, longest: int = LONGEST) -> Markup:
    """Return what the remote host said, where a reason tells that; all of it where it does not."""
    return reason_text(re.sub(r".*?/Remote_host_said:_(?=.)", "", reason, count=1), longest)


def queue_text(host: str, queue: str) -> Markup:
    """Return which queue a row is about."""
    return name_text(f"{host}/{queue}")


def time_text(at: float | None) -> Markup:
    """Return a time (Unix, s) that is not broken into lines."""
    return tag("span", DASH if at is None else when(at), class_="when")


class Column(NamedTuple):
    """A column's head; numbers stand at the right. meaning shows where the pointer rests on the head."""

    name: str
    number: bool = True
    meaning: str | None = None


def table(
    caption: str, columns: Sequence[Column], rows: Iterable[Sequence[Child]], class_: str | None = None
) -> Markup:
    """Return a table; each row's first cell is its head. It scrolls by itself where it is wider than the page."""
    heads = [
        tag("th", column.name, scope="col", class_="number" if column.number else None, title=column.meaning)
        for column in columns
    ]
    body = [tag("tr", *_cells(columns, row)) for row in rows]
    # The span keeps to the window while the table scrolls.
    title = tag("caption", tag("span", caption))
    whole = tag("table", title, tag("thead", tag("tr", *heads)), tag("tbody", *body), class_=class_)
    return tag("div", whole, class_="scroll", tabindex=0, role="region", aria_label=caption)


def _cells(columns: Sequence[Column], row: Sequence[Child]) -> Iterable[Markup]:
    for i, (column, cell) in enumerate(zip(columns, row, strict=True)):
        value = number(cell) if isinstance(cell, int) else cell
        class_ = "number" if column.number else None
        if isinstance(value, Markup) and value.startswith("<td"):
            yield value
        elif i == 0:
            yield tag("th", value, scope="row", class_=class_)
        else:
            yield tag("td", DASH if value is None else value, class_=class_)


def heat(value: int, highest: int) -> Markup:
    """Return a cell whose colour says how large a number is among the others; none for 0."""
    if not value:
        return tag("td", "·", class_="number nothing")
    level = min(8, 1 + int(8 * (value / max(highest, 1)) ** 0.5))
    return tag("td", number(value), class_=f"number h{level}")


def bar(*parts: tuple[str, float]) -> Markup:
    """Return a bar of parts (class, share of the whole)."""
    left, drawn = 0.0, []
    for mark, share in parts:
        width = 100 * min(max(share, 0.0), 1.0)
        if width:
            drawn.append(tag("rect", class_=mark, x=left, width=max(width, 0.6), height=10))
        left += width
    return tag("svg", *drawn, class_="bar", viewBox="0 0 100 10", preserveAspectRatio="none", aria_hidden="true")


def legend(*items: tuple[str, str]) -> Markup:
    """Return what the colours mean; each item is a class of the style sheet and a name."""
    keys = (tag("li", tag("span", class_=f"key {mark}", aria_hidden="true"), name) for mark, name in items)
    return tag("ul", *keys, class_="legend")


def figure(title: str, caption: Child, *content: Markup) -> Markup:
    """Return a plot with its title, its caption and its legend."""
    head = tag("figcaption", tag("h3", title), tag("p", caption) if caption else None)
    return tag("figure", head, *content)


def pair(*content: Markup | None) -> Markup:
    """Return what stands side by side where there is room."""
    return tag("div", *content, class_="pair")


def more(summary: str, content: Markup) -> Markup:
    """Return content that is shown on a click on the summary."""
    return tag("details", tag("summary", summary), content)


def section(name: str, title: str, about: Child, *content: Markup | None) -> Markup:
    """Return a section of the page."""
    return tag("section", tag("h2", title), tag("p", about, class_="about"), join(*content), id=name)


def nothing(text: str) -> Markup:
    return tag("p", text, class_="nothing")


def left_out(number: int, most: int) -> str:
    """Return what a title says where a table has only the first of some rows."""
    return f" (the first {most} of {number:,})" if number > most else ""
