"""The page's section about the queue: what waits now, and how much waited before."""

from spark.page.data import AGE_LIMITS, AGES, UNTRIED, PageData, Waiting
from spark.page.markup import (
    Child,
    Column,
    Markup,
    bar,
    figure,
    heat,
    join,
    left_out,
    legend,
    log_text,
    nothing,
    pair,
    queue_text,
    reason_text,
    section,
    table,
    tag,
)
from spark.page.plots import Plot, Series, bands
from spark.page.scales import HOUR, MINUTE, count, duration, number, when

# What each of AGES is called, with the class of the style sheet.
AGE_NAMES = (
    ("under 10 min", "a1"), (f"10 min \N{EN DASH} 1 h 20", "a2"), (f"1 h 20 \N{EN DASH} 5 h 20", "a3"),
    (f"5 h 20 \N{EN DASH} 21 h 20", "a4"), ("older", "a5"),
)  # fmt: skip

STATES = {"flying": "in flight", "lost": "in flight at a crash, not yet tried again", "untried": "not yet tried"}


def queue(data: PageData) -> Markup:
    return section("queue", "The queue now", _about(data), *_now(data), _history(data))


def _about(data: PageData) -> str:
    at = "" if data.last is None else f", {when(data.last)} UTC"
    return (
        f"What waits at the end of the log{at}. The age of a recipient is that of its message. The log names a "
        f"recipient when it is first tried; a message of which none was tried yet is {UNTRIED}."
    )


def _now(data: PageData) -> list[Markup | None]:
    (all_,) = data.part("all") or (None,)
    if all_ is None or not all_.messages:
        return [tag("p", tag("strong", "✓ "), "Nothing waits.", class_="verdict good")]
    return [
        pair(_ages(all_), _reasons(data)),
        _domains(data),
        _oldest(data),
    ]


def _ages(all_: Waiting) -> Markup:
    """Return how many messages are of each age."""
    highest = max(all_.ages)
    rows = [
        (name, messages or "·", bar(("c1", messages / highest)))
        for name, messages in zip(_limits(), all_.ages, strict=True)
    ]
    columns = [Column("age", False), Column("messages"), Column("", False)]
    return table(f"By age: {_messages(all_.messages)}", columns, rows, "wide")


def _limits() -> list[str]:
    low = [f"{DASHED(limit)}" for limit in (0, *AGE_LIMITS)]
    return [f"{a} \N{EN DASH} {b}" if a != "0 s" else f"under {b}" for a, b in zip(low, low[1:], strict=False)] + [
        f"{low[-1]} and older"
    ]


def _reasons(data: PageData) -> Markup:
    """Return why recipients wait: the reason of the last deferral."""
    rows = data.part("reason")
    highest = max(row.recipients for row in rows)
    body = [
        (_reason(row), row.recipients, bar(("c2", row.recipients / highest)), _age(data, row))
        for row in rows
    ]
    columns = [Column("reason of the last deferral", False), Column("recipients"), Column("", False), Column("oldest")]
    return table("By reason", columns, body, "wide reasons")
