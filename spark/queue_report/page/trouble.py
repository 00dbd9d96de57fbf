"""The page's sections about destinations: when they were dead, slow or deferring, and why they put mail off."""

from collections.abc import Sequence
from itertools import groupby

from queue_report.page.data import Deferral, Domain, Episode, PageData
from queue_report.page.mail import RESULTS, seconds
from queue_report.page.markup import (
    Column,
    bar,
    figure,
    legend,
    name_text,
    nothing,
    queue_text,
    reason_text,
    section,
    table,
    time_text,
)
from queue_report.page.plots import Row, Stretch, timeline
from queue_report.page.scales import duration, size, when
from queue_wire.html import Markup, tag

# Rows of the time line, and of the table below it. What is left out is said.
LINES, EPISODES = 30, 20

KINDS = (("dead", "dead: it could not be reached"), ("deferring", "deferring: it put mail off"),
         ("slow", "slow: over 60 s"))  # fmt: skip


def destinations(data: PageData) -> Markup:
    about = (
        "An episode is three or more deliveries to a domain that failed for now, or took 60 s, with none between them "
        "that went well. It goes on up to the end of the log where none went well since."
    )
    rows = data.episodes
    if not rows:
        return section("destinations", "Destinations", about, nothing("Every destination took its mail."), _why(data))
    return section("destinations", "Destinations", about, _when(data, rows), _list(data, rows), _why(data))


def _when(data: PageData, rows: Sequence[Episode]) -> Markup:
    by_domain: dict[str, list[Episode]] = {}
    for row in rows:
        by_domain.setdefault(row.domain, []).append(row)
    # What is in trouble now comes first.
    worst = sorted(
        by_domain,
        key=lambda name: (
            all(row.ended is not None for row in by_domain[name]), -sum(row.seconds for row in by_domain[name]), name
        ),
    )[:LINES]  # fmt: skip
    drawn = [Row(name or "(none)", [_stretch(row, data) for row in by_domain[name]]) for name in worst]
    text = f"{_number(data)} episodes of {len(by_domain):,} domains; those in trouble now first, then the longest."
    if len(by_domain) > LINES:
        text += f" The first {LINES} are here."
    return figure(
        "When destinations were in trouble", text, legend(*KINDS),
        timeline("When destinations were in trouble", data.begin, data.end, drawn),
    )  # fmt: skip


def _number(data: PageData) -> str:
    number = len(data.episodes)
    return f"{number:,}" if number == data.all_episodes else f"The worst {number:,} of {data.all_episodes:,}"


def _stretch(row: Episode, data: PageData) -> Stretch:
    end = data.end if row.ended is None else row.ended
    text = (
        f"{row.kind} on {row.host}/{row.queue}: {when(row.began)} \N{EN DASH} "
        f"{'still' if row.ended is None else when(row.ended)} ({duration(row.seconds)})\n"
        f"{row.attempts:,} deliveries"
    )
    return Stretch(row.began, end, row.kind, text[:300])


def _list(data: PageData, rows: Sequence[Episode]) -> Markup:
    columns = (
        Column("domain", False), Column("kind", False), Column("host/queue", False), Column("from", False),
        Column("until", False), Column("lasted"), Column("deliveries"), Column("first reason", False),
    )  # fmt: skip
    first = sorted(rows, key=lambda row: (row.ended is not None, -row.seconds))[:EPISODES]
    body = [
        (
            name_text(row.domain or "(none)"), row.kind, queue_text(row.host, row.queue), time_text(row.began),
            tag("strong", "still", class_="bad") if row.ended is None else time_text(row.ended),
            duration(row.seconds), row.attempts, reason_text(row.reason, 100),
        )
        for row in first
    ]  # fmt: skip
    title = f"{len(first)} of {data.all_episodes:,} episodes" if len(rows) > len(first) else "All episodes"
    return table(f"{title}: those that go on, then the longest", columns, body, "wide words")


def _why(data: PageData) -> Markup | None:
    """Return the reasons for which destinations put mail off."""
    if not data.deferrals:
        return None
    columns = (
        Column("domain", False), Column("deferrals"), Column("class", False), Column("of them"), Column("", False),
        Column("last", False), Column("reason", False),
    )  # fmt: skip
    body = []
    for _, found in groupby(data.deferrals, key=lambda row: row.domain):
        rows = list(found)
        body += [_reason(row, first=i == 0) for i, row in enumerate(rows)]
    title = "Deferrals by destination: the most frequent reasons of those with most"
    return table(title, columns, body, "wide words grouped")


def _reason(row: Deferral, first: bool) -> tuple[Markup | str | int, ...]:
    return (
        name_text(row.domain or "(none)") if first else tag("span", "″", class_="same"),
        row.deferrals if first else "", row.class_, row.number, bar(("deferred", row.number / row.deferrals)),
        time_text(row.last), reason_text(row.reason, 120),
    )  # fmt: skip


def domains(data: PageData) -> Markup:
    about = "The recipient domains with the most deferrals and failures. The bar shows what became of the attempts."
    if not data.domains:
        return section("domains", "Worst domains", about, nothing("No domain had any."))
    columns = (
        Column("domain", False), Column("", False), Column("delivered"), Column("deferred"), Column("failed"),
        Column("bytes"), Column("average delay"), Column("longest"),
    )  # fmt: skip
    body = [
        (
            name_text(row.domain or "(none)"), _shared(row), row.delivered, row.deferred, row.failed,
            size(row.bytes or 0), seconds(row.delay_sum / row.delays if row.delay_sum and row.delays else None),
            seconds(row.delay_max),
        )
        for row in data.domains
    ]  # fmt: skip
    keys = legend(*((name, name) for _, name in RESULTS))
    return section("domains", "Worst domains", about, keys, table("Domains with trouble", columns, body, "wide"))


def _shared(row: Domain) -> Markup:
    attempts = row.delivered + row.deferred + row.failed
    return bar(*((name, getattr(row, name) / attempts) for _, name in RESULTS))
