"""The pages of `queuectl web` as HTML. Pure: what is known goes in, markup comes out.

Text from outside (addresses, nexthops, reasons, headers) is escaped by `tag`, and shown by `outside` with a mark for
each character that is not seen. A page has one style sheet, inside, whose hash is in its policy; no script, no picture,
and nothing that is fetched.
"""

import base64
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.resources import files
from typing import NamedTuple
from urllib.parse import quote

from queue_admin.messages.search import Found
from queue_admin.metrics.reading import Reading
from queue_admin.printable import size_text, span, visible
from queue_admin.views.ranking import RankedRow
from queue_admin.web.history import HistorySample, levels, rates
from queue_admin.web.svg_plot import PlotLine, plot
from queue_wire.admin.facts import DEAD, PROBED, DestinationFact
from queue_wire.html import Child, Markup, join, mark_unseen, tag
from queue_wire.logline import moment

STYLE = Markup(files("queue_admin.web").joinpath("style.css").read_text("utf-8"))
_HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
POLICY = (
    f"default-src 'none'; style-src 'sha256-{_HASH}'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
REFRESH = 15  # Seconds.
FREE_MIN = 0.03  # Share of the disk.
LOG_MAX = 256 * 1024
REMOVAL_MAX = 60
LONGEST = 300  # Characters of a text from outside.
LINES_MAX = 600  # Lines of a message's story.
UNTRIED = "recipients deferred without an attempt"
MARKS = ("held", "corrupt")


class RankedView(NamedTuple):
    """A ranking, by what, and when its walk ended, in seconds since the epoch."""

    by: str
    rows: Sequence[RankedRow]
    at: float


def document(
    title: str, host: str, body: Sequence[Markup], refresh: bool = False, query: str = "", base: str = ""
) -> bytes:
    """Return a page. `host` names the queue; `query` is what the search field has.

    `base` is what the paths of the pages of a queue begin with, `/queue/NAME` if there are several.
    """
    again = tag("meta", http_equiv="refresh", content=str(REFRESH)) if refresh else None
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        again,
        tag("title", title),
        tag("style", STYLE),
    )
    field = tag("input", name="q", value=query, placeholder="address, domain or id", aria_label="Search", maxlength=200)
    form = tag("form", field, tag("button", "Search"), action=f"{base}/search", method="get", role="search")
    place = join(tag("a", "all queues", href="/"), " ", outside(host)) if base else outside(host)
    name = tag("div", tag("h1", tag("a", title, href=f"{base}/")), tag("p", place))
    foot = tag("footer", tag("p", "queuectl web reads only. Times are UTC."))
    whole = tag("html", head, tag("body", tag("header", name, form), tag("main", *body), foot), lang="en")
    return f"<!DOCTYPE html>\n{whole}\n".encode("utf-8", "replace")


def status(
    reading: Reading, samples: Sequence[HistorySample], rankings: Sequence[RankedView], base: str = ""
) -> list[Markup]:
    """Return the content of the first page of a queue."""
    body = [findings(reading), _tiles(reading)]
    times = [each.at for each in samples]
    body.append(
        tag(
            "div",
            plot(
                "Messages that wait",
                times,
                [
                    PlotLine("active", levels(samples, lambda each: each.active), "c1"),
                    PlotLine("deferred", levels(samples, lambda each: each.deferred), "c2"),
                ],
                _count,
            ),
            plot(
                "Messages a second",
                times,
                [
                    PlotLine("new", rates(samples, lambda each: each.arrived), "c1"),
                    PlotLine("finished", rates(samples, lambda each: each.ended), "c4"),
                ],
                _rate,
            ),
            plot(
                "Recipients a second",
                times,
                [
                    PlotLine("delivered", rates(samples, lambda each: each.successes), "c4"),
                    PlotLine("deferred", rates(samples, lambda each: each.deferrals), "c2"),
                    PlotLine("failed", rates(samples, lambda each: each.failures), "c3"),
                ],
                _rate,
            ),
            plot(
                "Deliveries in flight",
                times,
                [PlotLine("in flight", levels(samples, lambda each: each.in_flight), "c1")],
                _count,
            ),
            class_="pair",
        )
    )
    body += _destinations(reading, base)
    if rankings:
        body.append(tag("h2", "What is in the queue"))
        body.append(tag("div", *(_ranking(each, base) for each in rankings), class_="pair"))
    body += _daemons(reading)
    body += _smtpd(reading)
    return body


def overview(readings: Mapping[str, Reading]) -> list[Markup]:
    """Return the content of the first page of several queues, by their names."""
    body: list[Markup] = []
    for name, reading in readings.items():
        body.append(tag("h2", tag("a", "Queue ", outside(name), href=f"/queue/{quote(name)}/")))
        body += [findings(reading), _tiles(reading)]
    return body


def findings(reading: Reading) -> Markup:
    """Return sentences about what is wrong."""
    found = list(_findings(reading)) or [("good", "Nothing is wrong that can be seen here.")]
    return tag("ul", *(tag("li", outside(text), class_=level) for level, text in found), class_="findings")


def _findings(reading: Reading) -> Iterator[tuple[str, str]]:
    if reading.silent:
        yield "bad", f"Nothing is known: {reading.trouble}"
    elif not reading.figures:
        yield "bad", f"Nothing is delivered: {reading.trouble}"
    if reading.refused:
        yield "bad", "Mail is refused: queue-todo is far behind."
    elif reading.slow:
        yield "warn", "Injectors wait: mail comes faster than it is classified."
    disk = reading.disk
    if disk is not None and disk.free < FREE_MIN * disk.total:
        yield "bad", f"The disk has {size_text(disk.free)} free of {size_text(disk.total)}."
    if reading.number(b"log-unwritten") > LOG_MAX:
        yield "bad", "The logger does not take the log, so no delivery is started."
    if reading.number(b"removal-wait") > REMOVAL_MAX:
        yield "warn", f"Finished messages have waited {span(reading.number(b'removal-wait'))} for queue-clean."
    if corrupt := reading.number(b"marked", b"corrupt"):
        yield "warn", f"Messages that cannot be read: {corrupt:.0f}. queuectl list --corrupt names them."
    dead = [each for each in reading.figures if each.name == b"suspended"]
    if dead:
        names = ", ".join(visible(each.labels[1]) for each in dead[:3])
        more = f" and {len(dead) - 3} more" if len(dead) > 3 else ""
        yield "warn", f"Dead destinations: {names}{more}."
    if reading.figures and not reading.number(b"read"):
        yield "warn", "queue-send is still reading its backlog."


def _tiles(reading: Reading) -> Markup:
    def total(state: bytes) -> float:
        return sum(reading.number(b"messages", channel, state) for channel in (b"local", b"remote"))

    tiles: list[tuple[str, str, Child]] = []
    if reading.figures:
        busy = total(b"active") + total(b"new") + total(b"on-disk")
        tiles = [
            ("Active", _count(busy), f"{reading.number(b'running'):.0f} recipients in flight"),
            ("Deferred", _count(total(b"deferred")), "wait for their next attempt"),
            *((name.capitalize(), _count(reading.number(b"marked", name.encode())), "") for name in MARKS),
            ("Dead destinations", _count(reading.number(b"dead")), f"of {reading.number(b'destinations'):.0f}"),
        ]
    if reading.walked is not None:
        oldest = reading.walked.oldest
        tiles.append(("Oldest", "none" if oldest is None else span(reading.at - oldest), "not held, not parked"))
        if stored := sum(each.recipients for each in reading.walked.stored.values()):
            tiles.append(("Stored", _count(stored), "recipients of on-demand domains"))
    note = None
    if reading.figures:
        started = reading.number(b"started")
        day, _, clock = moment(int(started)).partition("T")
        tiles.append(("Up", span(reading.at - started), join("since ", tag("time", day), " ", tag("time", clock))))
    else:
        when = "when it answers" if reading.silent or reading.processes else "while it runs"
        note = tag("p", f"Figures of queue-send are shown {when}.", class_="soft")
    shown = [
        tag("div", tag("dt", name), tag("dd", value, class_="large"), tag("dd", more), class_="tile")
        for name, value, more in tiles
    ]
    return join(note, tag("dl", *shown, class_="tiles") if shown else None)


def _destinations(reading: Reading, base: str) -> list[Markup]:
    rows: list[list[Child]] = []
    dead = {each.labels: each.number for each in reading.figures if each.name == b"suspended"}
    waiting = [each for each in reading.figures if each.name == b"waiting" and each.labels not in dead]
    for each in sorted(waiting, key=lambda one: (-one.number, one.labels)):
        numbers = [reading.number(name, *each.labels) for name in (b"in-flight", b"window")]
        rows.append([_place(*each.labels), _count(each.number), *map(_count, numbers)])
    body = [tag("h2", "Destinations"), tag("p", tag("a", "All destinations", href=f"{base}/destinations"))]
    if rows:
        body.append(table("In delivery now", ["destination", "waiting", "in flight", "window"], rows, 3))
    if dead:
        left = {labels: (reading.number(b"waiting", *labels), suspended) for labels, suspended in dead.items()}
        worst = sorted(left.items(), key=lambda one: (-sum(one[1]), one[0]))
        rows = [
            [_place(*labels), _why(reading.reasons.get(labels, b"")), *map(_count, counts)] for labels, counts in worst
        ]
        body.append(table("Dead", ["destination", "last reason", "messages waiting", UNTRIED], rows, 2))
    return body


def _place(channel: bytes, nexthop: bytes) -> Markup:
    return join(outside(visible(nexthop)), " (local)" if channel == b"local" else None)


def _why(reason: bytes) -> Markup:
    return outside(visible(reason))


def _ranking(view: RankedView, base: str) -> Markup:
    rows: list[list[Child]] = [
        [tag("a", outside(visible(row.key)), href=f"{base}/search?q={quote(row.key)}"), row.messages, row.recipients,
         size_text(row.size)]
        for row in view.rows
    ]  # fmt: skip
    caption = f"By {view.by}, as of {moment(int(view.at))}"
    return table(caption, [view.by, "messages", "recipients", "size"], rows, 3)


def _daemons(reading: Reading) -> list[Markup]:
    rows: list[list[Child]] = [
        [each.program, each.pid, span(each.age), f"{each.cpu:.1f} s", size_text(each.memory)]
        for each in reading.processes
    ]
    if not rows:
        return []
    return [tag("h2", "Daemons"), table("Processes", ["program", "pid", "up", "CPU", "memory"], rows, 4)]


def _smtpd(reading: Reading) -> list[Markup]:
    head = tag("h2", "queue-smtpd")
    if not reading.smtpd:
        return [head, tag("p", "None of its processes runs for this home, or answers.", class_="soft")]
    rows: list[list[Child]] = [
        [each.place, each.pid, span(reading.at - each.started), f"{each.sessions} of {each.limit}",
         each.counters.get("connections", 0), each.counters.get("messages", 0)]
        for each in reading.smtpd
    ]  # fmt: skip
    heads = ["process", "pid", "up", "connections now", "connections", "messages"]
    return [head, table("Processes of queue-smtpd", heads, rows, 5)]


def destinations(found: Sequence[tuple[str, DestinationFact]], most: int, now: float) -> list[Markup]:
    """Return the content of the page of all destinations at a time; the first `most` are shown."""
    rows: list[list[Child]] = []
    for channel, each in found[:most]:
        state = each.state.decode("ascii")
        mark = tag("span", state, class_="bad") if each.state in (DEAD, PROBED) else state
        # While a probe is in flight, there is no next one; without a time, the next message is the probe.
        when = each.probe if each.state == DEAD else 0 if each.state == PROBED else each.next
        due = tag("time", moment(when)) if when > now else "now" if each.state == DEAD else ""
        rows.append(
            [_place(channel.encode(), each.nexthop), mark, due, _why(each.reason), each.queued + each.on_disk,
             each.in_flight, each.window, each.suspended]
        )  # fmt: skip
    more = f"The first {most} of {len(found)}, those with the most mail." if len(found) > most else ""
    heads = ["destination", "state", "next", "last reason", "waiting", "in flight", "window", UNTRIED]
    if not rows:
        return [tag("h2", "Destinations"), tag("p", "queue-send has mail for no destination now.", class_="soft")]
    return [tag("h2", "Destinations"), tag("p", more, class_="soft"), table("All", heads, rows, 4)]


def search_results(found: Sequence[Found], ended: str, base: str = "") -> list[Markup]:
    """Return the content of a page of search results; `ended` says how far the search has come."""
    rows: list[list[Child]] = [
        [tag("a", each.long_id, href=f"{base}/message/{quote(each.long_id)}", class_="whole"), each.state,
         span(each.age), tag("span", size_text(each.size), class_="whole"), outside(f"<{visible(each.sender)}>", 80),
         outside(visible(each.recipient), 80)]
        for each in found
    ]  # fmt: skip
    body = [tag("h2", "Messages in the queue"), tag("p", ended, class_="soft")]
    if rows:
        body.append(table("Found", ["id", "state", "age", "size", "sender", "recipient"], rows, 0))
    return body


def message(long_id: str, lines: Iterator[str], log: Mapping[str, Sequence[str]]) -> list[Markup]:
    """Return the content of a message's page, from the lines of `queuectl show`, and further texts by title."""
    facts: list[Markup] = []
    texts: list[tuple[str, list[str]]] = []
    for number, line in enumerate(lines):
        if number >= LINES_MAX:
            texts.append(("and more", [f"queuectl show {long_id} shows all of it"]))
            break
        name, separator, value = line.partition(":")
        if line.startswith("  ") and texts:
            texts[-1][1].append(line[2:])
        elif separator and not value:
            texts.append((name, []))
        elif separator:
            facts += [tag("dt", name), tag("dd", outside(value.strip(), 2000))]
            if name in ("local", "remote") or name.startswith(("recipients", "stored for ")):
                texts.append((name, []))
    body = [tag("h2", f"Message {long_id}"), tag("dl", *facts, class_="story")]
    for name, part in [*texts, *log.items()]:
        if part:
            body += [tag("h3", name), tag("pre", outside_lines(part), tabindex=0)]
    return body


def outside(text: str, longest: int = LONGEST) -> Markup:
    """Return text from outside, kept apart from the text around it, with a mark for each character that is not seen."""
    cut = text if len(text) <= longest else text[: longest - 1] + "…"
    return tag("bdi", mark_unseen(cut))


def table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[Child]], numbers: int) -> Markup:
    """Return a table that scrolls by itself. The last `numbers` columns are numbers."""
    first = len(heads) - numbers
    head = [tag("th", name, scope="col", class_="number" if i >= first else None) for i, name in enumerate(heads)]
    body = []
    for row in rows:
        marks = ["number" if i >= first else None for i in range(len(row))]
        cells = [tag("td", cell, class_=mark) for cell, mark in zip(row, marks, strict=True)]
        cells[0] = tag("th", row[0], scope="row", class_=marks[0])
        body.append(tag("tr", *cells))
    whole = tag("table", tag("caption", caption), tag("thead", tag("tr", *head)), tag("tbody", *body))
    return tag("div", whole, class_="scroll", tabindex=0, role="region", aria_label=caption)


def outside_lines(lines: Sequence[str]) -> Markup:
    """Return lines of text from outside, each kept apart."""
    return join(*(join(outside(line, 1000), "\n") for line in lines))


def _count(value: float) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if value >= size:
            return f"{value / (1e3 if letter == 'k' else size):.3g}{letter}"
    return f"{value:.4g}"


def _rate(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else _count(value)
