"""Reports of traffic and of troubles, on tables written by hand: hours, days, daytime, domains, classify."""

from decimal import Decimal

import pytest

from queue_report.reports.engine import Engine
from queue_report.reports.report import View
from support.spark.lake_rows import LakeRows, ask, ns, utc

# 1,699,999,200 is a full hour: 2023-11-14 22:00:00 UTC. Two hours later the next day begins.
HOUR = 1_699_999_200
DAY = HOUR - 22 * 3600


@pytest.fixture(scope="module")
def lake() -> Engine:
    rows = LakeRows()
    # The last nanosecond of an hour, and the first of the next.
    rows.message("1.1", HOUR - Decimal("0.000000001"), HOUR + 9, size=1000)
    rows.message("2.2", HOUR, HOUR + 7205, size=20, sender="a@B.example")
    rows.message("3.3", HOUR + 1, None, size=3, sender="")
    rows.message("4.4", None, HOUR + 8, first=HOUR, size=None, sender=None)
    rows.message("5.5", HOUR + 2, None, size=4, sender="#@[]")
    rows.message("6.6", HOUR + 3, None, size=5, sender="postmaster")
    rows.delivery("1.1", "a@x.example", HOUR, HOUR + 5)
    rows.delivery("1.1", "b@x.example", HOUR, HOUR + 9, "failure", reason="no._(#5.1.1)", code="5.1.1", kind="mailbox")
    rows.delivery("2.2", "a@x.example", HOUR, HOUR + 1, "deferral", reason="z_(#4.4.1)", code="4.4.1", kind="network")
    rows.delivery("2.2", "a@y.example", HOUR, HOUR + 2, "deferral", reason="b_(#4.4.1)", code="4.4.1", kind="network")
    rows.delivery("2.2", "a@x.example", HOUR + 100, HOUR + 200, "mangled", kind="local")
    rows.delivery("2.2", "a@x.example", HOUR + 300, None, "lost")
    rows.delivery("2.2", "a@x.example", HOUR + 7199, HOUR + 7200 + Decimal("4.000000001"))
    rows.delivery("2.2", "a@y.example", HOUR + 7199, HOUR + 7205)
    rows.delivery("4.4", "joe", HOUR, HOUR + 8, channel="local")
    rows.delivery("3.3", "a@x.example", HOUR + 7300, None, None)
    return rows.engine()


def test_an_hour_counts_what_was_received_in_it_and_what_ended_in_it(lake: Engine) -> None:
    assert ask("hours", lake) == [
        (utc(HOUR - 3600), 1, 1000, 0, 0, 0),
        (utc(HOUR), 4, 32, 2, 3, 1),
        (utc(HOUR + 7200), 0, 0, 2, 0, 0),
    ]


def test_a_window_cuts_messages_at_their_birth_and_deliveries_at_their_end(lake: Engine) -> None:
    view = View(since=ns(HOUR + 1), until=ns(HOUR + 2))
    assert ask("hours", lake, view) == [(utc(HOUR), 1, 3, 0, 1, 0)]


def test_a_domain_has_its_own_hours(lake: Engine) -> None:
    assert ask("hours", lake, View(domain="y.example")) == [
        (utc(HOUR), 1, 20, 0, 1, 0),
        (utc(HOUR + 7200), 0, 0, 1, 0, 0),
    ]


def test_days_begin_at_midnight_utc(lake: Engine) -> None:
    assert ask("days", lake) == [(utc(DAY), 5, 1032, 2, 3, 1), (utc(DAY + 86400), 0, 0, 2, 0, 0)]


def test_an_hour_of_the_day_is_an_average_of_the_days_that_saw_anything(lake: Engine) -> None:
    found = ask("daytime", lake)
    zero, half = Decimal("0.00"), Decimal("0.50")
    assert [row[0] for row in found] == list(range(24))
    assert found[22] == (22, 2, 16, 1, Decimal("1.50"), half)
    assert found[21] == (21, half, 500, zero, zero, zero)
    assert found[0] == (0, zero, zero, 1, zero, zero)
    assert found[1] == (1, zero, zero, zero, zero, zero)


def test_a_domain_has_its_deliveries_bytes_and_delays(lake: Engine) -> None:
    assert ask("domains", lake) == [
        # 5.000000001 s and 7204.000000001 s.
        ("x.example", 2, 1020, 2, 1, Decimal("3604.500000001"), Decimal("7204.000000001")),
        ("y.example", 1, 20, 1, 0, Decimal("7205.000000000"), Decimal("7205.000000000")),
        ("", 1, 0, 0, 0, None, None),
    ]


def test_sender_domains_are_lower_case_and_bounces_have_a_name(lake: Engine) -> None:
    assert ask("sender-domains", lake) == [
        ("MAILER-DAEMON", 2, 7),
        ("", 1, 5),
        ("b.example", 1, 20),
        ("from.example", 1, 1000),
    ]
