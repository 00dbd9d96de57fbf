"""The status page: what it says, that nothing from outside becomes markup, and how it looks in a browser."""

import http.client
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from queue_admin.messages.search import Found
from queue_admin.metrics.oldest_walk import OldestWalk, Walked
from queue_admin.metrics.reading import Reading
from queue_admin.metrics.smtpd_client import SmtpdReading
from queue_admin.metrics.system_facts import DiskSpace, ProcessFacts
from queue_admin.views.ranking import RankedRow
from queue_admin.web import history, status_page, status_site
from queue_admin.web.history import FRESH, History, HistorySample, levels, rates, sample_of
from queue_admin.web.status_page import POLICY, RankedView, document, outside, status
from queue_admin.web.status_site import SeveralSites, StatusSite
from queue_admin.web.svg_plot import PlotLine, nice_top, plot, time_marks
from queue_base.home import Home
from queue_base.queue.layout import open_layout
from queue_wire.admin.facts import DEAD, DestinationFact
from queue_wire.admin.figure import Figure
from queue_wire.admin.smtpd_status import ProcessStatus
from queue_wire.html import tag
from support.processes.suite import program, wait_until
from support.queues.home import make_several
from support.queues.listed_queue import Queue
from support.queues.queued import classified_message
from support.queues.stored_mail import store
from support.send.control import long_id
from support.send.scripted_send import ScriptedSend
from support.spark.page.chromium import DARK, LIGHT, observe_pages

HOSTILE = b"<script>alert(1)</script>\"'&\xe2\x80\xae\xff<img src=http://127.0.0.1:1/x>"
NOW = 1_800_000_000.0


def reading(**more: float) -> Reading:
    """A reading of a busy suite in which every name is hostile."""
    channel = (b"remote",)
    figures = [
        Figure(b"started", NOW - 90_000), Figure(b"read", 1), Figure(b"arrived", 5000), Figure(b"ended", 4000),
        Figure(b"messages", 12, (b"remote", b"active")), Figure(b"messages", 345_678, (b"remote", b"deferred")),
        Figure(b"running", 20, channel), Figure(b"marked", 2, (b"corrupt",)), Figure(b"marked", 7, (b"held",)),
        Figure(b"dead", 2, channel), Figure(b"destinations", 40, channel),
        Figure(b"suspended", 310, (b"remote", HOSTILE)), Figure(b"waiting", 31, (b"remote", HOSTILE)),
        Figure(b"waiting", 3, (b"remote", b"b.example")), Figure(b"window", 20, (b"remote", b"b.example")),
    ]  # fmt: skip
    figures += [Figure(name.encode(), number) for name, number in more.items()]
    processes = [ProcessFacts("queue-send", 7, 90_000.0, 30_000_000, 812.3)]
    return Reading(NOW, figures, "", processes, DiskSpace(10**10, 10**11), True, False, Walked(NOW - 4e5, 3, NOW))


def samples(number: int = 300) -> list[HistorySample]:
    """Samples of some hours, with a stop of queue-send in the middle."""
    found = []
    for i in range(number):
        at, run = NOW - 15 * (number - i), NOW - 90_000
        if 100 <= i < 120:
            found.append(HistorySample(at, 0))
            continue
        if i >= 120:
            run += 1
        found.append(HistorySample(at, run, 40 * i, 35 * i, 30 * i, 5 * i, i, 300 + i % 50, 1000 + 3 * i, i % 20))
    return found


def full_page() -> str:
    rows = [RankedRow(HOSTILE, 90, 120, 10**7), RankedRow(b"ann@example.org", 3, 4, 5000)]
    rankings = [RankedView("sender", rows, NOW), RankedView("domain", rows, NOW)]
    return document("Mail queue", "/var/queue/queue", status(reading(), samples(), rankings), refresh=True).decode()


def test_the_page_says_what_queue_smtpd_does() -> None:
    counters = {"connections": 812, "messages": 640}
    process = ProcessStatus(4711, 1, 1, NOW - 7200, 500, 12, {}, counters)
    page = document("Mail queue", "/q", status(reading()._replace(smtpd=[process]), samples(), [])).decode()
    part = page.split("<h2>queue-smtpd</h2>")[1]
    assert [part.count(text) for text in (">4711<", ">2h00m<", ">12 of 500<", ">812<", ">640<")] == [1] * 5
    assert "None of its processes runs for this home, or answers." in full_page()


def test_nothing_from_outside_becomes_markup() -> None:
    fact = DestinationFact(DEAD, 5, 1, 0, 2, 3, 300, 4, 0, 0, 0, b"", b"", HOSTILE, HOSTILE)
    lines = iter(["message: 1-2", "sender: <" + HOSTILE.decode("utf-8", "backslashreplace") + ">", "header:", "  <b>x"])
    story = status_page.message("1-2", lines, {"log": ["<i>line"]})
    pages = [
        full_page(),
        document("q", "/q", status_page.destinations([("remote", fact)], 10, NOW)).decode(),
        document("q", "/q", story, query='"><script>').decode(),
    ]
    for page in pages:
        body = page.partition("</style>")[2]
        assert not re.search(r"<(script|img|i)\b|<b>x", body)
        assert "\N{RIGHT-TO-LEFT OVERRIDE}" not in body
        assert "&lt;" in body
        # Addresses in attributes lead to this server only.
        assert all(link.startswith("/") for link in re.findall(r'(?:href|action|src)="([^"]*)"', page))
    assert 'value="&quot;&gt;&lt;script&gt;"' in pages[2]


def test_the_style_sheet_is_the_only_thing_that_the_policy_allows() -> None:
    assert POLICY.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in POLICY
    assert "url(" not in status_page.STYLE
    assert "@import" not in status_page.STYLE
    assert " style=" not in full_page()


def test_findings_say_what_is_wrong() -> None:
    text = status_page.findings(reading(**{"log-unwritten": 10**6, "removal-wait": 100}))
    for words in ("Injectors wait", "The logger does not take the log", "have waited 1m", "cannot be read: 2"):
        assert words in text, words
    down = Reading(NOW, [], "queue-send does not run; nothing is tried", [], DiskSpace(1, 100), False, True, None)
    for words in ("Nothing is delivered: queue-send does not run", "Mail is refused", "The disk has 1 B free"):
        assert words in status_page.findings(down), words
    calm = Reading(NOW, [Figure(b"read", 1)], "", [], DiskSpace(50, 100), False, False, None)
    assert "Nothing is wrong" in status_page.findings(calm)


def test_a_dead_destination_has_its_reason_and_the_messages_that_wait_for_its_probe() -> None:
    figures = [Figure(b"suspended", 0, (b"remote", b"c.example")), Figure(b"waiting", 23, (b"remote", b"c.example"))]
    reasons: dict[tuple[bytes, ...], bytes] = {(b"remote", b"c.example"): b"I was not able to connect <to it>"}
    page = str(tag("div", *status(reading()._replace(figures=figures, reasons=reasons), [], [])))
    assert "In delivery now" not in page
    assert "<bdi>I was not able to connect &lt;to it&gt;</bdi>" in page
    row = page[page.index("<caption>Dead") :]
    assert "messages waiting" in row and re.findall(r'<td class="number">([^<]*)', row)[:2] == ["23", "0"]


def test_a_probe_whose_time_has_passed_is_due_now() -> None:
    fact = DestinationFact(DEAD, int(NOW) - 1, 1, 0, 23, 0, 300, 0, 0, 0, 0, b"", b"", b"c.example", b"timed out")
    page = str(tag("div", *status_page.destinations([("remote", fact)], 300, NOW)))
    assert "<td>now</td>" in page and "<bdi>timed out</bdi>" in page


def test_a_rate_has_gaps_where_queue_send_stopped_or_started_anew() -> None:
    run = [HistorySample(0, 1, 10), HistorySample(10, 1, 30), HistorySample(20, 0), HistorySample(30, 2, 5)]
    assert rates(run, lambda each: each.arrived) == [None, 2.0, None, None]
    assert levels(run, lambda each: each.arrived) == [10, 30, None, 5]
    assert rates([], lambda each: each.arrived) == []
    assert sample_of(reading()).deferred == 345_678


def test_plots_have_round_axes_and_words_for_those_who_do_not_see_them() -> None:
    assert [nice_top(value) for value in (0, 0.3, 1, 1.1, 7, 99, 100)] == [1, 0.5, 1, 2, 10, 100, 100]
    assert time_marks(10.0, 3700.0)[:2] == [900.0, 1800.0]
    assert len(time_marks(0.0, 6 * 3600.0)) <= 8
    drawn = plot("Title", [0.0, 15.0, 30.0], [PlotLine("a", [1.0, None, 3.0], "c1")], str)
    assert 'aria-label="Title. a: lowest 1.0, highest 3.0, last 3.0"' in drawn
    assert drawn.count("M") >= 2
    assert "There will be a line" in plot("Title", [0.0], [PlotLine("a", [1.0], "c1")], str)


def test_unseen_characters_have_a_mark_and_long_texts_an_end() -> None:
    assert outside("a\N{ZERO WIDTH SPACE}b\x07") == "<bdi>a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}</bdi>"
    assert len(outside("x" * 5000)) < 400
    assert tag("p", "<", title='"') == '<p title="&quot;">&lt;</p>'


@pytest.fixture
def site(tmp_path: Path) -> tuple[Queue, StatusSite]:
    queue = Queue(tmp_path / "home")
    return queue, StatusSite(queue.home)


def text(site: StatusSite | SeveralSites, path: str, status: int = 200) -> str:
    page = site.answer(path, "")
    assert page.status == status
    assert page.policy == POLICY
    return page.body.decode().partition("</style>")[2]


def test_a_search_finds_addresses_and_ids(site: tuple[Queue, StatusSite]) -> None:
    queue, pages = site
    queue.classified(b"ann@Example.org", remote=b"Tjoe@far.example\0Tsue@far.example\0")
    queue.queued(b"x@y", (b"\xff@odd.example",))
    for words, number in (("ANN@example", 1), ("sue@", 1), ("far.example", 1), ("nobody", 0), ("@", 2), ("%FF@", 1)):
        found = text(pages, f"/search?q={words}")
        assert len(set(re.findall(r"/message/[\w-]+", found))) == number, words
        assert f"{number} found" in found
    name = re.findall(r"/message/([\w-]+)", text(pages, "/search?q=ann"))[0]
    assert f"/message/{name}" in text(pages, f"/search?q={name}")
    assert "What is to be found" in text(pages, "/search?q=")
    assert "What is to be found" in text(pages, "/search")


def test_a_message_has_its_story(site: tuple[Queue, StatusSite]) -> None:
    queue, pages = site
    queue.classified(b"ann@example.org", remote=b"Tjoe@far.example\0Dsue@far.example\0")
    (name,) = set(re.findall(r"/message/([\w-]+)", text(pages, "/search?q=joe")))
    story = text(pages, f"/message/{name}")
    for words in ("ann@example.org", "&lt;joe@far.example&gt;", "Subject: x", "1 done, 1 left", "not run", "the log"):
        assert words in story, words
    for path in ("/message/7", "/message/x", "/message/" + quote("<b>"), "/message/..%2f..%2fetc"):
        assert "<b>" not in text(pages, path, 404)


def test_what_is_stored_for_a_domain_is_found_and_has_its_story(site: tuple[Queue, StatusSite]) -> None:
    queue, pages = site
    stored = store(queue.home, "later", "ann@example.net", "bob@example.net", sender="joe@far.example")
    for words in ("bob@", "JOE@far", stored.long_id, str(stored.message)):
        found = text(pages, f"/search?q={words}")
        assert set(re.findall(r"/message/([\w-]+)", found)) == {stored.long_id}, words
        assert "1 found" in found and "stored" in found
    assert "0 found" in text(pages, "/search?q=nobody")
    story = text(pages, f"/message/{stored.long_id}")
    since = "<dt>stored for example.net</dt><dd><bdi>since 20"
    for words in (since, "&lt;bob@example.net&gt;", "Subject: later", "does not answer"):
        assert words in story, words
    walk = OldestWalk(open_layout(queue.home.queue), queue.home)
    for _ in walk.steps():
        pass
    assert walk.found is not None
    shown = "".join(str(each) for each in status(reading()._replace(walked=walk.found), samples(), []))
    assert "<dd class=\"large\">2</dd><dd>recipients of on-demand domains</dd>" in shown


def test_other_paths_are_not_there_and_all_pages_work_without_queue_send(site: tuple[Queue, StatusSite]) -> None:
    _, pages = site
    assert "There is no such page" in text(pages, "/etc/passwd", 404)
    for odd in ("http://[/", "http://[x]:y/search?q=1", "/search?q=1&a&b&c&d&e=1&f=2", "//\u2100@x/"):
        assert "There is no such page" in text(pages, odd, 400)
    assert "Nothing is delivered" in text(pages, "/")
    assert "does not run" in text(pages, "/destinations")


def test_of_several_queues_the_first_page_shows_all_and_each_has_its_own_pages(tmp_path: Path) -> None:
    home = make_several(tmp_path / "home", "a", "b")
    message = classified_message(home.choose("b"), remote=[b"joe@far.example"], birth=int(time.time()) - 100)
    pages = SeveralSites(home)
    first = text(pages, "/")
    assert re.findall(r'href="(/queue/[^"]*)"', first) == ["/queue/a/", "/queue/b/"]
    assert first.count("Nothing is delivered") == 2
    own = text(pages, "/queue/b/")
    assert 'href="/queue/b/destinations"' in own and 'action="/queue/b/search"' in own and home.queues["b"] in own
    name = long_id(home.choose("b"), message)
    for found in (
        text(pages, "/search?q=joe@"), text(pages, "/queue/b/search?q=joe@"), text(pages, f"/search?q=b/{name}")
    ):  # fmt: skip
        assert f'href="/queue/b/message/{name}"' in found
    assert "1 found" not in text(pages, "/queue/a/search?q=joe@")
    assert "1 found" not in text(pages, f"/search?q=a/{name}")
    assert f"Message {name}" in text(pages, f"/queue/b/message/{name}")
    for path in ("/destinations", "/queue/", "/queue/a", "/queue/c/", "/queue/..%2fa/", f"/message/{name}"):
        assert "There is no such page" in text(pages, path, 404), path
    os.rename(home.queues["a"], home.queues["a"] + ".out")
    assert "unable to read" in text(pages, "/search?q=joe@")
    assert f'href="/queue/b/message/{name}"' in text(pages, "/search?q=joe@")


def test_a_queue_that_hangs_holds_up_neither_the_start_nor_the_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = make_several(tmp_path / "home", "a", "b")
    answers = threading.Event()

    def read(one: Home, walked: Walked | None, reasons: bool) -> Reading:
        if one.name == "a":
            answers.wait(30)
        return reading()

    monkeypatch.setattr(status_site, "take_reading", read)
    monkeypatch.setattr(status_site, "ask_processes", lambda *_: SmtpdReading([], [], []))
    monkeypatch.setattr(status_site, "PATIENCE", 0.05)
    pages = SeveralSites(home)
    wait_until(lambda: text(pages, "/").count("Deferred") == 1, why="the figures of the one that answers")
    first = text(pages, "/")
    told = r"Nothing is known: the queue has not answered for \d+ s: its disk or its queue-send hangs"
    assert len(re.findall(told, first)) == 1
    assert first.index("has not answered") < first.index('href="/queue/b/"') < first.index("Deferred")
    answers.set()
    wait_until(lambda: text(pages, "/").count("Deferred") == 2, why="the figures of the other one")


def test_a_reading_that_takes_long_leaves_the_last_one_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = threading.Event()
    answers.set()

    def read() -> Reading:
        answers.wait(30)
        return reading()._replace(at=time.time() - 2 * FRESH)

    past = History(read)
    assert past.latest().figures
    answers.clear()
    assert past.latest(0.0).figures
    monkeypatch.setattr(history, "KNOWN", FRESH)
    assert past.latest(0.0).silent
    answers.set()


@pytest.fixture
def served(home: Home, send: ScriptedSend) -> Iterator[tuple[Home, ScriptedSend, http.client.HTTPConnection]]:
    """A queue-send with a hanging and a waiting message, and `queuectl web` on it."""
    for recipient in (b"joe@<script>.example", b"ann@b.example"):
        send.todo.classified(classified_message(home, remote=[recipient], birth=int(time.time()) - 100))
        send.remote.job()
    process = subprocess.Popen(
        [*program("queuectl"), "--home", home.path, "web", "--listen", "127.0.0.1:0"], stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    found = re.search(r"http://127.0.0.1:(\d+)/", process.stderr.readline())
    assert found is not None
    client = http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=60)
    yield home, send, client
    client.close()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)


def test_the_page_shows_a_running_suite(served: tuple[Home, ScriptedSend, http.client.HTTPConnection]) -> None:
    home, _, client = served

    def get(path: str) -> str:
        client.request("GET", path)
        answer = client.getresponse()
        assert answer.status == 200
        assert answer.headers["Content-Security-Policy"] == POLICY
        return answer.read().decode()

    page = get("/")
    assert "b.example" in page
    assert "&lt;script&gt;.example" in page
    assert "Active" in page
    assert "b.example" in get("/destinations")
    message = next(each for each in map(int, (p.name for p in Path(home.queue).glob("mess/*/*"))))
    assert "in flight to" in get(f"/message/{long_id(home, message)}")


def test_the_page_shows_what_is_known_without_a_queue_send_that_is_stopped(
    served: tuple[Home, ScriptedSend, http.client.HTTPConnection],
) -> None:
    _, send, client = served
    send.signal(signal.SIGSTOP)

    def page() -> str:
        client.request("GET", "/")
        return client.getresponse().read().decode()

    try:
        wait_until(lambda: "Oldest" in page(), why="the birth of the oldest message")
        shown = page()
        assert "no answer in 3 s; it is stopped" in shown and "has not answered" not in shown
        assert "By sender" in shown and "Processes" in shown and "Dead destinations" not in shown
    finally:
        send.signal(signal.SIGCONT)


def written_pages(place: Path) -> list[Path]:
    """Write a full page of each kind, the first page first; return their paths."""
    why = b"192.0.2.1 said: 421 4.3.2 " + b"a-word-of-a-host" * 20
    long = b"a.very.long.name." * 12 + b"example"
    places = ((DEAD, HOSTILE, why), (b"alive", long, b""), (b"alive", b"b.example", b""))
    facts = [
        ("remote", DestinationFact(state, 1_800_000_300, 20, 3, 2000, 3, 300, 4, 0, 0, 0, b"", b"", nexthop, why))
        for state, nexthop, why in places
    ]
    found = [
        Found("457-1f2k8xw3j0a", "deferred", 7500.0, 2310, b"ann@example.org", HOSTILE),
        Found("1234567-1f2k8xw3j0b", "active", 5.0, 10**9, b"x" * 64 + b"@example.org", b"y" * 200 + b"@example.net"),
    ]
    lines = ["message: 457-1f2k8xw3j0a", "sender: <" + "x" * 300 + "@example.org>", "remote: 0 done, 1 left",
             "  pending <" + "y" * 300 + ">", "header:", "  Subject: " + "z" * 900]  # fmt: skip
    log = {"log": ["2027-01-15 08:00:00 info msg 457: bytes 2310 from <ann@example.org> qp 8123 uid 1000 " + "w" * 900]}
    bodies = {
        "destinations": status_page.destinations(facts, 300, NOW),
        "search": status_page.search_results(found, "2 found in all of the queue."),
        "message": status_page.message("457-1f2k8xw3j0a", iter(lines), log),
    }
    pages = {name: document("Mail queue", "/var/queue/queue", body).decode() for name, body in bodies.items()}
    paths = []
    for name, page in {"first": full_page().replace('http-equiv="refresh"', 'name="x"'), **pages}.items():
        paths.append(place / f"{name}.html")
        paths[-1].write_text(page)
    return paths


def test_all_pages_are_whole_in_a_browser_wide_and_narrow_light_and_dark(tmp_path: Path) -> None:
    pages = written_pages(tmp_path)
    frames = [(page, width, "") for width in (1280, 360) for page in pages]
    papers = []
    for scheme in (LIGHT, DARK):
        for (page, width, _), seen in zip(frames, observe_pages(frames, scheme), strict=True):
            what = f"{page.stem} in a window of {width}, {scheme}"
            assert seen["title"] == "Mail queue", what
            assert seen["width"] <= seen["room"], f"wider than its window: {what}"
            assert seen["cut"] == [], what
            assert seen["wrapped"] == [], what
            assert seen["loaded"] == [], what
            assert seen["active"] == 1, what  # The form of the search.
            assert seen["ink"] != seen["paper"], what
            if page == pages[0]:
                assert len(seen["plots"]) == 4, what
                assert min(seen["plots"]) >= 4, what
                assert seen["small"] > 8, what
            papers.append(seen["paper"])
    light, dark = set(papers[: len(frames)]), set(papers[len(frames) :])
    assert len(light) == len(dark) == 1
    assert light != dark
