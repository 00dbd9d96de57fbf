"""Percentiles and delays: exact, by nearest rank."""

import random
from decimal import Decimal

import pytest
from pyspark.sql import SparkSession

from spark.lake.schema import Tables
from spark.reports.percentiles import percentiles
from spark.reports.report import View
from support.spark.lake_rows import LakeRows, ask, ns, utc

pytestmark = pytest.mark.together

HOUR = 1_699_999_200


def nearest(values: list[int], percent: int) -> int:
    """Return the smallest value that `percent` % do not exceed."""
    return next(v for v in sorted(values) if sum(w <= v for w in values) * 100 >= percent * len(values))


def test_percentiles_are_values_by_nearest_rank(spark: SparkSession) -> None:
    rng = random.Random(4)
    groups = {
        "none": [],
        "one": [7],
        "two": [-5, 5],
        "same": [3] * 50,
        "hundred": list(range(1, 101)),
        "near": [10**15 + rng.randrange(1000) for _ in range(150)],
        "wide": [int(rng.lognormvariate(20, 5)) * rng.choice((-1, 1, 1)) for _ in range(200)],
        "large": [2**63 - 1, 0, -(2**63) + 1],
    }
    rows = [(name, value, -1 if name == "one" else None) for name, values in groups.items() for value in values]
    frame = spark.createDataFrame(rows, "name string, a long, b long")
    shares = {"p1": 1, "p50": 50, "p90": 90, "p99": 99, "max": 100}
    found = {row["name"]: row for row in percentiles(frame, ["name"], ["a", "b"], shares).collect()}
    assert set(found) == set(groups) - {"none"}
    for name, row in found.items():
        assert {share: row[f"a_{share}"] for share in shares} == {
            share: nearest(groups[name], percent) for share, percent in shares.items()
        }, name
        assert row["b_p50"] == (-1 if name == "one" else None)


@pytest.fixture(scope="module")
def tables(spark: SparkSession) -> Tables:
    rows = LakeRows()
    # Queue time i, delivery time i / 4, for i from 1 to 100; half of it to each of two domains.
    for i in range(1, 101):
        rows.message(f"{i}.1", HOUR, HOUR + 999, recipients=1)
        domain = "even.example" if i % 2 == 0 else "odd.example"
        rows.delivery(f"{i}.1", f"a@{domain}", HOUR + i, HOUR + i + Decimal(i) / 4)
        rows.delivery(f"{i}.1", f"a@{domain}", HOUR, HOUR + 500, "deferral")
    # Older than the log: no queue time. A failure and a lost delivery are no delivery times.
    rows.message("200.1", None, None, first=HOUR + 3600)
    rows.delivery("200.1", "a@odd.example", HOUR + 3600, HOUR + 3607)
    rows.delivery("200.1", "b@odd.example", HOUR, HOUR + 3000, "failure")
    rows.delivery("200.1", "c@odd.example", HOUR, None, "lost")
    return rows.tables(spark)


def times(*seconds: float | None) -> tuple[Decimal | None, ...]:
    return tuple(None if s is None else Decimal(str(s)).quantize(Decimal("0.000000001")) for s in seconds)


def test_all_deliveries_that_succeeded_are_in_one_row(tables: Tables) -> None:
    # 101 delivery times: 0.25 to 25, and 7; the 51st is 12.5 where 7 makes 7.00 come twice.
    assert ask("delays", tables) == [(101, *times(50, 90, 99, 100, 12.5, 22.5, 24.75, 25))]


def test_a_domain_has_its_own_delays(tables: Tables) -> None:
    assert ask("delays-domains", tables) == [
        ("odd.example", 51, *times(49, 89, 99, 99, 12.25, 22.25, 24.75, 24.75)),
        ("even.example", 50, *times(50, 90, 100, 100, 12.5, 22.5, 25, 25)),
    ]


def test_delays_are_shown_by_the_hour_of_their_end(tables: Tables) -> None:
    assert ask("delays-hours", tables, None, "start", "deliveries", "queue_p50", "delivery_max") == [
        (utc(HOUR), 100, *times(50, 25)),
        (utc(HOUR + 3600), 1, *times(None, 7)),
    ]


def test_an_empty_window_has_one_row_without_delays(tables: Tables) -> None:
    assert ask("delays", tables, View(until=ns(HOUR))) == [(0, *[None] * 8)]
