"""Tables, and the frame that plots and tables stand in."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from spark.page.markup import Child, Markup, join, shown, tag
from spark.page.scales import when


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
    return scrolling(whole, caption)


def _cells(columns: Sequence[Column], row: Sequence[Child]) -> Iterable[Markup]:
    for i, (column, cell) in enumerate(zip(columns, row, strict=True)):
        value = f"{cell:,}" if isinstance(cell, int) else cell
        class_ = "number" if column.number else None
        if isinstance(value, Markup) and value.startswith("<td"):
            yield value
        elif i == 0:
            yield tag("th", value, scope="row", class_=class_)
        else:
            yield tag("td", "\N{EN DASH}" if value is None else value, class_=class_)


def log_text(text: str | None, longest: int = 160) -> Markup:
    """Return text of a log: kept apart from the text around it, whatever its direction of writing."""
    return tag("bdi", shown(text or "", longest), class_="log")


def reason_text(text: str | None, longest: int = 160) -> Markup:
    """Return a reason as a person reads it: `_` stands for a space in the log, `/` at the end for a line's end."""
    return log_text((text or "").rstrip("/").replace("_", " "), longest)


def time_text(at: float | None) -> Markup:
    """Return a time (Unix, s) that is not broken into lines."""
    return tag("span", "\N{EN DASH}" if at is None else when(at), class_="when")


def heat(value: int, highest: int) -> Markup:
    """Return a cell whose colour says how large a number is among the others; none for 0."""
    if not value:
        return tag("td", "·", class_="number nothing")
    level = min(8, 1 + int(8 * (value / max(highest, 1)) ** 0.5))
    return tag("td", f"{value:,}", class_=f"number h{level}")


def bar(*parts: tuple[str, float]) -> Markup:
    """Return a bar of parts (class, share of the whole)."""
    left, drawn = 0.0, []
    for mark, share in parts:
        width = 100 * min(max(share, 0.0), 1.0)
        if width:
            drawn.append(tag("rect", class_=f"area {mark}", x=left, y=0, width=width, height=10))
        left += width
    return tag("svg", *drawn, class_="bar", viewBox="0 0 100 10", preserveAspectRatio="none", aria_hidden="true")


def scrolling(content: Markup, name: str) -> Markup:
    """Return what may be wider than the page in a frame that scrolls, by keyboard too."""
    return tag("div", content, class_="scroll", tabindex=0, role="region", aria_label=name)


def figure(title: str, caption: Child, plot: Markup, *below: Markup) -> Markup:
    """Return a plot with its title, its caption and its legend."""
    head = tag("figcaption", tag("h3", title), tag("p", caption) if caption else None)
    return tag("figure", head, *below, scrolling(plot, title))


def more(summary: str, content: Markup) -> Markup:
    """Return what is there for those who ask."""
    return tag("details", tag("summary", summary), content)


def section(name: str, title: str, about: Child, *content: Markup | None) -> Markup:
    """Return a section of the page."""
    return tag("section", tag("h2", title), tag("p", about, class_="about"), join(*content), id=name)


def nothing(text: str) -> Markup:
    return tag("p", text, class_="nothing")
