"""Metrics as text, and the answers to those who scrape them."""

import time
from collections.abc import Mapping
from functools import partial
from http import HTTPStatus

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST as OPEN_TYPE
from prometheus_client.openmetrics.exposition import generate_latest as generate_open

from queue_admin.metrics.families import ReadingCollector
from queue_admin.metrics.oldest_walk import Background
from queue_admin.metrics.reading import Reading, SharedReading, take_reading, take_shared
from queue_admin.web.history import History
from queue_admin.web.page_server import Page, text_page
from queue_base.home import Home

PATIENCE = 5.0  # Seconds that a scrape waits for queues; a scraper waits ten.


def expose(readings: Mapping[str, Reading], shared: SharedReading, version: str, is_open: bool) -> bytes:
    """Return a reading of each queue, by the names of the queues, as OpenMetrics or in Prometheus' older format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(ReadingCollector(readings, shared, version))
    return generate_open(registry) if is_open else generate_latest(registry)


class Exporter:
    """Answers scrapes, each with a reading of its own."""

    def __init__(self, home: Home, version: str) -> None:
        self._home = home
        self._version = version
        self._walks = {one.name: Background(one) for one in home.each()}
        # A queue that hangs must not keep a scrape from the others.
        self._histories = {one.name: History(partial(self._read, one)) for one in home.each()}

    def start(self) -> None:
        """Begin the walks in the background."""
        for walks in self._walks.values():
            walks.start()

    def _read(self, home: Home) -> Reading:
        return take_reading(home, self._walks[home.name].found)

    def answer(self, path: str, accept: str) -> Page:
        """Return the metrics for /metrics, in the format that the client takes."""
        path = path.partition("?")[0]
        if path == "/":
            return text_page(HTTPStatus.OK, "queuectl metrics: see /metrics")
        if path != "/metrics":
            return text_page(HTTPStatus.NOT_FOUND, "there is only /metrics")
        is_open = "application/openmetrics-text" in accept
        for history in self._histories.values():
            history.ask()
        until = time.monotonic() + PATIENCE
        readings = {name: each.latest(max(0.0, until - time.monotonic())) for name, each in self._histories.items()}
        body = expose(readings, take_shared(self._home), self._version, is_open)
        return Page(HTTPStatus.OK, OPEN_TYPE if is_open else CONTENT_TYPE_LATEST, body)
