"""The queue as it was at any moment: qshape and backlog, on tables written by hand and against a plain model."""

from collections import Counter
from decimal import Decimal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from queue_report.reports.engine import Engine
from queue_report.reports.report import View
from support.plugins.amount import amount
from support.spark.lake_rows import LakeRows, ask, ns, utc
from support.spark.queue_model import Life, add_lives, bucket, worlds

NOW = 1_700_000_000
HOUR = 1_699_999_200


@pytest.fixture(scope="module")
def engine() -> Engine:
    rows = LakeRows()
    minutes = 60
    # One message just younger, and one just as old, as each limit.
    for limit in (5, 10, 20, 40, 80, 160, 320, 640, 1280):
        for i, age in enumerate((limit * minutes - 1, limit * minutes)):
            key = f"old{limit}.{i}"
            rows.message(key, NOW - age, None, recipients=1)
            rows.delivery(key, "a@old.example", NOW - age, NOW - age, "deferral")
    # Two recipients, one of them delivered at NOW: no longer there. The other is known by a later attempt only.
    rows.message("2.1", NOW - 10, NOW + 500, recipients=2, sender="x@Z.example")
    rows.delivery("2.1", "a@two.example", NOW - 5, NOW)
    rows.delivery("2.1", "b@two.example", NOW + 400, NOW + 500)
    # A recipient that is named twice: one is delivered, the other is later.
    rows.message("3.1", NOW - 600, NOW + 9, recipients=1, sender="")
    rows.delivery("3.1", "a@twice.example", NOW - 9, NOW - 8, delivery=7)
    rows.delivery("3.1", "a@twice.example", NOW - 9, NOW + 8, delivery=8)
    # In flight; lost in a crash; not tried at all; born later; ended at NOW; older than the log.
    rows.message("4.1", NOW - 300, None, recipients=1)
    rows.delivery("4.1", "a@flying.example", NOW - 9, None, None)
    rows.message("5.1", NOW - 300, None, recipients=1)
    rows.delivery("5.1", "a@crash.example", NOW - 9, None, "lost")
    rows.message("6.1", NOW - 1, None)
    rows.message("7.1", NOW + 1, None)
    rows.message("8.1", NOW - 9, NOW, recipients=1)
    rows.delivery("8.1", "a@gone.example", NOW - 9, NOW + 4)
    rows.message("9.1", None, None, first=NOW - 601, recipients=1, sender=None)
    rows.delivery("9.1", "joe", NOW - 601, None, None, channel="local")
    return rows.engine()


def test_recipients_wait_in_the_column_of_their_messages_age(engine: Engine) -> None:
    assert ask("qshape", engine, View(at=ns(NOW))) == [
        ("TOTAL", 24, 3, 4, 4, 2, 2, 2, 2, 2, 2, 1),
        ("old.example", 18, 1, 2, 2, 2, 2, 2, 2, 2, 2, 1),
        ("", 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0),
        ("two.example", 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0),
        ("crash.example", 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0),
        ("twice.example", 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0),
        ("flying.example", 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0),
        ("(not yet tried)", 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0),
    ]


def test_messages_wait_under_their_senders_domain(engine: Engine) -> None:
    assert ask("qshape-senders", engine, View(at=ns(NOW)), "domain", "T", "5", "10", "20") == [
        ("TOTAL", 24, 3, 4, 4),
        ("from.example", 21, 2, 4, 2),
        ("(unknown)", 1, 0, 0, 1),
        ("z.example", 1, 1, 0, 0),
        ("MAILER-DAEMON", 1, 0, 0, 1),
    ]


def test_a_domain_alone_has_its_own_total(engine: Engine) -> None:
    view = View(at=ns(NOW), domain="two.example")
    assert ask("qshape", engine, view, "domain", "T") == [("TOTAL", 1), ("two.example", 1)]


def test_without_a_moment_it_is_the_newest_stamp(engine: Engine) -> None:
    assert ask("qshape", engine, View(), "domain", "T")[0] == ("TOTAL", 18 + 2 + 1 + 1 + 1)


def test_before_all_mail_the_queue_is_empty(engine: Engine) -> None:
    assert ask("qshape", engine, View(at=0)) == [("TOTAL", *[0] * 11)]


def shape_of(world: list[Life], at: int) -> dict[str, list[int]]:
    """Count waiting recipients by domain and bucket."""
    counts: dict[str, Counter[int]] = {}
    for life in world:
        waits = [r.rpartition("@")[2] for r in life.recipients if life.waits_at(r, at)]
        if not life.recipients and life.born <= at and (life.done is None or life.done > at):
            waits = ["(not yet tried)"]
        for domain in waits:
            counts.setdefault(domain, Counter())[bucket(at - life.born)] += 1
    return {domain: [count.total(), *(count[i] for i in range(10))] for domain, count in counts.items()}


@settings(max_examples=amount(10, 25), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    worlds(["h1", "h2"], ["a.example", "b.example", "c.example"], 60, 4000),
    st.lists(st.integers(0, 40_000), min_size=2, max_size=2),
)
def test_qshape_is_what_a_plain_count_gives(world: list[Life], moments: list[int]) -> None:
    rows = LakeRows()
    add_lives(rows, world)
    engine = rows.engine()
    for at in moments:
        expected = shape_of(world, at)
        sums = [sum(column) for column in zip(*expected.values(), strict=True)] or [0] * 11
        found = ask("qshape", engine, View(at=ns(at)))
        assert found[0] == ("TOTAL", *sums)
        assert {row[0]: list(row[1:]) for row in found[1:]} == expected
        assert [row[1] for row in found[1:]] == sorted((row[1] for row in found[1:]), reverse=True)


def test_backlog_has_messages_from_the_nanosecond_of_their_birth_to_that_of_their_end() -> None:
    nano = Decimal("0.000000001")
    rows = LakeRows()
    rows.message("1.1", HOUR, HOUR + nano)
    rows.message("2.1", HOUR + nano, HOUR + 3600)
    rows.message("3.1", HOUR - nano, HOUR)
    rows.message("4.1", HOUR + 3300, HOUR + 3600 + nano)
    rows.message("5.1", HOUR + 3300 + nano, HOUR + 3600 + nano)
    expected = [(utc(HOUR), 1, 1, 0), (utc(HOUR + 3600), 2, 1, 1)]
    assert ask("backlog", rows.engine(), None, "at", "T", "5", "10") == expected


@settings(max_examples=amount(10, 25), deadline=None, suppress_health_check=list(HealthCheck))
@given(worlds(["h1"], ["a.example"], 60, 4000))
def test_backlog_is_the_number_of_waiting_messages_at_each_hour(world: list[Life]) -> None:
    rows = LakeRows()
    add_lives(rows, world)
    stamps = [t for x in world for t in (x.born, x.done) if t is not None]
    last = max(stamps + [t for x in world for a in x.attempts for t in (a.start, a.done) if t is not None])
    now = [0] * 11
    found = {row[0]: list(row[1:]) for row in ask("backlog", rows.engine())}
    for at in range(0, last + 1, 3600):
        ages = [at - x.born for x in world if x.born <= at and (x.done is None or x.done > at)]
        columns = Counter(map(bucket, ages))
        now = found.pop(utc(at), now)
        assert now == [len(ages), *(columns[i] for i in range(10))], at
    assert not found
