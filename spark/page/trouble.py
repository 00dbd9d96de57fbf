"""The page's section about destinations that were dead, slow or deferring, on a time line."""

from collections.abc import Sequence

from spark.page.data import PageData, Row
from spark.page.markup import Markup, tag
from spark.page.scales import duration, when
from spark.page.tables import Column, figure, log_text, nothing, reason_text, section, table, time_text
from spark.page.timeline import Row as Line
from spark.page.timeline import Stretch, timeline

# Rows of the time line, and of the table below it. What is left out is said.
LINES, EPISODES = 30, 20

KINDS = {"dead": "dead: it could not be reached", "deferring": "deferring: it put mail off", "slow": "slow: over 60 s"}


def destinations(data: PageData) -> Markup:
    about = (
        "An episode is three or more deliveries to a domain that failed for now, or took 60 s, with none between them "
        "that went well."
    )
    rows = data.of("destinations")
    if not rows:
        return section("destinations", "Destinations in trouble", about, nothing("Every destination took its mail."))
    by_domain: dict[str, list[Row]] = {}
    for row in rows:
        by_domain.setdefault(row["domain"], []).append(row)
    worst = sorted(by_domain, key=lambda name: (-sum(row["seconds"] for row in by_domain[name]), name))[:LINES]
    drawn = [
        Line(name or "(none)", [_stretch(row, data) for row in by_domain[name]])
        for name in sorted(worst, key=lambda name: min(row["began"] for row in by_domain[name]))
    ]
    text = f"{len(rows):,} episodes of {len(by_domain):,} domains, in order of their first one"
    if len(by_domain) > LINES:
        text += f"; the {LINES} domains that were in trouble for longest"
    plot = timeline("Episodes of destinations over time", f"{text}.", data.begin, data.end, drawn)
    keys = tag("ul", *(tag("li", tag("span", class_=f"key {kind}", aria_hidden="true"), name)
                       for kind, name in KINDS.items()), class_="legend")  # fmt: skip
    when_ = figure("When", f"{text}.", plot, keys)
    return section("destinations", "Destinations in trouble", about, when_, _longest(data, rows))


def _stretch(row: Row, data: PageData) -> Stretch:
    end = data.end if row["ended"] is None else row["ended"]
    text = f"{row['kind']} on {row['host']}/{row['queue']}: {when(row['began'])} \N{EN DASH} " + (
        "still" if row["ended"] is None else when(row["ended"])
    )
    return Stretch(
        row["began"], end, row["kind"],
        f"{text} ({duration(row['seconds'])})\n{row['attempts']:,} deliveries, {row['held']:,} messages held",
    )  # fmt: skip


def _longest(data: PageData, rows: Sequence[Row]) -> Markup:
    names = ("domain", "kind", "host/queue", "from", "until", "lasted", "deliveries", "held", "first reason")
    keys = ("domain", "kind", "host", "began", "ended", "seconds", "attempts", "held", "reason")
    number = frozenset({"lasted", "deliveries", "held"})
    columns = [
        Column(name, name in number, data.meaning("destinations", key)) for name, key in zip(names, keys, strict=True)
    ]
    body = [
        (
            log_text(row["domain"] or "(none)", 60), row["kind"], log_text(f"{row['host']}/{row['queue']}", 60),
            time_text(row["began"]), "still" if row["ended"] is None else time_text(row["ended"]),
            duration(row["seconds"]), row["attempts"], row["held"], reason_text(row["reason"], 100),
        )
        for row in sorted(rows, key=lambda row: -row["seconds"])[:EPISODES]
    ]  # fmt: skip
    return table(f"The longest {len(body)} episodes", columns, body, "wide")
