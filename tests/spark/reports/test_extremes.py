"""Whatever a log holds, each report answers."""

import pytest

from queue_report.reports import REPORTS
from queue_report.reports.engine import Engine
from queue_report.reports.report import View
from support.spark.extreme_rows import NOW, extreme_rows
from support.spark.lake_rows import ask, ns


@pytest.fixture(scope="module")
def engine() -> Engine:
    return extreme_rows().engine()


@pytest.mark.parametrize("name", REPORTS)
def test_a_report_answers_whatever_stamps_and_texts_a_log_has(engine: Engine, name: str) -> None:
    around = View(since=ns(NOW - 3600), until=ns(NOW + 3600), at=ns(NOW))
    for view in (View(), around, View(host="text", domain="ö.example")):
        rows = ask(name, engine, view)
        assert all(len(row) == len(REPORTS[name].columns) for row in rows)


def test_hours_are_those_of_the_clock_from_1677_to_2262(engine: Engine) -> None:
    for name in ("hours", "delays-hours", "classify-hours", "concurrency-hours"):
        starts = [row[0] for row in ask(name, engine)]
        assert starts == sorted(starts) and all((each.minute, each.second) == (0, 0) for each in starts), name
    assert ask("hours", engine)[0][0].isoformat() == "1677-09-21T00:00:00"
    assert [row[0] for row in ask("daytime", engine)] == list(range(24))
