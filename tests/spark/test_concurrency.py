"""Deliveries in flight against the limits, from intervals written by hand."""

from decimal import Decimal

import pytest
from pyspark.sql import SparkSession

from spark.lake.schema import Tables
from spark.reports.report import View
from support.spark.lake_rows import LakeRows, ask, ns, utc

pytestmark = pytest.mark.together

HOUR = 1_699_999_200


def exact(seconds: float) -> Decimal:
    return Decimal(str(seconds)).quantize(Decimal("0.000000001"))


@pytest.fixture(scope="module")
def tables(spark: SparkSession) -> Tables:
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
    return rows.tables(spark)


def test_peak_average_and_time_at_the_limit_are_by_channel(tables: Tables) -> None:
    assert ask("concurrency", tables) == [
        # 100 x 1 + 50 x 10 + 50 x 3 + 10 x 7 + 10 x 8 = 900 in 320 s.
        ("a", "q", "local", exact(320.000000001), Decimal("2.812"), 10, 10, exact(50), Decimal("15.62")),
        # 100 + 1250 + 1300 + 760 + 990 = 4400, and 99 ns.
        ("a", "q", "remote", exact(320.000000001), Decimal("13.750"), 99, 100, exact(0.000000001), Decimal("0.00")),
        ("b", "q", "local", exact(7230), Decimal("0.000"), 0, 0, exact(7230), Decimal("100.00")),
        ("b", "q", "remote", exact(7230), Decimal("2.000"), 2, 2, exact(7230), Decimal("100.00")),
    ]


def test_levels_are_shares_of_the_limit(tables: Tables) -> None:
    assert ask("concurrency-levels", tables, View(host="a")) == [
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


def test_intervals_are_cut_at_the_full_hours(tables: Tables) -> None:
    view = View(host="b")
    found = ask("concurrency-hours", tables, view, "start", "channel", "seconds", "average")
    assert [row for row in found if row[1] == "remote"] == [
        (utc(HOUR - 3600), "remote", exact(10), Decimal("2.000")),
        (utc(HOUR), "remote", exact(3600), Decimal("2.000")),
        (utc(HOUR + 3600), "remote", exact(3600), Decimal("2.000")),
        (utc(HOUR + 7200), "remote", exact(20), Decimal("2.000")),
    ]


def test_intervals_are_cut_at_the_window(tables: Tables) -> None:
    view = View(since=ns(HOUR + 240), until=ns(HOUR + 260), host="a")
    found = ask("concurrency", tables, view, "channel", "seconds", "average", "peak", "at_limit")
    # 10 s of 10 and 25, 10 s of 3 and 26.
    assert found == [
        ("local", exact(20), Decimal("6.500"), 10, exact(10)),
        ("remote", exact(20), Decimal("25.500"), 26, exact(0)),
    ]
