"""The page's beginning, with what matters at a glance; and what was read, and what could not be."""

from spark.page.data import UNREADABLE, PageData
from spark.page.markup import Child, Markup, shown, tag
from spark.page.scales import duration, share, size, when
from spark.page.tables import Column, log_text, nothing, section, table

STREAMS = 100


def head(data: PageData) -> Markup:
    """Return the title, what the page covers, and the numbers in large."""
    streams = len(data.lines)
    covers = f"{when(data.begin)} \N{EN DASH} {when(data.end)} UTC" if data.end > data.begin else "no time at all"
    queues = "1 queue" if streams == 1 else f"{streams:,} queues"
    only = f" · {shown(data.only)}" if data.only else ""
    said = tag("p", tag("b", covers), f" · {queues}{only}", class_="covers")
    return tag("header", tag("h1", "Mail queues"), said, _tiles(data))


def _tiles(data: PageData) -> Markup:
    total = {key: data.total("hours", key) for key in ("received", "bytes", "delivered", "deferred", "bounced")}
    attempts = total["delivered"] + total["deferred"] + total["bounced"]
    ends = (("delivered", "delivered"), ("deferred", "deferred"), ("failed", "bounced"))
    found = [("received", f"{total['received']:,}", f"messages, {size(total['bytes'])}")]
    for name, key in ends:
        text = f"{share(total[key], attempts)} of attempts" if attempts else "no attempts"
        found.append((name, f"{total[key]:,}", text))
    times = data.of("delays")
    if times and times[0]["queue_p50"] is not None:
        found.append(("queue time", duration(times[0]["queue_p50"]), f"median; p99: {duration(times[0]['queue_p99'])}"))
    if data.of("backlog"):
        last = data.of("backlog")[-1]
        found.append(("waiting", f"{last['T']:,}", "messages at the last full hour"))
    tiles = [
        tag("div", tag("dt", name), tag("dd", number, class_="large"), tag("dd", text), class_="tile")
        for name, number, text in found
    ]
    return tag("dl", *tiles, class_="tiles")


def reading(data: PageData) -> Markup:
    """Return what the lake was made of, and the lines that nobody could read."""
    total = sum(sum(kinds.values()) for kinds in data.lines.values())
    bad = sum(kinds.get(UNREADABLE, 0) for kinds in data.lines.values())
    about = (
        f"{_lines(total)} read up to build {data.build:,} of the lake, {data.made[:19].replace('T', ' ')} UTC. "
        + (f"{_lines(bad)} not understood, and put into quarantine." if bad else "All were understood.")
    )
    columns = [Column("host/queue", False), *(Column(name) for name in ("lines", "messages", "deliveries",
               "clean stops", "alerts, warnings", "quarantined"))]  # fmt: skip
    worst = sorted(data.lines, key=lambda name: (-data.lines[name].get(UNREADABLE, 0), name))
    body: list[tuple[Child, ...]] = [
        (
            log_text(name, 60),
            sum(kinds.values()),
            *(sum(kinds.get(kind, 0) for kind in several) for several in
              (("info",), ("done",), ("exiting",), ("alert", "warning"), (UNREADABLE,))),
        )
        for name in worst[:STREAMS]
        for kinds in (data.lines[name],)
    ]  # fmt: skip
    title = "Lines read" + (f" (the first {STREAMS} queues)" if len(worst) > STREAMS else "")
    return section(
        "reading", "What was read", about, table(title, columns, body) if body else nothing("Nothing yet."),
        _quarantine(data),
    )  # fmt: skip


def _lines(number: int) -> str:
    return "1 line was" if number == 1 else f"{number:,} lines were"


def _quarantine(data: PageData) -> Markup | None:
    rows = data.of("quarantine")
    if not rows:
        return None
    columns = [Column("host/queue", False), Column("file", False), Column("line"), Column("reason", False),
               Column("text", False)]  # fmt: skip
    body = [
        (
            log_text(f"{row['host']}/{row['queue']}", 60), log_text(row["file"], 80), row["line"], row["reason"],
            log_text(row["text"], 120),
        )
        for row in rows
    ]  # fmt: skip
    return table("Some of what could not be read", columns, body, "wide")
