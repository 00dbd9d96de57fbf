"""The page's sections about the suite itself: concurrency, conservation, and what was read of its logs."""

from collections.abc import Mapping, Sequence

from queue_report.page.data import ALERT, CRASHED, DIED, Channel, PageData
from queue_report.page.markup import (
    Column,
    figure,
    left_out,
    legend,
    log_text,
    name_text,
    nothing,
    queue_text,
    section,
    shown,
    table,
    time_text,
)
from queue_report.page.plots import SMALL, Plot, Series, lines
from queue_report.page.scales import duration, linear_scale, share
from queue_report.schema.columns import UNREADABLE
from queue_wire.html import Child, Markup, tag

# Rows of tables. What is left out is said.
STREAMS, PROBLEMS = 50, 50


def concurrency(data: PageData) -> Markup:
    about = (
        "How many deliveries ran at once, against how many were allowed. Time between two runs of queue-send is not "
        "counted, and is a gap."
    )
    rows = sorted(data.channels, key=lambda row: (-row.full / row.seconds, -row.average, row.host, row.queue))
    if not rows:
        return section("concurrency", "Concurrency and limits", about, nothing("The log has no status lines."))
    names: dict[tuple[str, str, str], list[Channel]] = {}
    for row in data.flights:
        names.setdefault((row.host, row.queue, row.channel), []).append(row)
    plots = [
        _flights(data, ", ".join((shown(f"{host}/{queue}", 60), channel)), found)
        for (host, queue, channel), found in sorted(names.items())
        if max(row.peak for row in found)
    ]
    keys = legend(("c1", "average"), ("peak", "most"), ("limit", "limit"))
    columns = (
        Column("host/queue", False), Column("channel", False), Column("average"), Column("most"), Column("limit"),
        Column("at the limit"), Column("of the time"), Column("time seen"),
    )  # fmt: skip
    body = [
        (
            queue_text(row.host, row.queue), row.channel, _average(row), row.peak, row.limit, duration(row.full),
            share(row.full, row.seconds), duration(row.seconds),
        )
        for row in rows[:STREAMS]
    ]  # fmt: skip
    streams = len({(row.host, row.queue) for row in rows})
    few = len({(row.host, row.queue) for row in data.flights})
    text = "" if streams <= few else f" Plots are of the {few} busiest of {streams:,} queues."
    return section(
        "concurrency", "Concurrency and limits", about + text, keys, tag("div", *plots, class_="pair"),
        table("Most often at the limit first" + left_out(len(rows), STREAMS), columns, body, "wide"),
    )  # fmt: skip


def _flights(data: PageData, name: str, rows: Sequence[Channel]) -> Markup:
    found: list[list[float | None]] = [[None] * data.bins.number for _ in range(3)]
    for row in rows:
        if 0 <= row.bin < data.bins.number:
            for values, value in zip(found, (row.average, row.peak, row.limit), strict=True):
                values[row.bin] = value
    average, peak, limit = (
        Series(text, values, mark)
        for text, values, mark in zip(("average", "most", "limit"), found, ("c1", "peak", "limit"), strict=True)
    )
    most, allowed = (max((value for value in one.values if value is not None), default=0.0) for one in (peak, limit))
    text = f"In flight: at most {most:,.0f}, the limit is {allowed:,.0f}."
    plot = Plot(f"Deliveries in flight, {name}", text, data.bins, lambda value: f"{value:,.4g}", SMALL)
    return figure(name, text, lines(plot, linear_scale(max(most, allowed, 1.0)), [average], [peak, limit]))


def _average(row: Channel) -> str:
    return "< 0.01" if 0 < row.average < 0.01 else f"{row.average:,.3g}"


def conservation(data: PageData) -> Markup:
    rows = data.conserved
    missing = sum(abs(row.difference) for row in rows)
    problems = sum(row.problems for row in rows)
    if not rows:
        verdict = nothing("No mail.")
    elif missing or problems:
        text = f"{missing:,} recipients are not accounted for; {problems:,} messages do not add up."
        verdict = tag("p", tag("strong", "✗ "), text, class_="verdict bad")
    else:
        text = f"All {sum(row.recipients for row in rows):,} recipients are accounted for."
        verdict = tag("p", tag("strong", "✓ "), text, class_="verdict good")
    keys = (
        "messages", "recipients", "delivered", "stored", "failed", "pending", "deleted", "difference", "repeated",
        "untried",
    )  # fmt: skip
    columns = (Column("host/queue", False), *(Column(key) for key in keys))
    first = sorted(rows, key=lambda row: (not (row.difference or row.problems), row.host, row.queue))
    body = [(queue_text(row.host, row.queue), *(getattr(row, key) for key in keys)) for row in first[:STREAMS]]
    about = "Every recipient that was accepted was delivered to, is stored, has failed, or waits. The log must show it."
    return section(
        "conservation", "Conservation", about, verdict,
        table("Recipients by host and queue" + left_out(len(rows), STREAMS), columns, body, "wide") if rows else None,
        _problems(data, problems),
    )  # fmt: skip


def _problems(data: PageData, problems: int) -> Markup | None:
    if not data.problems:
        return None
    columns = (
        Column("host/queue", False), Column("key", False), Column("sender", False), Column("born", False),
        Column("ended", False), Column("problem", False), Column("count"),
    )  # fmt: skip
    body = [
        (
            queue_text(row.host, row.queue), log_text(row.key, 60), log_text(row.sender, 60), time_text(row.born),
            time_text(row.ended), row.problem, row.count_,
        )
        for row in data.problems[:PROBLEMS]
    ]  # fmt: skip
    return table("Messages that do not add up" + left_out(problems, PROBLEMS), columns, body, "wide")


def reading(data: PageData) -> Markup:
    total = sum(sum(kinds.values()) for kinds in data.lines.values())
    bad = sum(kinds.get(UNREADABLE, 0) for kinds in data.lines.values())
    about = (
        f"{_lines(total)} read up to build {data.build:,} of the lake, {data.built[:19].replace('T', ' ')} UTC. "
        + (f"{_lines(bad)} not understood, and put into quarantine. " if bad else "All were understood. ")
        + "A run of queue-send ends with a line that says so; one that lost a daemon says that before, and one that "
        "was killed says nothing. These counts are of all that was ever read."
    )
    lasts = {f"{stream.host}/{stream.queue}": stream.last for stream in data.streams}
    columns = (
        Column("host/queue", False), Column("last line", False), Column("lines"), Column("messages"),
        Column("deliveries"), Column("clean stops"), Column("daemon lost"), Column("crashes"), Column("alerts"),
        Column("warnings"), Column("quarantined"),
    )  # fmt: skip
    worst = sorted(data.lines, key=lambda name: (-_trouble(data.lines[name]), name))
    body: list[tuple[Child, ...]] = [
        (
            log_text(name, 60), time_text(lasts.get(name)), sum(kinds.values()),
            *(kinds.get(kind, 0) for kind in
              ("info", "done", "exiting", DIED, CRASHED, "alert", "warning", UNREADABLE)),
        )
        for name in worst[:STREAMS]
        for kinds in (data.lines[name],)
    ]  # fmt: skip
    title = "Lines read" + left_out(len(worst), STREAMS)
    return section(
        "reading", "What was read", about, table(title, columns, body, "wide") if body else nothing("Nothing yet."),
        _alerts(data), _quarantine(data),
    )  # fmt: skip


def _trouble(kinds: Mapping[str, int]) -> int:
    return sum(kinds.get(kind, 0) for kind in (DIED, CRASHED, "alert", UNREADABLE))


def _lines(number: int) -> str:
    return "1 line was" if number == 1 else f"{number:,} lines were"


def _alerts(data: PageData) -> Markup | None:
    if not data.alerts:
        return None
    columns = (Column("kind", False), Column("lines"), Column("last", False), Column("host/queue", False),
               Column("what it says", False))  # fmt: skip
    body = [
        (
            tag("strong", row.kind, class_="bad") if row.kind == ALERT else row.kind, row.lines, time_text(row.last),
            name_text(row.queue + (f" and {row.queues - 1:,} more" if row.queues > 1 else "")), log_text(row.text),
        )
        for row in data.alerts
    ]  # fmt: skip
    title = "Alerts and warnings: those of the last day first, then the most frequent"
    return table(title, columns, body, "wide words")


def _quarantine(data: PageData) -> Markup | None:
    if not data.quarantined:
        return None
    columns = (Column("host/queue", False), Column("file", False), Column("line"), Column("reason", False),
               Column("text", False))  # fmt: skip
    body = [
        (queue_text(row.host, row.queue), log_text(row.file, 80), row.line, row.reason, log_text(row.text, 120))
        for row in data.quarantined
    ]
    return table("Some of what could not be read", columns, body, "wide words")
