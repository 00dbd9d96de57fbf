"""The whole page as one HTML document that needs nothing else: no network, no script, no file beside it."""

import base64
import hashlib

from spark.page import head, mail, queue, trouble
from spark.page.data import PageData
from spark.page.markup import Markup, join, tag
from spark.page.style import STYLE

SECTIONS = (
    ("volume", "Volume", mail.volume),
    ("delays", "Delays", mail.delays),
    ("classes", "Deferrals and failures", mail.classes),
    ("domains", "Worst domains", mail.domains),
    ("destinations", "Destinations in trouble", trouble.destinations),
    ("concurrency", "Concurrency", queue.concurrency),
    ("queue", "The queue", queue.shape),
    ("conservation", "Conservation", queue.conservation),
    ("reading", "What was read", head.reading),
)


def make_page(data: PageData) -> str:
    """Return the HTML document."""
    links = tag("ul", *(tag("li", tag("a", title, href=f"#{name}")) for name, title, _ in SECTIONS))
    body = tag(
        "body",
        head.head(data),
        tag("nav", links, aria_label="Sections"),
        tag("main", *(make(data) for _, _, make in SECTIONS)),
        tag("footer", tag("p", "All times are UTC. Made by queue-report.")),
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
