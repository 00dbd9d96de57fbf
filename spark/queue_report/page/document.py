"""The whole page as one HTML document that needs nothing else: no network, no script, no file beside it."""

import base64
import hashlib
from importlib.resources import files

from queue_report.page import health, incoming, mail, queue, trouble
from queue_report.page.data import PageData
from queue_report.page.findings import find
from queue_report.page.markup import shown
from queue_report.page.scales import HOUR, MINUTE, duration, number, plural, share, size, span, when
from queue_wire.html import Markup, join, tag

STYLE = files("queue_report.page").joinpath("style.css").read_text()

SECTIONS = (
    ("queue", "Queue", queue.queue),
    ("destinations", "Destinations", trouble.destinations),
    ("senders", "Senders", mail.senders),
    ("volume", "Volume", mail.volume),
    ("classes", "Deferrals and failures", mail.classes),
    ("domains", "Worst domains", trouble.domains),
    ("delays", "Delays", mail.delays),
    ("smtp", "SMTP server", incoming.smtp),
    ("ondemand", "Mail on demand", incoming.on_demand),
    ("concurrency", "Concurrency", health.concurrency),
    ("conservation", "Conservation", health.conservation),
    ("reading", "What was read", health.reading),
)


def make_page(data: PageData) -> str:
    """Return the HTML document."""
    links = tag("ul", *(tag("li", tag("a", title, href=f"#{name}")) for name, title, _ in SECTIONS))
    body = tag(
        "body",
        tag("header", tag("h1", "Mail queues"), _covers(data), _findings(data), _tiles(data)),
        tag("nav", links, aria_label="Sections"),
        tag("main", *(make(data) for _, _, make in SECTIONS)),
        tag("footer", tag("p", f"All times are UTC. Made by queue-report, {when(data.made)}.")),
    )
    return "<!DOCTYPE html>\n" + tag("html", _head(), body, lang="en") + "\n"


def _head() -> Markup:
    # Should a text of a log ever become markup after all, the browser loads nothing for it and runs nothing of it.
    digest = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", "Mail queues"),
        join(tag("style", Markup(STYLE))),
    )


def _covers(data: PageData) -> Markup:
    """Return what the page is about, and how old the end of the log is."""
    streams = len(data.streams)
    queues = plural(streams, "queue")
    only = f" · {shown(data.only)}" if data.only else ""
    if data.last is None:
        return tag("p", tag("b", "no log"), only, class_="covers")
    covers = tag("b", f"{span(data.begin, data.end)} UTC")
    age = max(data.made - data.last, 0)
    if age < 2 * MINUTE:
        old = " · the log is up to date"
    else:
        old = f" · the log ends {duration(age)} before this page was made" if age < HOUR else ""
    return tag("p", covers, f" ({duration(data.end - data.begin)}) · {queues}{only}{old}", class_="covers")


_SIGNS = {"bad": "✗", "warn": "!", "good": "✓", "note": "·"}
_SPOKEN = {"bad": "Broken: ", "warn": "Look: ", "good": "Good: ", "note": ""}


def _findings(data: PageData) -> Markup:
    items = (
        tag(
            "li", tag("span", _SIGNS[one.level], class_="sign", aria_hidden="true"),
            tag("span", tag("span", _SPOKEN[one.level], class_="spoken") if _SPOKEN[one.level] else None, one.text, " ",
                join(tag("i", one.to_do), " ") if one.to_do else None,
                tag("a", "more", href=f"#{one.section}", aria_label=f"more: {one.section}")),
            class_=one.level,
        )
        for one in find(data)
    )  # fmt: skip
    return tag("ul", *items, class_="findings", aria_label="Findings")


def _tiles(data: PageData) -> Markup:
    found = []
    whole = data.part("all")
    if data.last is not None:
        waits = whole[0].messages if whole else 0
        oldest = whole[0].oldest if whole else None
        about = "the queue is empty" if oldest is None else f"oldest {duration(data.end - oldest)}"
        found.append(("messages waiting", number(waits), about))
    received = sum(row.messages for row in data.received)
    found.append(("messages received", number(received), f"{size(sum(row.bytes or 0 for row in data.received))}"))
    attempts = sum(row.number for row in data.attempts)
    for result, name in mail.RESULTS:
        part = data.sum_attempts(result)
        found.append((name, number(part), f"{share(part, attempts)} of attempts" if attempts else "no attempts"))
    times = data.all_delays
    if times is not None and times.queue_p50 is not None:
        found.append(("median queue time", duration(times.queue_p50), f"p99 {mail.seconds(times.queue_p99)}"))
    tiles = [
        tag("div", tag("dt", name), tag("dd", text, class_="large"), tag("dd", about), class_="tile")
        for name, text, about in found
    ]
    return tag("dl", *tiles, class_="tiles")
