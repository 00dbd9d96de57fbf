"""What `queuectl web` answers to each path. It reads only: no request changes anything in the queue.

What costs much is bounded: the rankings come from a walk in the background, all destinations are asked for at most once
in DESTINATIONS_SECONDS, and one search runs at a time, for some seconds.
"""

import threading
import time
from http import HTTPStatus
from urllib.parse import parse_qs, unquote, urlsplit

from queue_admin.logs.find_log import find_log
from queue_admin.logs.message_log import MessageLog
from queue_admin.messages.admin_client import NoAnswer, SchedulerQueries
from queue_admin.messages.description import describe, find_message
from queue_admin.messages.detail import CHANNELS
from queue_admin.messages.search import search
from queue_admin.messages.survey import Snapshot
from queue_admin.metrics.oldest_walk import Background
from queue_admin.metrics.reading import Reading, take_reading
from queue_admin.printable import precise, visible
from queue_admin.views.queue_walk import QUEUES, QueueWalk
from queue_admin.views.ranked_messages import rank
from queue_admin.views.ranking import Ranking
from queue_admin.web import status_page
from queue_admin.web.history import History
from queue_admin.web.page_server import HTML, Page
from queue_admin.web.status_page import POLICY, RankedView
from queue_base.errors import Failure
from queue_base.home import Home
from queue_base.queue.layout import Layout
from queue_wire.admin.facts import DestinationFact
from queue_wire.html import Markup, tag

RANKED = 10
RANKED_BY = ("sender", "domain")
REST = 19.0  # How many times as long as a walk for rankings the thread rests after it,
REST_LEAST = 30.0  # and at least so many seconds.
DESTINATIONS_MOST = 300
DESTINATIONS_SECONDS = 5.0
LOG_SECONDS = 5.0  # For the search of the log for the lines about a message,
LOG_LINES = 300  # of which so many are shown.
TITLE = "Mail queue"


class StatusSite:
    """The pages of one home."""

    def __init__(self, home: Home, layout: Layout) -> None:
        self._home = home
        self._layout = layout
        self._oldest = Background(layout)
        self._history = History(self._read)
        self._rankings: list[RankedView] = []
        self._searching = threading.Lock()
        self._asking = threading.Lock()
        self._destinations: tuple[float, list[tuple[str, DestinationFact]]] = (0.0, [])

    def start(self) -> None:
        """Begin the work in the background."""
        self._oldest.start()
        self._history.start()
        threading.Thread(target=self._rank, name="rank", daemon=True).start()

    def answer(self, target: str, accept: str) -> Page:
        """Return the page for a request's target."""
        try:
            parts = urlsplit(target)
            query = parse_qs(parts.query, max_num_fields=4, errors="surrogateescape").get("q", [""])[0].strip()
        except ValueError:
            return self._say(HTTPStatus.BAD_REQUEST, "There is no such page.")
        path = unquote(parts.path, errors="replace")
        if path == "/":
            body = status_page.status(self._history.latest(), self._history.samples(), self._rankings)
            return self._page(HTTPStatus.OK, body, refresh=True)
        if path == "/destinations":
            return self._all_destinations()
        if path == "/search":
            return self._search(query[:200])
        if path.startswith("/message/"):
            return self._message(path.removeprefix("/message/"))
        return self._say(HTTPStatus.NOT_FOUND, "There is no such page.")

    def _page(self, code: HTTPStatus, body: list[Markup], refresh: bool = False, query: str = "") -> Page:
        return Page(code, HTML, status_page.document(TITLE, self._home.queue, body, refresh, query), POLICY)

    def _say(self, code: HTTPStatus, text: str, query: str = "") -> Page:
        return self._page(code, [tag("p", text)], query=query)

    def _read(self) -> Reading:
        return take_reading(self._home, self._oldest.found)

    def _all_destinations(self) -> Page:
        with self._asking:
            at, found = self._destinations
            if time.monotonic() - at > DESTINATIONS_SECONDS:
                try:
                    with SchedulerQueries(self._home) as queries:
                        found = [(name, each) for name in CHANNELS for each in queries.destinations(name, ())]
                except NoAnswer as error:
                    return self._say(HTTPStatus.OK, str(error))
                found.sort(key=lambda one: (-one[1].queued - one[1].on_disk, -one[1].in_flight, one[1].nexthop))
                self._destinations = time.monotonic(), found
        return self._page(HTTPStatus.OK, status_page.destinations(found, DESTINATIONS_MOST))

    def _search(self, query: str) -> Page:
        if not query:
            return self._say(HTTPStatus.OK, "What is to be found? An address, part of one, or the id of a message.")
        if not self._searching.acquire(timeout=1.0):
            return self._say(HTTPStatus.SERVICE_UNAVAILABLE, "Another search is running; try again.", query)
        try:
            found, looked_at, is_all = search(self._layout, query.encode("utf-8", "surrogateescape"))
        except Failure as error:
            return self._say(HTTPStatus.OK, str(error), query)
        finally:
            self._searching.release()
        number = f"{len(found)} found, {looked_at} looked at."
        ended = number if is_all else f"{number} There may be more: the search ended here; queuectl list finds all."
        return self._page(HTTPStatus.OK, status_page.search_results(found, ended), query=query)

    def _message(self, name: str) -> Page:
        try:
            snapshot = find_message(self._layout, name)
            lines = describe(self._home, self._layout, snapshot)
            body = status_page.message(snapshot.long_id, lines, {"the log": self._log_lines(snapshot)})
        except Failure as error:
            return self._say(HTTPStatus.NOT_FOUND, str(error))
        return self._page(HTTPStatus.OK, body)

    def _log_lines(self, snapshot: Snapshot) -> list[str]:
        """Return the lines of the log about a message; at the end, why there are no more."""
        if snapshot.birth is None or not self._searching.acquire(timeout=LOG_SECONDS):
            return []
        found = MessageLog(snapshot.message, snapshot.birth)
        shown: list[str] = []
        end = time.monotonic() + LOG_SECONDS

        def concerns(line: bytes) -> bool:
            if time.monotonic() > end or len(shown) > LOG_LINES:
                raise TimeoutError
            return found.may_concern(line)

        try:
            for when, text in find_log(self._home).lines(snapshot.birth * 1000, concerns):
                shown += [f"{precise(at // 1000)} {visible(line)}" for at, line in found.take(when, text)]
                if found.over:
                    break
        except TimeoutError:
            shown.append(f"queuectl log {snapshot.long_id} shows the rest")
        except (Failure, OSError) as error:
            shown.append(str(error))
        finally:
            self._searching.release()
        return shown

    def _rank(self) -> None:
        wait = threading.Event()
        while True:
            begun, found = time.monotonic(), []
            for by in RANKED_BY:
                ranking = Ranking()
                try:
                    for _ in rank(QueueWalk(self._layout, QUEUES, time.time()), by, ranking):
                        pass
                except Failure:
                    continue
                found.append(RankedView(by, ranking.rows(RANKED), time.time()))
            self._rankings = found
            wait.wait(max(REST_LEAST, REST * (time.monotonic() - begun)))
