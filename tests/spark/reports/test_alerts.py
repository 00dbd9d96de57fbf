"""The report of alerts and warnings, on a table written by hand."""

import pytest

from queue_report.reports.engine import Engine
from queue_report.reports.report import View
from support.spark.lake_rows import LakeRows, ask, ns, utc

T = 1_700_000_000
COLUMNS = ("kind", "lines", "queues", "first", "last", "text", "example")


@pytest.fixture(scope="module")
def engine() -> Engine:
    rows = LakeRows()
    for at, number in ((10, 7), (20, 3), (30, 5)):
        rows.alert(T + at, "warning", f"unable to open {number}", "unable_to_open_N")
    rows.alert(T + 30, "alert", "lost queue-remote", "lost_queue-remote")
    rows.alert(T + 40, "alert", "out of memory", "out_of_memory", queue="r")
    rows.alert(T + 5, "alert", "out of memory", "out_of_memory", host="mx2")
    return rows.engine()


def test_alerts_come_before_warnings_and_each_text_is_counted_once(engine: Engine) -> None:
    assert ask("alerts", engine, None, *COLUMNS) == [
        ("alert", 2, 2, utc(T + 5), utc(T + 40), "out_of_memory", "out of memory"),
        ("alert", 1, 1, utc(T + 30), utc(T + 30), "lost_queue-remote", "lost queue-remote"),
        ("warning", 3, 1, utc(T + 10), utc(T + 30), "unable_to_open_N", "unable to open 3"),
    ]


def test_a_window_has_those_that_came_in_it_and_a_host_its_own(engine: Engine) -> None:
    window = View(since=ns(T + 20), until=ns(T + 30))
    assert ask("alerts", engine, window, "kind", "lines", "last") == [("warning", 1, utc(T + 20))]
    assert ask("alerts", engine, View(host="mx2"), "text", "lines") == [("out_of_memory", 1)]
    assert ask("alerts", engine, View(domain="x.example"), "lines") == [(2,), (1,), (3,)]
