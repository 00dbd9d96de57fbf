"""The page's section about the queue: what waits now, and how much waited before."""

from itertools import pairwise

from queue_report.page.data import AGE_LIMITS, UNTRIED, PageData, Waiting
from queue_report.page.markup import (
    Column,
    bar,
    figure,
    heat,
    left_out,
    legend,
    name_text,
    nothing,
    pair,
    queue_text,
    reason_text,
    section,
    table,
)
from queue_report.page.plots import Plot, Series, bands
from queue_report.page.scales import MINUTE, count, duration, plural, when
from queue_wire.html import Child, Markup, tag

# What each of AGES is called, with the class of the style sheet.
AGE_NAMES = (
    ("under 10 min", "a1"),
    ("10 min \N{EN DASH} 1 h 20", "a2"),
    ("1 h 20 \N{EN DASH} 5 h 20", "a3"),
    ("5 h 20 \N{EN DASH} 21 h 20", "a4"),
    ("older", "a5"),
)
_AGES = [duration(limit * MINUTE) for limit in AGE_LIMITS]
AGE_ROWS = (
    f"under {_AGES[0]}",
    *(f"{low} \N{EN DASH} {high}" for low, high in pairwise(_AGES)),
    f"{_AGES[-1]} and more",
)
# Of columns; the row says the unit.
_HEADS = (*(f"< {limit}" for limit in AGE_LIMITS), f"{AGE_LIMITS[-1]} +")

_STATES = {
    "flying": "(being delivered for the first time)",
    "lost": "(in flight at a crash, and not tried since)",
    "untried": "(not yet tried: it is new, or its destination is dead)",
}


def queue(data: PageData) -> Markup:
    at = "" if data.last is None else f", {when(data.last)} UTC"
    about = f"What waits at the end of the log{at}, and how much waited before. A recipient is as old as its message."
    return section("queue", "The queue now", about, *_now(data), _history(data))


def _now(data: PageData) -> list[Markup]:
    whole = data.part("all")
    if not whole or not whole[0].messages:
        return [tag("p", tag("strong", "✓ "), "Nothing waits.", class_="verdict good")]
    return [pair(_ages(whole[0]), _reasons(data)), _domains(data), _oldest(data)]


def _ages(whole: Waiting) -> Markup:
    highest = max(whole.ages)
    rows = [
        (name, messages or None, bar(("c1", messages / highest)))
        for name, messages in zip(AGE_ROWS, whole.ages, strict=True)
    ]
    return table("Messages by age", (Column("age", False), Column("messages"), Column("", False)), rows, "wide")


def _reasons(data: PageData) -> Markup:
    rows = data.part("reason")
    highest = max(row.recipients for row in rows)
    columns = (Column("reason of the last deferral", False), Column("recipients"), Column("", False), Column("oldest"))
    body: list[tuple[Child, ...]] = [
        (why(row), row.recipients, bar(("deferred", row.recipients / highest)), age_text(data, row.oldest))
        for row in rows
    ]
    return table("Recipients by reason", columns, body, "wide first")


def why(row: Waiting) -> Markup:
    """Return why a part of the queue waits."""
    return tag("span", _STATES[row.state]) if row.state in _STATES and not row.reason else reason_text(row.reason, 120)


def age_text(data: PageData, since: float | None) -> Markup:
    """Return how long before the end of the log something was."""
    age = None if since is None or data.last is None else max(data.last - since, 0)
    return tag("span", "\N{EN DASH}" if age is None else duration(age), class_="when")


def _domains(data: PageData) -> Markup:
    rows = data.part("domain")
    all_ = sum(row.recipients for row in data.part("recipients")), sum(row.domains for row in data.part("recipients"))
    highest = max((value for row in rows for value in row.ages), default=0)
    columns = (
        Column("domain", False), Column("all"), Column("oldest"),
        *(Column(name, True, text) for name, text in zip(_HEADS, AGE_ROWS, strict=True)),
    )  # fmt: skip
    body: list[tuple[Child, ...]] = [
        (
            tag("span", row.domain) if row.domain == UNTRIED else name_text(row.domain or "(none)"),
            row.recipients, age_text(data, row.oldest), *(heat(value, highest) for value in row.ages),
        )
        for row in rows
    ]  # fmt: skip
    title = f"{all_[0]:,} recipients by domain and age in minutes{left_out(all_[1], len(rows))}"
    return table(title, columns, body, "wide shape")


def _oldest(data: PageData) -> Markup:
    rows = data.part("oldest")
    columns = (
        Column("age", False), Column("host/queue", False), Column("message"), Column("sender", False),
        Column("waits for", False), Column("recipients"), Column("reason of the last deferral", False),
    )  # fmt: skip
    body = [
        (
            age_text(data, row.oldest), queue_text(row.host, row.queue), str(row.id), _sender(row.sender),
            name_text(row.domain + (f" and {row.domains - 1} more" if row.domains > 1 else "")),
            row.recipients, why(row),
        )
        for row in rows
    ]  # fmt: skip
    return table("The oldest messages", columns, body, "wide words")


def _sender(sender: str | None) -> Markup:
    return name_text("not in the log" if sender is None else f"<{sender}>")


def _history(data: PageData) -> Markup:
    totals = [sum(column) for column in zip(*data.backlog, strict=True)]
    title = "Messages in the queue, by age"
    if not any(totals):
        return nothing("Nothing waited at the end of any " + f"{data.bins.each()} before, either." if totals else "")
    series = [Series(name, values, mark) for (name, mark), values in zip(AGE_NAMES, data.backlog, strict=True)]
    top = max(range(len(totals)), key=totals.__getitem__)
    text = f"At the end of each {data.bins.each()}. The most: {plural(totals[top], 'message')}, {data.bins.label(top)}."
    keys = legend(*((mark, name) for name, mark in AGE_NAMES))
    return figure(title, text, keys, bands(Plot(title, text, data.bins, count), series))
