"""From logs to the page: its numbers are the logs', and its times are UTC wherever the machine is."""

import re
import time
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark.demo.sender import START
from spark.demo.world import write_logs
from spark.lake.build import Order, build
from spark.lake.store import open_lake, read_tables
from spark.page.collect import collect, take
from spark.page.document import SECTIONS, make_page
from spark.page.write import describe, write_page
from spark.reports.report import View
from spark.runtime.progress import Progress

pytestmark = pytest.mark.together

NANO = 10**9


class Phases(Progress):
    """Keeps what a terminal would show."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def phase(self, text: str) -> None:
        self.seen.append(text)


@pytest.fixture(scope="module")
def place(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with logs of one day, and their lake."""
    found = tmp_path_factory.mktemp("page")
    write_logs(found / "logs", days=1)
    (found / "logs" / "lists" / "main" / "@400000000000000000000000.s").write_text("@zz <script>\n")
    build(spark, Order(str(found / "logs"), str(found / "lake")), Progress())
    return found


def counted(logs: Path) -> Counter[str]:
    text = "".join(path.read_text() for path in logs.rglob("*") if path.is_file())
    return Counter(re.findall(r"(?<= )(?:success|failure|deferral|new msg)(?=[: ])", text))


def test_numbers_on_the_page_are_those_of_the_logs(spark: SparkSession, place: Path) -> None:
    progress = Phases()
    write_page(spark, str(place / "lake"), place / "page.html", View(), progress)
    page = (place / "page.html").read_text()
    assert [name for name, _, _ in SECTIONS] == re.findall('<section id="([a-z]+)">', page)
    words = counted(place / "logs")
    tiles = dict(re.findall(r'<dt>(\w+)</dt><dd class="large">([\d,]+)</dd>', page))
    assert {name: int(tiles[name].replace(",", "")) for name in ("received", "delivered", "deferred", "failed")} == {
        "received": words["new msg"], "delivered": words["success"], "deferred": words["deferral"],
        "failed": words["failure"],
    }  # fmt: skip
    assert "recipients are accounted for" in page
    assert "3 queues" in page
    assert "hours" in progress.seen


# A second page, of all reports once more: some 15 s.
@pytest.mark.exhaustive
def test_page_of_a_window_and_a_host_shows_only_those(spark: SparkSession, place: Path) -> None:
    storage, manifest = open_lake(spark, str(place / "lake"))
    view = View(since=(START + 9 * 3600) * NANO, until=(START + 15 * 3600) * NANO, host="out1")
    data = collect(read_tables(spark, storage, manifest), view, manifest, describe(view))
    assert (data.begin, data.end) == (START + 9 * 3600, START + 15 * 3600)
    assert [row["start"] for row in data.of("hours")] == [START + 3600 * hour for hour in range(9, 15)]
    assert {row["host"] for row in data.of("concurrency")} == {"out1"}
    assert list(data.lines) == ["out1/main"]
    page = make_page(data)
    assert "host out1 only, since 2026-03-01 09:00, until 2026-03-01 15:00" in page
    assert "mx1" not in page


def test_times_are_utc_in_any_zone(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = spark.sql("select timestamp'2026-03-29 01:30:00.25' at, date'2026-03-29' day, 1.50 number, null none")
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        (row,) = take(frame)
    finally:
        monkeypatch.undo()
        time.tzset()
    # In Berlin the hour from 2 to 3 was left out that night.
    assert row == {"at": 1774747800.25, "day": 20541, "number": 1.5, "none": None}
