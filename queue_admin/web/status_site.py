"""What `queuectl web` answers to each path. It reads only: no request changes anything in the queue.

Where there are several queues, the pages of each are below /queue/NAME, and the first page shows all.

What costs much is bounded: the rankings come from a walk in the background, all destinations are asked for at most once
in DESTINATIONS_SECONDS, and one search runs at a time, for some seconds.
"""

import threading
import time
from contextlib import suppress
from http import HTTPStatus
from urllib.parse import parse_qs, quote, unquote, urlsplit

from queue_admin.logs.find_log import find_log, find_smtpd_log
from queue_admin.logs.log_files import Concerns, Line, LogSource
from queue_admin.logs.message_log import MessageLog
from queue_admin.logs.smtp_session import Lines, session_lines
from queue_admin.messages.admin_client import NoAnswer, SchedulerQueries
from queue_admin.messages.description import describe, describe_stored
from queue_admin.messages.detail import CHANNELS
from queue_admin.messages.named_message import find_message, find_stored
from queue_admin.messages.search import SECONDS, search
from queue_admin.messages.stored_mail import StoredMail
from queue_admin.metrics.oldest_walk import Background
from queue_admin.metrics.reading import Reading, take_reading
from queue_admin.metrics.smtpd_client import ask_processes
from queue_admin.printable import precise, visible
from queue_admin.views.queue_walk import QUEUES, QueueWalk
from queue_admin.views.ranked_messages import rank
from queue_admin.views.ranking import Ranking
from queue_admin.web import status_page
from queue_admin.web.history import PATIENCE, History
from queue_admin.web.page_server import HTML, Page
from queue_admin.web.status_page import POLICY, RankedView
from queue_base.errors import Failure, NotFound, Temporary
from queue_base.home import Home
from queue_base.queue.layout import open_layout
from queue_wire.admin.facts import DestinationFact
from queue_wire.html import Markup, tag
from queue_wire.ids import pack_queue_id, unpack_long_id

RANKED = 10
RANKED_BY = ("sender", "domain")
REST = 19.0  # How many times as long as a walk for rankings the thread rests after it,
REST_MIN = 30.0  # and at least so many seconds.
DESTINATIONS_MAX = 300
SMTPD_SECONDS = 1.0  # For the answers of queue-smtpd's processes, which take no time unless one hangs.
DESTINATIONS_SECONDS = 5.0
LOG_SECONDS = 5.0  # For the search of the log for the lines about a message,
LOG_LINES = 300  # of which so many are shown.
TITLE = "Mail queue"
NO_QUERY = "What is to be found? An address, part of one, or the id of a message."
NO_PAGE = "There is no such page."


class SearchBusy(Temporary):
    """Another search is running."""


class StatusSite:
    """The pages of one queue; `base` is what their paths begin with."""

    def __init__(self, home: Home, base: str = "") -> None:
        self._home = home
        self._base = base
        self._oldest = Background(home)
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
            path, query = _parse(target)
        except ValueError:
            return self._say(HTTPStatus.BAD_REQUEST, NO_PAGE)
        if path == "/":
            body = status_page.status(self.latest(), self._history.samples(), self._rankings, self._base)
            return self._page(HTTPStatus.OK, body, refresh=True)
        if path == "/destinations":
            return self._all_destinations()
        if path == "/search":
            return self._search(query)
        if path.startswith("/message/"):
            return self._message(path.removeprefix("/message/"))
        return self._say(HTTPStatus.NOT_FOUND, NO_PAGE)

    def _page(self, code: HTTPStatus, body: list[Markup], refresh: bool = False, query: str = "") -> Page:
        page = status_page.document(TITLE, self._home.queue, body, refresh, query, self._base)
        return Page(code, HTML, page, POLICY)

    def _say(self, code: HTTPStatus, text: str, query: str = "") -> Page:
        return self._page(code, [tag("p", text)], query=query)

    def ask(self) -> None:
        """Have a reading taken, which `latest` returns."""
        self._history.ask()

    def latest(self, patience: float = PATIENCE) -> Reading:
        """Return a reading that is at most a second old, or what is known if it takes longer than `patience`."""
        reading = self._history.latest(patience)
        return reading._replace(walked=self._oldest.found) if reading.silent else reading

    def _read(self) -> Reading:
        reading = take_reading(self._home, self._oldest.found, reasons=True)
        try:
            return reading._replace(smtpd=ask_processes(self._home, False, SMTPD_SECONDS).processes)
        except Failure:
            return reading

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
        return self._page(HTTPStatus.OK, status_page.destinations(found, DESTINATIONS_MAX, time.time()), refresh=True)

    def _search(self, query: str) -> Page:
        if not query:
            return self._say(HTTPStatus.OK, NO_QUERY)
        try:
            return self._page(HTTPStatus.OK, self.results(query, SECONDS), query=query)
        except SearchBusy as error:
            return self._say(HTTPStatus.SERVICE_UNAVAILABLE, str(error), query)
        except Failure as error:
            return self._say(HTTPStatus.OK, str(error), query)

    def results(self, query: str, seconds: float) -> list[Markup]:
        """Return what a search of so many seconds finds. Raises SearchBusy, Failure."""
        if not self._searching.acquire(timeout=1.0):
            raise SearchBusy("Another search is running; try again.")
        try:
            found, looked_at, is_all = search(self._home, query.encode("utf-8", "surrogateescape"), seconds)
        finally:
            self._searching.release()
        number = f"{len(found)} found, {looked_at} looked at."
        ended = number if is_all else f"{number} There may be more: the search ended here; queuectl list finds all."
        return status_page.search_results(found, ended, self._base)

    def _message(self, name: str) -> Page:
        try:
            layout = open_layout(self._home.queue)
            mail = StoredMail(self._home)
            stored = find_stored(mail, name)
            try:
                snapshot = find_message(layout, name)
            except NotFound:
                if not stored:
                    mail.check()
                    raise
                long_id, lines = stored[0].long_id, describe_stored(self._home, stored)
            else:
                long_id, lines = snapshot.long_id, describe(self._home, layout, snapshot, stored)
            body = status_page.message(long_id, lines, {"the log": self._log_lines(long_id)})
        except Failure as error:
            return self._say(HTTPStatus.NOT_FOUND, str(error))
        return self._page(HTTPStatus.OK, body)

    def _log_lines(self, long_id: str) -> list[str]:
        """Return the lines of the log about a message; at the end, why there are no more."""
        message, birth = unpack_long_id(long_id)
        if birth is None or not self._searching.acquire(timeout=LOG_SECONDS):
            return []
        found = MessageLog(message, birth)
        shown: list[str] = []
        end = time.monotonic() + LOG_SECONDS

        def limited(source: LogSource) -> Lines:
            def check(line: bytes, concerns: Concerns) -> bool:
                if time.monotonic() > end or len(shown) > LOG_LINES:
                    raise TimeoutError
                return concerns(line)

            return lambda since, concerns: source.lines(since, lambda line: check(line, concerns))

        def show(lines: list[Line]) -> None:
            shown.extend([f"{precise(at // 1000)} {visible(line)}" for at, line in lines])

        try:
            smtpd = find_smtpd_log(self._home)
            if smtpd is not None:
                with suppress(Failure, OSError):  # Perhaps only root may read it.
                    show(session_lines(limited(smtpd), pack_queue_id(self._home.name, long_id), birth))
            for when, text in limited(find_log(self._home))(birth * 1000, found.may_concern):
                show(found.take(when, text))
                if found.over:
                    break
        except TimeoutError:
            shown.append(f"queuectl log {long_id} shows the rest")
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
                    for _ in rank(QueueWalk(open_layout(self._home.queue), QUEUES, time.time()), by, ranking):
                        pass
                except Failure:
                    continue
                found.append(RankedView(by, ranking.rows(RANKED), time.time()))
            self._rankings = found
            wait.wait(max(REST_MIN, REST * (time.monotonic() - begun)))


class SeveralSites:
    """The pages of a home with several queues."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._sites = {one.name: StatusSite(one, f"/queue/{quote(one.name)}") for one in home.each()}

    def start(self) -> None:
        """Begin the work in the background."""
        for site in self._sites.values():
            site.start()

    def answer(self, target: str, accept: str) -> Page:
        """Return the page for a request's target."""
        try:
            path, query = _parse(target)
        except ValueError:
            return self._page(HTTPStatus.BAD_REQUEST, [tag("p", NO_PAGE)])
        if path == "/":
            for site in self._sites.values():
                site.ask()
            until = time.monotonic() + PATIENCE
            readings = {name: site.latest(max(0.0, until - time.monotonic())) for name, site in self._sites.items()}
            return self._page(HTTPStatus.OK, status_page.overview(readings), refresh=True)
        if path == "/search":
            return self._search(query)
        name, slash, _ = path.removeprefix("/queue/").partition("/")
        if path.startswith("/queue/") and slash and name in self._sites:
            return self._sites[name].answer(target.removeprefix(f"/queue/{quote(name)}"), accept)
        return self._page(HTTPStatus.NOT_FOUND, [tag("p", NO_PAGE)])

    def _page(self, code: HTTPStatus, body: list[Markup], refresh: bool = False, query: str = "") -> Page:
        return Page(code, HTML, status_page.document(TITLE, self._home.path, body, refresh, query), POLICY)

    def _search(self, query: str) -> Page:
        """Search all queues, or the one that is named before an id."""
        if not query:
            return self._page(HTTPStatus.OK, [tag("p", NO_QUERY)])
        named, _, rest = query.partition("/")
        sites = {named: self._sites[named]} if rest and named in self._sites else self._sites
        body: list[Markup] = []
        for name, site in sites.items():
            body.append(tag("p", "Queue ", tag("a", name, href=f"/queue/{quote(name)}/")))
            try:
                body += site.results(rest if sites is not self._sites else query, SECONDS / len(sites))
            except Failure as error:
                body.append(tag("p", str(error)))
        return self._page(HTTPStatus.OK, body, query=query)


def _parse(target: str) -> tuple[str, str]:
    """Return the path of a request's target, and what is to be searched for. Raises ValueError."""
    parts = urlsplit(target)
    query = parse_qs(parts.query, max_num_fields=4, errors="surrogateescape").get("q", [""])[0].strip()
    return unquote(parts.path, errors="replace"), query[:200]
