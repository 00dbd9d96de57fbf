"""The page's sections about mail: volume, delays, failures and deferrals, domains."""

from collections.abc import Callable, Sequence

from spark.page.bins import add, fill, make_bins, words
from spark.page.data import PageData, Row
from spark.page.markup import Markup, tag
from spark.page.plots import SMALL, Bins, Plot, Series, bands, legend, lines
from spark.page.scales import delay_scale, duration, linear_scale, moment, share, size
from spark.page.tables import (
    Column,
    bar,
    figure,
    log_text,
    more,
    nothing,
    reason_text,
    section,
    table,
)

RESULTS = (("delivered", "delivered"), ("deferred", "deferred"), ("bounced", "failed"))
# So many classes have a colour of their own; the rest are one band.
CLASSES = 6


def volume(data: PageData) -> Markup:
    rows = data.of("hours")
    if not rows:
        return section("volume", "Volume", "What came in, and what became of it.", nothing("No mail."))
    bins = make_bins(data.begin, data.end)
    each = words(bins)
    series = [Series(name, _summed(bins, rows, key), key) for key, name in RESULTS]
    received = Series("received", _summed(bins, rows, "received"), "c1")
    sizes = Series("received", _summed(bins, rows, "bytes"), "c2")
    total = {key: data.total("hours", key) for key in ("received", "bytes", "delivered", "deferred", "bounced")}
    plots = [
        figure(
            f"Deliveries per {each}",
            "A deferral is one attempt that failed for now, so a recipient can count more than once.",
            bands(Plot(f"Deliveries per {each}", _shares(total), bins, _number), series),
            legend(series),
        ),
        tag(
            "div",
            *(
                _received(f"{name} received per {each}", series, bins, write)
                for name, series, write in (("Messages", received, None), ("Bytes", sizes, size))
            ),
            class_="pair",
        ),
    ]
    about = f"{total['received']:,} messages came in, {size(total['bytes'])}. {_shares(total)}"
    return section("volume", "Volume", about, *plots, _days(data))


def _received(title: str, series: Series, bins: Bins, write: Callable[[float], str] | None) -> Markup:
    values = [value or 0.0 for value in series.values]
    top = max(range(len(values)), key=values.__getitem__)
    say = write or _number
    text = f"At most {say(values[top])}, {bins.label(top)}."
    return figure(title, text, bands(Plot(title, text, bins, say, *SMALL), [series], linear_scale(values[top], write)))


def _days(data: PageData) -> Markup:
    names = ("received", "bytes", "delivered", "deferred", "bounced")
    columns = [Column("day (UTC)", False), *(Column(name, True, data.meaning("days", name)) for name in names)]
    rows = [
        (f"{moment(row['start']):%a %Y-%m-%d}", row["received"], size(row["bytes"]),
         row["delivered"], row["deferred"], row["bounced"])
        for row in data.of("days")
    ]  # fmt: skip
    return more("The same by day, in numbers", table("Traffic by day", columns, rows))


def delays(data: PageData) -> Markup:
    about = (
        "Queue time is what a message waited before the delivery that succeeded, earlier attempts included; delivery "
        "time is what that delivery took. Half of all mail is faster than the median, 99 of 100 than p99."
    )
    hours = data.of("delays-hours")
    if not hours:
        return section("delays", "Delays", about, nothing("No delivery succeeded."))
    bins = make_bins(data.begin, data.end)
    plots = []
    for key, name in (("queue", "Queue time"), ("delivery", "Delivery time")):
        series = [
            Series(text, fill(bins, ((row["start"], row[f"{key}_{column}"]) for row in hours), max), mark)
            for column, text, mark in (("max", "longest", "far"), ("p99", "p99", "c3"), ("p90", "p90", "c2"),
                                       ("p50", "median", "c1"))
        ]  # fmt: skip
        known = [value for one in series for value in one.values if value is not None]
        if not known:
            continue
        scale = delay_scale(min(known), max(known))
        text = f"Logarithmic scale. Median up to {duration(_top(series[3]))}, p99 up to {duration(_top(series[1]))}."
        hint = "" if bins.length == 3600 else f" Each point is the worst hour of {words(bins)}."
        plot = lines(Plot(f"{name}, hour by hour", text, bins, duration), scale, (), series)
        plots.append(figure(name, f"By the hour in which deliveries ended; logarithmic scale.{hint}", plot,
                            legend(series[::-1])))  # fmt: skip
    return section("delays", "Delays", about, _overall_delays(data), *plots)


def _overall_delays(data: PageData) -> Markup:
    found = data.of("delays")
    if not found:
        return Markup("")
    names = (("p50", "median"), ("p90", "p90"), ("p99", "p99"), ("max", "longest"))
    columns = [Column("", False), *(Column(name) for _, name in names)]
    rows = [
        (name, *(_seconds(found[0][f"{key}_{column}"]) for column, _ in names))
        for key, name in (("queue", "queue time"), ("delivery", "delivery time"))
    ]
    return table(f"Delays of {found[0]['deliveries']:,} deliveries", columns, rows, "narrow")


def classes(data: PageData) -> Markup:
    about = "By the class of the trouble, made from the enhanced code (RFC 3463) and the words of each reason."
    rows = data.of("classify")
    if not rows:
        return section("classes", "Deferrals and failures", about, nothing("Nothing was deferred, and nothing failed."))
    sums: dict[str, int] = {}
    for row in rows:
        sums[row["class"]] = sums.get(row["class"], 0) + row["failures"] + row["deferrals"]
    largest = sorted(sums, key=lambda name: (-sums[name], name))
    named = largest if len(largest) <= CLASSES + 1 else largest[:CLASSES]
    bins = make_bins(data.begin, data.end)
    plots = []
    for key, title in (("deferrals", "Deferrals"), ("failures", "Failures")):
        series = _by_class(bins, data.of("classify-hours"), key, named)
        total = data.total("classify", key)
        worst = max(largest, key=lambda name: sum(row[key] for row in rows if row["class"] == name))
        part = sum(row[key] for row in rows if row["class"] == worst)
        text = f"{total:,} in all, {share(part, total)} of them of class {worst}." if total else "None."
        plot = bands(Plot(f"{title} per {words(bins)}, by class", text, bins, _number), series)
        plots.append(figure(f"{title} per {words(bins)}", text, plot, legend(series)))
    return section("classes", "Deferrals and failures", about, *plots, _reasons(data, rows))


def _by_class(bins: Bins, rows: Sequence[Row], key: str, named: Sequence[str]) -> list[Series]:
    found = [
        Series(name, fill(bins, ((row["start"], row[key]) for row in rows if row["class"] == name), add), f"c{i}")
        for i, name in enumerate(named, 1)
    ]
    found = [one for one in found if any(one.values)]
    others = [(row["start"], row[key]) for row in rows if row["class"] not in named]
    return [*found, Series("others", fill(bins, others, add), "rest")] if any(value for _, value in others) else found


def _reasons(data: PageData, rows: Sequence[Row]) -> Markup:
    highest = max(row["failures"] + row["deferrals"] for row in rows)
    columns = [Column(name, i > 1, data.meaning("classify", name)) for i, name in
               enumerate(("class", "code", "failures", "deferrals"))]  # fmt: skip
    columns += [Column("", False), Column("domains"), Column("an example", False)]
    body = [
        (
            row["class"], row["code"] or "\N{EN DASH}", row["failures"], row["deferrals"],
            bar(("bounced", row["failures"] / highest), ("deferred", row["deferrals"] / highest)),
            row["domains"], reason_text(row["example"]),
        )
        for row in rows
    ]  # fmt: skip
    return table("Reasons by class and code, the most frequent first", columns, body, "wide")


def domains(data: PageData) -> Markup:
    about = "The recipient domains with the most deferrals and failures. The bar shows what became of the attempts."
    rows = [row for row in data.of("domains") if row["deferred"] or row["bounced"]]
    if not rows:
        return section("domains", "Worst domains", about, nothing("No domain had any."))
    columns = [
        Column("domain", False),
        Column("", False),
        *(Column(name, True, data.meaning("domains", key)) for name, key in (
            ("delivered", "delivered"), ("deferred", "deferred"), ("failed", "bounced"), ("bytes", "bytes"),
            ("average delay", "delay_avg"), ("longest", "delay_max"))),
    ]  # fmt: skip
    body = [
        (
            log_text(row["domain"] or "(none)", 60), _shared(row), row["delivered"], row["deferred"], row["bounced"],
            size(row["bytes"]), _seconds(row["delay_avg"]), _seconds(row["delay_max"]),
        )
        for row in rows
    ]  # fmt: skip
    keys = tag("ul", *(tag("li", tag("span", class_=f"key {key}", aria_hidden="true"), name) for key, name in RESULTS),
               class_="legend")  # fmt: skip
    return section("domains", "Worst domains", about, keys, table("Domains with trouble", columns, body, "wide"))


def _shared(row: Row) -> Markup:
    attempts = row["delivered"] + row["deferred"] + row["bounced"]
    return bar(*((key, row[key] / attempts) for key, _ in RESULTS))


def _summed(bins: Bins, rows: Sequence[Row], key: str) -> list[float | None]:
    return fill(bins, ((row["start"], row[key]) for row in rows), add)


def _shares(total: dict[str, int]) -> str:
    attempts = total["delivered"] + total["deferred"] + total["bounced"]
    parts = [f"{share(total[key], attempts)} {name}" for key, name in RESULTS]
    return f"Of {attempts:,} delivery attempts {parts[0]}, {parts[1]}, {parts[2]}."


def _top(series: Series) -> float:
    return max((value for value in series.values if value is not None), default=0.0)


def _number(value: float) -> str:
    return f"{value:,.0f}"


def _seconds(value: float | None) -> str:
    return "\N{EN DASH}" if value is None else duration(value)
