"""Troubles by class, code and hour, on tables written by hand."""

import pytest

from queue_report.reports.engine import Engine
from queue_report.reports.report import View
from support.spark.lake_rows import LakeRows, ask, ns, utc

# 2023-11-14 22:00:00 UTC.
HOUR = 1_699_999_200


@pytest.fixture(scope="module")
def engine() -> Engine:
    rows = LakeRows()
    rows.delivery("1.1", "a@x.example", HOUR, HOUR + 5)
    rows.delivery("1.1", "b@x.example", HOUR, HOUR + 9, "failure", reason="no._(#5.1.1)", code="5.1.1", kind="mailbox")
    rows.delivery("2.2", "a@x.example", HOUR, HOUR + 1, "deferral", reason="z_(#4.4.1)", code="4.4.1", kind="network")
    rows.delivery("2.2", "a@y.example", HOUR, HOUR + 2, "deferral", reason="b_(#4.4.1)", code="4.4.1", kind="network")
    rows.delivery("2.2", "a@x.example", HOUR + 3000, HOUR + 3600, "mangled", kind="local")
    rows.rows["deliveries"][-1].update(reason=None, template="report_mangled")
    rows.delivery("2.2", "a@x.example", HOUR + 300, None, "lost")
    rows.delivery("3.3", "a@x.example", HOUR + 7300, None, None)
    return rows.engine()


def test_troubles_are_counted_by_class_and_code(engine: Engine) -> None:
    assert ask("classify", engine) == [
        ("network", "4.4.1", 0, 2, 2, "b_(#4.4.1)"),
        ("local", "", 0, 1, 1, "report_mangled"),
        ("mailbox", "5.1.1", 1, 0, 1, "no._(#5.1.1)"),
    ]


def test_troubles_are_counted_by_hour_and_class(engine: Engine) -> None:
    assert ask("classify-hours", engine) == [
        (utc(HOUR), "mailbox", 1, 0),
        (utc(HOUR), "network", 0, 2),
        (utc(HOUR + 3600), "local", 0, 1),
    ]


def test_a_window_has_the_troubles_that_ended_in_it(engine: Engine) -> None:
    view = View(since=ns(HOUR + 2), until=ns(HOUR + 9), domain="y.example")
    assert ask("classify", engine, view, "class", "deferrals") == [("network", 1)]
    assert ask("classify-hours", engine, view, "class", "deferrals") == [("network", 1)]


def test_an_hour_is_that_of_a_time_before_1970_too() -> None:
    rows = LakeRows()
    for at in (-1, -3600, -3601):
        rows.delivery("1.1", "a@x", at - 5, at, "deferral", kind="rate")
    found = ask("classify-hours", rows.engine(), None, "start", "deferrals")
    assert found == [(utc(-7200), 1), (utc(-3600), 2)]
