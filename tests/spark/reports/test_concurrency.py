"""Deliveries in flight against the limits, from intervals written by hand."""

from decimal import Decimal

import pytest

from queue_report.reports.engine import Engine
from queue_report.reports.report import View
from support.spark.lake_rows import LakeRows, ask, ns, utc

HOUR = 1_699_999_200


def exact(seconds: float) -> Decimal:
    return Decimal(str(seconds)).quantize(Decimal("0.000000001"))


@pytest.fixture(scope="module")
def engine() -> Engine:
    rows = LakeRows()
    for at, until, local, remote in (
        (HOUR, HOUR + 100, (0, 10), (0, 100)),
        (HOUR + 100, HOUR + 200, (1, 10), (1, 100)),
        (HOUR + 200, HOUR + 250, (10, 10), (25, 100)),
        (HOUR + 250, HOUR + 300, (3, 10), (26, 100)),
        (HOUR + 300, HOUR + 310, (7, 10), (76, 100)),
        (HOUR + 310, HOUR + 320, (8, 10), (99, 100)),
        # The limit was lowered while 99 were in flight.
        (HOUR + 320, HOUR + Decimal("320.000000001"), (0, 10), (99, 50)),
        # The clock was set back, and then by years.
        (HOUR + 321, HOUR + 300, (9, 10), (100, 100)),
        (HOUR - 900_000_000, HOUR + 300, (9, 10), (100, 100)),
    ):
        rows.sample(at, until, local, remote, "a")
    rows.sample(HOUR - 10, HOUR + 7220, (0, 0), (2, 2), "b")
    return rows.engine()


def test_peak_average_and_time_at_the_limit_are_by_channel(engine: Engine) -> None:
    assert ask("concurrency", engine) == [
        # 100 x 1 + 50 x 10 + 50 x 3 + 10 x 7 + 10 x 8 = 900 in 320 s.
        ("a", "q", "local", exact(320.000000001), Decimal("2.812500000"), 10, 10, exact(50), Decimal("15.625000000")),
        # 100 + 1250 + 1300 + 760 + 990 = 4400, and 99 ns.
        ("a", "q", "remote", exact(320.000000001), Decimal("13.750000000"), 99, 100, exact(0.000000001), exact(0)),
        ("b", "q", "local", exact(7230), exact(0), 0, 0, exact(7230), exact(100)),
        ("b", "q", "remote", exact(7230), exact(2), 2, 2, exact(7230), exact(100)),
    ]


def test_levels_are_shares_of_the_limit(engine: Engine) -> None:
    assert ask("concurrency-levels", engine, View(host="a")) == [
        ("a", "q", "local", "0 %", exact(100.000000001)),
        ("a", "q", "local", "1-25 %", exact(100)),
        ("a", "q", "local", "26-50 %", exact(50)),
        ("a", "q", "local", "51-75 %", exact(10)),
        ("a", "q", "local", "76-99 %", exact(10)),
        ("a", "q", "local", "100 %", exact(50)),
        ("a", "q", "remote", "0 %", exact(100)),
        ("a", "q", "remote", "1-25 %", exact(150)),
        ("a", "q", "remote", "26-50 %", exact(50)),
        ("a", "q", "remote", "76-99 %", exact(20)),
        ("a", "q", "remote", "100 %", exact(0.000000001)),
    ]


def test_intervals_are_cut_at_the_full_hours(engine: Engine) -> None:
    view = View(host="b")
    found = ask("concurrency-hours", engine, view, "start", "channel", "seconds", "average")
    assert [row for row in found if row[1] == "remote"] == [
        (utc(HOUR - 3600), "remote", exact(10), exact(2)),
        (utc(HOUR), "remote", exact(3600), exact(2)),
        (utc(HOUR + 3600), "remote", exact(3600), exact(2)),
        (utc(HOUR + 7200), "remote", exact(20), exact(2)),
    ]


def test_intervals_are_cut_at_the_window(engine: Engine) -> None:
    view = View(since=ns(HOUR + 240), until=ns(HOUR + 260), host="a")
    found = ask("concurrency", engine, view, "channel", "seconds", "average", "peak", "at_limit")
    # 10 s of 10 and 25, 10 s of 3 and 26.
    assert found == [
        ("local", exact(20), exact(6.5), 10, exact(10)),
        ("remote", exact(20), exact(25.5), 26, exact(0)),
    ]


def test_average_and_percentage_have_nine_digits_rounded_half_up() -> None:
    rows = LakeRows()
    rows.sample(HOUR, HOUR + 1, (2, 2), (0, 3), "a")
    rows.sample(HOUR + 1, HOUR + 3, (0, 2), (1, 3), "a")
    columns = ("channel", "average", "at_limit_percent")
    assert ask("concurrency", rows.engine(), None, *columns) == [
        ("local", Decimal("0.666666667"), Decimal("33.333333333")),
        ("remote", Decimal("0.666666667"), exact(0)),
    ]


def test_the_most_deliveries_for_a_year_are_counted_exactly() -> None:
    rows = LakeRows()
    many, year = 2**31 - 1, 366 * 86400
    rows.sample(HOUR, HOUR + year, (many, many), (0, many), "a")
    found = ask("concurrency", rows.engine(), None, "average", "peak", "at_limit")
    assert found == [(many, many, year), (0, 0, 0)]
    assert ask("concurrency-levels", rows.engine(), None, "level", "seconds") == [("100 %", year), ("0 %", year)]
