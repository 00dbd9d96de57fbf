"""The page's sections about the queue: concurrency, shape, conservation."""

from collections.abc import Sequence

from spark.page.bins import add, fill, make_bins, words
from spark.page.data import Moment, PageData, Row
from spark.page.markup import Markup, shown, tag
from spark.page.plots import SMALL, Bins, Plot, Series, bands, legend, lines
from spark.page.scales import count, duration, linear_scale, share, when
from spark.page.tables import Column, figure, heat, log_text, nothing, section, table, time_text

# Plots of concurrency, and rows of tables. What is left out is said.
CHANNELS, PROBLEMS, STREAMS = 8, 50, 100

def concurrency(data: PageData) -> Markup:
    about = (
        "How many deliveries ran at once, against how many were allowed. Time between two runs of queue-send is not "
        "counted, and is a gap."
    )
    rows = sorted(data.of("concurrency"), key=lambda row: (-row["at_limit_percent"], -row["average"]))
    if not rows:
        return section("concurrency", "Concurrency and limits", about, nothing("The log has no status lines."))
    bins = make_bins(data.begin, data.end)
    chosen = [_name(row) for row in rows[:CHANNELS]]
    hours = data.of("concurrency-hours")
    plots = [
        _flights(bins, name, [row for row in hours if _name(row) == name]) for name in sorted(chosen)
    ]
    series = [Series("average", (), "c1"), Series("most", (), "peak"), Series("limit", (), "limit")]
    names = ("host/queue", "channel", "average", "most", "limit", "at the limit", "of the time", "time seen")
    keys = ("host", "channel", "average", "peak", "limit", "at_limit", "at_limit_percent", "seconds")
    columns = [
        Column(name, i > 1, data.meaning("concurrency", key)) for i, (name, key) in
        enumerate(zip(names, keys, strict=True))
    ]  # fmt: skip
    body = [
        (
            log_text(f"{row['host']}/{row['queue']}", 60), row["channel"], _average(row), row["peak"],
            row["limit"], duration(row["at_limit"]), share(row["at_limit"], row["seconds"]), duration(row["seconds"]),
        )
        for row in rows[:STREAMS]
    ]  # fmt: skip
    title = "Most often at the limit first" + _left_out(len(rows), STREAMS)
    left = "" if len(rows) <= CHANNELS else f" The {CHANNELS} of {len(rows)} that were at their limit for longest."
    text = f"Average and most of {_each(bins)}.{left}"
    return section(
        "concurrency", "Concurrency and limits", f"{about} {text}", legend(series), tag("div", *plots, class_="pair"),
        table(title, columns, body, "wide"),
    )  # fmt: skip


def _flights(bins: Bins, name: str, rows: Sequence[Row]) -> Markup:
    work = fill(bins, ((row["start"], row["average"] * row["seconds"]) for row in rows), add)
    seen = fill(bins, ((row["start"], row["seconds"]) for row in rows), add)
    average = [a / s if a is not None and s else None for a, s in zip(work, seen, strict=True)]
    peak = fill(bins, ((row["start"], row["peak"]) for row in rows), max)
    limit = fill(bins, ((row["start"], row["limit"]) for row in rows), max)
    series = (Series("average", average, "c1"), Series("most", peak, "peak"), Series("limit", limit, "limit"))
    highest = max((value for one in series for value in one.values if value is not None), default=1.0)
    text = f"Deliveries in flight: at most {highest_of(peak):,.0f}, the limit is {highest_of(limit):,.0f}."
    plot = Plot(f"Deliveries in flight, {name}", text, bins, lambda value: f"{value:,.4g}", *SMALL)
    return figure(name, None, lines(plot, linear_scale(highest), series[:1], series[1:]))


def _average(row: Row) -> str:
    # Three digits after the point are known.
    return "< 0.001" if row["peak"] and not row["average"] else f"{row['average']:.2g}"


def highest_of(values: Sequence[float | None]) -> float:
    return max((value for value in values if value is not None), default=0.0)


def _name(row: Row) -> str:
    return shown(f"{row['host']}/{row['queue']}", 60) + f", {row['channel']}"


def _each(bins: Bins) -> str:
    return "each hour" if bins.length == 3600 else f"every {words(bins)}"


# qshape's ten buckets as five, with the class of the style sheet; the first column that follows is in minutes.
AGES = (
    ("under 10 min", ("5", "10"), "a1"),
    ("10 min \N{EN DASH} 1 h 20", ("20", "40", "80"), "a2"),
    ("1 h 20 \N{EN DASH} 5 h 20", ("160", "320"), "a3"),
    ("5 h 20 \N{EN DASH} 21 h 20", ("640", "1280"), "a4"),
    ("older", ("1280+",), "a5"),
)
BUCKETS = tuple(bucket for _, buckets, _ in AGES for bucket in buckets)


def shape(data: PageData) -> Markup:
    about = "What waited, by its age. Old mail that grows is mail that some destination does not take."
    rows = data.of("backlog")
    if not rows:
        return section("queue", "The queue", about, nothing("Nothing waited at any full hour."))
    bins = make_bins(data.begin, data.end)
    hourly = every_hour(rows, data.begin, data.end)
    highest = fill(bins, ((at, row["T"]) for at, row in hourly), max)
    # One hour stands for its bin, the longest queue in it: a sum over hours would count mail twice.
    picked: list[Row | None] = [None] * bins.number
    for at, row in hourly:
        i = int((at - bins.start) // bins.length)
        if 0 <= i < bins.number and (picked[i] is None or row["T"] > (picked[i] or row)["T"]):
            picked[i] = row
    series = [
        Series(name, [None if row is None else sum(row[key] for key in keys) for row in picked], mark)
        for name, keys, mark in AGES
    ]
    top = max(range(bins.number), key=lambda i: highest[i] or 0)
    text = f"At most {int(highest[top] or 0):,} messages, {bins.label(top)}."
    plot = bands(Plot("Messages in the queue, by age", text, bins, count), series)
    hint = "At each full hour." if bins.length == 3600 else f"The longest queue at a full hour of {words(bins)}."
    moments = [_moment(moment) for moment in data.moments]
    return section(
        "queue", "The queue", about, figure("Messages in the queue, by age", f"{text} {hint}", plot, legend(series)),
        *moments,
    )  # fmt: skip


def every_hour(rows: Sequence[Row], begin: float, end: float) -> list[tuple[float, Row]]:
    """Return time and row of each full hour: one without a row was as the one before it."""
    found: list[tuple[float, Row]] = []
    for i, row in enumerate(rows):
        until = rows[i + 1]["at"] if i + 1 < len(rows) else max(end, row["at"] + 1)
        hours = range(int(max(row["at"], begin // 3600 * 3600)), int(min(until, end + 3600)), 3600)
        found += ((hour, row) for hour in hours)
    return found


def _moment(moment: Moment) -> Markup:
    columns = [
        Column("domain", False),
        Column("all"),
        *(Column(bucket.replace("1280+", "1280 +"), True, _minutes(bucket)) for bucket in BUCKETS),
    ]
    each = [row for row in moment.rows if row["domain"] != "TOTAL"]
    highest = max((row[bucket] for row in each for bucket in BUCKETS), default=0)
    body = [
        (
            tag("b", "all") if row["domain"] == "TOTAL" else log_text(row["domain"] or "(none)", 60),
            row["T"],
            *(row[bucket] or "·" if row["domain"] == "TOTAL" else heat(row[bucket], highest) for bucket in BUCKETS),
        )
        for row in moment.rows
    ]
    title = f"{moment.name}, {when(moment.at)}: recipients by domain and age in minutes"
    return table(title, columns, body, "shape")


def _minutes(bucket: str) -> str:
    return "1280 minutes old or older" if bucket == "1280+" else f"younger than {bucket} minutes, in no column before"


def conservation(data: PageData) -> Markup:
    rows = data.of("conservation")
    missing = sum(abs(row["difference"]) for row in rows)
    problems = data.total("conservation", "problems")
    if not rows:
        verdict = nothing("No mail.")
    elif missing or problems:
        text = f"{missing:,} recipients are not accounted for; {problems:,} messages do not add up."
        verdict = tag("p", tag("strong", "✗ "), text, class_="verdict bad")
    else:
        text = f"All {data.total('conservation', 'recipients'):,} recipients are accounted for."
        verdict = tag("p", tag("strong", "✓ "), text, class_="verdict good")
    keys = ("messages", "recipients", "delivered", "failed", "pending", "deleted", "difference", "repeated", "untried")
    columns = [Column("host/queue", False), *(Column(key, True, data.meaning("conservation", key)) for key in keys)]
    first = sorted(rows, key=lambda row: (not (row["difference"] or row["problems"]), row["host"], row["queue"]))
    body = [
        (log_text(f"{row['host']}/{row['queue']}", 60), *(row[key] for key in keys)) for row in first[:STREAMS]
    ]
    about = "Every recipient that was accepted was delivered to, has failed, or waits. The log must show which."
    return section(
        "conservation", "Conservation", about, verdict,
        table("Recipients by host and queue" + _left_out(len(rows), STREAMS), columns, body, "wide") if rows else None,
        _problems(data),
    )  # fmt: skip


def _problems(data: PageData) -> Markup | None:
    rows = data.of("conservation-messages")
    if not rows:
        return None
    keys = ("host", "key", "sender", "born", "ended", "problem", "count")
    columns = [Column(key, key == "count", data.meaning("conservation-messages", key)) for key in keys]
    body = [
        (
            log_text(f"{row['host']}/{row['queue']}", 60), log_text(row["key"]), log_text(row["sender"], 60),
            *(time_text(row[key]) for key in ("born", "ended")), row["problem"], row["count"],
        )
        for row in rows[:PROBLEMS]
    ]  # fmt: skip
    return table("Messages that do not add up" + _left_out(len(rows), PROBLEMS), columns, body, "wide")


def _left_out(number: int, most: int) -> str:
    return f" (the first {most})" if number > most else ""
