"""The page's sections about mail: who sent it, volume, delays, failures and deferrals by class."""

from collections.abc import Callable, Sequence

from queue_report.page.data import Attempts, Delays, Origin, PageData
from queue_report.page.markup import (
    DASH,
    Column,
    bar,
    figure,
    legend,
    more,
    name_text,
    nothing,
    pair,
    reason_text,
    section,
    table,
)
from queue_report.page.plots import SMALL, Plot, Series, bands, lines
from queue_report.page.scales import DAY, Bins, delay_scale, duration, linear_scale, moment, number, share, size
from queue_wire.html import Child, Markup, tag

# A result of a delivery, its class of the style sheet, and what it is called.
RESULTS = (("success", "delivered"), ("deferral", "deferred"), ("failure", "failed"))
# So many classes have a colour of their own; the rest are one band.
CLASSES = 6


def senders(data: PageData) -> Markup:
    about = (
        "Who put most into the queues: the first by messages of the log's last day, by all messages, by bytes and by "
        "failed deliveries. Messages count by their birth, deliveries by their end."
    )
    if not data.senders and not data.users:
        return section("senders", "Senders", about, nothing("No mail."))
    return section(
        "senders", "Senders", about, _origins(data, "Senders", "sender", data.senders),
        _origins(data, "Users who put mail in", "uid", data.users),
    )  # fmt: skip


def _origins(data: PageData, title: str, name: str, rows: Sequence[Origin]) -> Markup | None:
    if not rows:
        return None
    received = sum(row.messages for row in data.received)
    day = data.end - data.begin > DAY
    columns = [
        Column(name, False), Column("last day" if day else "messages"), Column("", False),
        *([Column("in all")] if day else []), Column("bytes"), Column("delivered"), Column("deferred"),
        Column("failed"), Column("% failed", True, "Of the attempts"),
    ]  # fmt: skip
    highest = max(_lately(row, day) for row in rows) or 1
    body: list[tuple[Child, ...]] = [
        (
            name_text(f"<{row.origin}>" if name == "sender" else row.origin),
            _recent(data, row) if day else row.messages, bar(("c1", _lately(row, day) / highest)),
            *([row.messages] if day else []), size(row.bytes),
            row.delivered, row.deferred, row.failed, _failed(row),
        )
        for row in sorted(rows, key=lambda row: (-_lately(row, day), -row.messages, row.origin))
    ]  # fmt: skip
    of = f": {len(rows)} of {rows[0].origins:,}" if rows[0].origins > len(rows) else ""
    return table(f"{title}{of}; {number(received)} messages in all", columns, body, "wide")


def _lately(row: Origin, day: bool) -> int:
    return row.recent if day else row.messages


def _recent(data: PageData, row: Origin) -> Child:
    """Return the messages of the last day, emphasized where they are a large part of it."""
    today = data.today.received if data.today else 0
    loud = row.recent >= 100 and row.recent * 5 >= today and row.recent * 2 >= row.messages
    return tag("strong", number(row.recent)) if loud else row.recent


def _failed(row: Origin) -> Child:
    text = share(row.failed, row.attempts)
    return tag("strong", text, class_="bad") if row.failed >= 20 and row.failed * 20 >= row.attempts else text


def volume(data: PageData) -> Markup:
    if not data.received and not data.attempts:
        return section("volume", "Volume", "What came in, and what became of it.", nothing("No mail."))
    bins = data.bins
    each = bins.each()
    series = [
        Series(name, by_bin(bins, data.attempts, lambda row, result=result: row.result == result), name)  # type: ignore[misc]
        for result, name in RESULTS
    ]
    shares = _shares(data)
    title = f"Deliveries per {each}"
    plots = [
        figure(
            title,
            f"A deferral is one attempt that failed for now, so a recipient can count more than once.{_rest(data)}",
            legend(*((name, name) for _, name in RESULTS)),
            bands(Plot(title, shares, bins, _count), series),
        ),
        pair(
            _received(data, f"Messages received per {each}", "messages", "c1", _count),
            _received(data, f"Bytes received per {each}", "bytes", "c4", size),
        ),
    ]
    messages, bytes_ = sum(row.messages for row in data.received), sum(row.bytes or 0 for row in data.received)
    about = f"{messages:,} messages came in, {size(bytes_)}. {shares}"
    return section("volume", "Volume", about, *plots, _days(data))


def _rest(data: PageData) -> str:
    """Return what must be said of the last bin, if the log ends well before it does."""
    seen = data.end - (data.bins.end - data.bins.length)
    if data.bins.number < 2 or seen > 0.9 * data.bins.length:
        return ""
    return f" The log ends {duration(seen)} after the last bar's beginning."


def by_bin(bins: Bins, rows: Sequence[Attempts], chosen: Callable[[Attempts], bool]) -> list[float]:
    """Return how many of the chosen deliveries ended in each bin."""
    found = [0.0] * bins.number
    for row in rows:
        if chosen(row) and 0 <= row.bin < bins.number:
            found[row.bin] += row.number
    return found


def _received(data: PageData, title: str, what: str, mark: str, write: Callable[[float], str]) -> Markup:
    values = [0.0] * data.bins.number
    for row in data.received:
        if 0 <= row.bin < data.bins.number:
            values[row.bin] += getattr(row, what) or 0
    top = max(range(len(values)), key=values.__getitem__)
    text = f"The most: {write(values[top])}, {data.bins.label(top)}."
    scale = linear_scale(values[top], size if what == "bytes" else None)
    plot = bands(Plot(title, text, data.bins, write, SMALL), [Series("received", values, mark)], scale)
    return figure(title, text, plot)


def _days(data: PageData) -> Markup | None:
    """Return a table by day, where bins are parts of days."""
    if data.end - data.begin <= DAY or DAY % data.bins.length:
        return None
    found: dict[int, dict[str, int]] = {}
    for received in data.received:
        day = found.setdefault((data.bins.start + received.bin * data.bins.length) // DAY, {})
        day["received"] = day.get("received", 0) + received.messages
        day["bytes"] = day.get("bytes", 0) + (received.bytes or 0)
    for row in data.attempts:
        day = found.setdefault((data.bins.start + row.bin * data.bins.length) // DAY, {})
        day[row.result] = day.get(row.result, 0) + row.number
    columns = [Column("day (UTC)", False), Column("received"), Column("bytes"), *(Column(name) for _, name in RESULTS)]
    rows: list[tuple[Child, ...]] = [
        (
            f"{moment(day * DAY):%a %Y-%m-%d}", found[day].get("received", 0), size(found[day].get("bytes", 0)),
            *(found[day].get(result, 0) for result, _ in RESULTS),
        )
        for day in sorted(found)[-400:]
    ]  # fmt: skip
    return more("The same by day, in numbers", table("Traffic by day", columns, rows))


def _shares(data: PageData) -> str:
    total = [data.sum_attempts(result) for result, _ in RESULTS]
    parts = [f"{share(part, sum(total))} {name}" for part, (_, name) in zip(total, RESULTS, strict=True)]
    return f"Of {sum(total):,} delivery attempts {', '.join(parts)}." if sum(total) else "No delivery ended."


def delays(data: PageData) -> Markup:
    about = (
        "Queue time is what a message waited before the delivery that succeeded, earlier attempts included; delivery "
        "time is what that delivery took. Half of all mail is faster than the median, 99 of 100 than p99."
    )
    if not data.delays or data.all_delays is None:
        return section("delays", "Delays", about, nothing("No delivery succeeded."))
    plots = [_delays(data, key, name) for key, name in (("queue", "Queue time"), ("delivery", "Delivery time"))]
    return section("delays", "Delays", about, _overall_delays(data.all_delays), *plots)


_SPREAD = (("max", "longest", "far"), ("p99", "p99", "c3"), ("p90", "p90", "c2"), ("p50", "median", "c1"))


def _delays(data: PageData, key: str, name: str) -> Markup | None:
    series = [Series(text, _of_bins(data, f"{key}_{column}"), mark) for column, text, mark in _SPREAD]
    known = [value for one in series for value in one.values if value is not None]
    if not known:
        return None
    each = data.bins.each()
    top = [max((value for value in one.values if value is not None), default=0.0) for one in series]
    text = f"Logarithmic scale. Median up to {duration(top[3])}, p99 up to {duration(top[1])}."
    plot = Plot(f"{name} per {each}", text, data.bins, duration)
    keys = legend(*((mark, text) for _, text, mark in reversed(_SPREAD)))
    drawn = lines(plot, delay_scale(min(known), max(known)), (), series, spread=True)
    return figure(name, f"Of deliveries that ended in each {each}; logarithmic scale.", keys, drawn)


def _of_bins(data: PageData, column: str) -> list[float | None]:
    found: list[float | None] = [None] * data.bins.number
    for row in data.delays:
        if 0 <= row.bin < data.bins.number:
            found[row.bin] = getattr(row, column)
    return found


def _overall_delays(found: Delays) -> Markup:
    names = (("p50", "median"), ("p90", "p90"), ("p99", "p99"), ("max", "longest"))
    columns = [Column("", False), *(Column(name) for _, name in names)]
    rows = [
        (name, *(seconds(getattr(found, f"{key}_{column}")) for column, _ in names))
        for key, name in (("queue", "queue time"), ("delivery", "delivery time"))
    ]
    return table(f"Delays of {found.deliveries:,} deliveries", columns, rows, "narrow")


def seconds(value: float | None) -> str:
    return DASH if value is None else duration(value)


def classes(data: PageData) -> Markup:
    about = "By the class of the trouble, made from the enhanced code (RFC 3463) and the words of each reason."
    if not data.reasons:
        return section("classes", "Deferrals and failures", about, nothing("Nothing was deferred, and nothing failed."))
    plots = [_by_class(data, result, title) for result, title in (("deferral", "Deferrals"), ("failure", "Failures"))]
    return section("classes", "Deferrals and failures", about, *plots, _reasons(data))


def _by_class(data: PageData, result: str, title: str) -> Markup:
    rows = [row for row in data.attempts if row.result == result]
    sums: dict[str, int] = {}
    for row in rows:
        sums[row.class_] = sums.get(row.class_, 0) + row.number
    if not sums:
        return figure(title, "None.")
    largest = sorted(sums, key=lambda name: (-sums[name], name))
    named = largest if len(largest) <= CLASSES + 1 else largest[:CLASSES]
    bins, total = data.bins, sum(sums.values())
    series = [
        Series(name or "other", by_bin(bins, rows, lambda row, name=name: row.class_ == name), f"c{i}")  # type: ignore[misc]
        for i, name in enumerate(named, 1)
    ]
    if len(named) < len(largest):
        series.append(Series("others", by_bin(bins, rows, lambda row: row.class_ not in named), "rest"))
    text = f"{total:,} in all, {share(sums[largest[0]], total)} of them of class {largest[0] or 'other'}."
    keys = legend(*((one.mark, one.name) for one in series))
    title = f"{title} per {bins.each()}"
    return figure(title, text, keys, bands(Plot(f"{title}, by class", text, bins, _count), series))


def _reasons(data: PageData) -> Markup:
    highest = max(row.failures + row.deferrals for row in data.reasons)
    columns = [Column("class", False), Column("code", False), Column("failures"), Column("deferrals"),
               Column("", False), Column("domains"), Column("an example", False)]  # fmt: skip
    body: list[tuple[Child, ...]] = [
        (
            row.class_, row.code or DASH, row.failures, row.deferrals,
            bar(("failed", row.failures / highest), ("deferred", row.deferrals / highest)),
            row.domains, reason_text(row.example),
        )
        for row in data.reasons
    ]  # fmt: skip
    return table("Reasons by class and code, the most frequent first", columns, body, "wide words")


def _count(value: float) -> str:
    return number(round(value))
