"""Percentiles and delays: exact, by nearest rank."""

import random
from decimal import Decimal

import pytest

from queue_report.reports.engine import Engine
from queue_report.reports.report import View
from support.spark.lake_rows import NANO, LakeRows, ask, ns, utc

HOUR = 1_699_999_200


def nearest(values: list[int], percent: int) -> int:
    """Return the smallest value that `percent` % do not exceed."""
    return next(v for v in sorted(values) if sum(w <= v for w in values) * 100 >= percent * len(values))


def test_percentiles_are_values_by_nearest_rank() -> None:
    rng = random.Random(4)
    groups = {
        "one": [7],
        "two": [-5, 5],
        "same": [3] * 50,
        "hundred": list(range(1, 101)),
        "near": [10**15 + rng.randrange(1000) for _ in range(150)],
        "wide": [int(rng.lognormvariate(20, 5)) * rng.choice((-1, 1, 1)) for _ in range(200)],
        "large": [2**63 - 1_000_000_000, 0, -(2**63) + 2_000_000_000],
        **{f"any{i}": [rng.randrange(1000) for _ in range(rng.randrange(1, 250))] for i in range(20)},
    }
    rows = LakeRows()
    for name, values in groups.items():
        for number, value in enumerate(values):
            rows.delivery(f"{number}.1", f"a@{name}", 0, Decimal(value) / NANO, host=name)
    found = {row[0]: row[1:] for row in ask("delays-domains", rows.engine())}
    assert found == {
        name: (len(values), *[None] * 4, *(Decimal(nearest(values, share)) / NANO for share in (50, 90, 99, 100)))
        for name, values in groups.items()
    }


@pytest.fixture(scope="module")
def engine() -> Engine:
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
    return rows.engine()


def times(*seconds: float | None) -> tuple[Decimal | None, ...]:
    return tuple(None if s is None else Decimal(str(s)).quantize(Decimal("0.000000001")) for s in seconds)


def test_all_deliveries_that_succeeded_are_in_one_row(engine: Engine) -> None:
    # 101 delivery times: 0.25 to 25, and 7; the 51st is 12.5 where 7 makes 7.00 come twice.
    assert ask("delays", engine) == [(101, *times(50, 90, 99, 100, 12.5, 22.5, 24.75, 25))]


def test_a_domain_has_its_own_delays(engine: Engine) -> None:
    assert ask("delays-domains", engine) == [
        ("odd.example", 51, *times(49, 89, 99, 99, 12.25, 22.25, 24.75, 24.75)),
        ("even.example", 50, *times(50, 90, 100, 100, 12.5, 22.5, 25, 25)),
    ]


def test_delays_are_shown_by_the_hour_of_their_end(engine: Engine) -> None:
    assert ask("delays-hours", engine, None, "start", "deliveries", "queue_p50", "delivery_max") == [
        (utc(HOUR), 100, *times(50, 25)),
        (utc(HOUR + 3600), 1, *times(None, 7)),
    ]


def test_an_empty_window_has_one_row_without_delays(engine: Engine) -> None:
    assert ask("delays", engine, View(until=ns(HOUR))) == [(0, *[None] * 8)]


def test_times_that_no_long_of_nanoseconds_holds_are_not_known() -> None:
    rows = LakeRows()
    rows.message("1.1", -9_000_000_000, None)
    rows.delivery("1.1", "a@x", 1_700_000_000, 1_700_000_001)
    assert ask("delays", rows.engine(), None, "deliveries", "queue_max", "delivery_max") == [(1, None, *times(1))]
