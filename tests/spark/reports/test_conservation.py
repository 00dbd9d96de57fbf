"""Every recipient is delivered, has failed, or waits; whatever does not add up is named."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from queue_report.reports.engine import Engine
from queue_report.reports.report import View
from support.plugins.amount import amount
from support.spark.lake_rows import LakeRows, ask, ns, utc
from support.spark.queue_model import TERMINAL, Life, add_lives, worlds

NAMES = ("messages", "ended", "waiting", "untried", "recipients", "delivered", "stored", "failed", "pending",
         "deleted", "difference", "repeated", "problems")  # fmt: skip


@pytest.fixture(scope="module")
def engine() -> Engine:
    rows = LakeRows()
    # All adds up on h: two delivered (one at the second attempt), one failed, one waits, one was never tried, one is
    # in flight, one was deleted; a recipient that is named twice; one delivered again after a crash.
    rows.message("1.1", 100, 200, counts=(2, 1, 1), recipients=3)
    rows.delivery("1.1", "a@x", 110, 120)
    rows.delivery("1.1", "b@x", 110, 120, "deferral", delivery=2)
    rows.delivery("1.1", "b@x", 150, 160, delivery=3)
    rows.delivery("1.1", "c@x", 110, 120, "failure", delivery=4)
    rows.message("2.1", 100, None, counts=(0, 0, 1), recipients=2)
    rows.delivery("2.1", "a@x", 110, 120, "deferral")
    rows.delivery("2.1", "b@x", 110, None, None, delivery=2)
    rows.message("3.1", 100, None)
    rows.message("4.1", 100, 200, counts=(0, 0, 1), recipients=1, outcome="deleted")
    rows.delivery("4.1", "a@x", 110, 120, "deferral")
    rows.message("5.1", 100, 200, counts=(3, 0, 0), recipients=2)
    rows.delivery("5.1", "a@x", 110, 120)
    rows.delivery("5.1", "a@x", 110, 120, delivery=2)
    rows.delivery("5.1", "b@x", 110, 120, delivery=3, channel="local")
    rows.message("6.1", 100, 200, outcome="deleted")
    # Named twice, one of them delivered; and delivered at the second attempt, after the clock was set back.
    rows.message("7.1", 100, None, counts=(1, 0, 1), recipients=1)
    rows.delivery("7.1", "a@x", 110, 120)
    rows.delivery("7.1", "a@x", 111, 120, "deferral", delivery=2)
    rows.message("8.1", 100, 90, counts=(1, 0, 1), recipients=1)
    rows.delivery("8.1", "a@x", 110, 120, "deferral")
    rows.delivery("8.1", "a@x", 80, 85, delivery=2)
    # The same address on both channels is two recipients; the same key in another queue is another message.
    rows.message("1.1", 100, 200, counts=(2, 0, 0), recipients=2, queue="other")
    rows.delivery("1.1", "a@x", 110, 120, queue="other")
    rows.delivery("1.1", "a@x", 110, 120, queue="other", channel="local")
    # What is wrong on bad.
    bad: dict[str, Any] = {"host": "bad"}
    rows.message("1.1", 100, 200, counts=(1, 0, 1), recipients=2, **bad)
    rows.delivery("1.1", "a@x", 110, 120, **bad)
    rows.delivery("1.1", "b@x", 110, 120, "deferral", delivery=2, **bad)
    rows.message("2.1", 101, 200, outcome="lost", recipients=1, **bad)
    rows.delivery("2.1", "a@x", 110, None, "lost", **bad)
    rows.message("3.1", 102, 200, **bad)
    rows.message("4.1", 103, 200, counts=(2, 0, 0), recipients=2, **bad)
    rows.delivery("4.1", "a@x", 110, 120, **bad)
    rows.message("5.1", 104, 200, counts=(1, 0, 0), recipients=1, **bad)
    rows.delivery("5.1", "a@x", 110, 120, **bad)
    rows.delivery("5.1", "a@x", 210, 220, "failure", delivery=2, **bad)
    rows.delivery("6.1", "a@x", 210, 220, **bad)
    rows.delivery("6.1", "b@x", 210, None, None, **bad)
    rows.message("7.1", None, 200, first=105, **bad)  # Its deliveries are older than the log.
    return rows.engine()


def test_recipients_are_delivered_failed_pending_or_deleted(engine: Engine) -> None:
    found = {row[:2]: row[2:] for row in ask("conservation", engine)}
    assert list(found) == [("bad", "q"), ("h", "other"), ("h", "q")]
    assert found["h", "other"] == (1, 1, 0, 0, 2, 2, 0, 0, 0, 0, 0, 0, 0)
    assert dict(zip(NAMES, found["h", "q"], strict=True)) == {
        "messages": 8, "ended": 5, "waiting": 3, "untried": 1, "recipients": 10, "delivered": 5, "stored": 0,
        "failed": 1, "pending": 3, "deleted": 1, "difference": 0, "repeated": 1, "problems": 0,
    }  # fmt: skip
    assert dict(zip(NAMES, found["bad", "q"], strict=True)) == {
        "messages": 6, "ended": 6, "waiting": 0, "untried": 0, "recipients": 6, "delivered": 4, "stored": 0,
        "failed": 0, "pending": 0, "deleted": 0, "difference": 2, "repeated": 1, "problems": 6,
    }  # fmt: skip


def test_what_does_not_add_up_is_listed_by_message(engine: Engine) -> None:
    found = ask("conservation-messages", engine)
    assert [row[2:3] + row[7:] for row in found] == [
        ("6.1", "unknown message", 2),
        ("1.1", "unsettled", 1),
        ("2.1", "lost", 1),
        ("3.1", "never tried", 0),
        ("4.1", "deliveries differ", -1),
        ("4.1", "recipients differ", -1),
        ("5.1", "deliveries differ", 1),
    ]
    assert found[1][:7] == ("bad", "q", "1.1", "s@from.example", utc(100), utc(200), "delivered")
    assert found[0][3:7] == (None, None, None, None)


def test_a_window_has_the_messages_received_in_it_to_their_end(engine: Engine) -> None:
    view = View(since=ns(101), until=ns(103), host="bad")
    assert ask("conservation", engine, view, "messages", "recipients", "problems") == [(2, 1, 2)]
    assert ask("conservation-messages", engine, view, "key") == [("2.1",), ("3.1",)]


def test_a_domain_alone_has_the_recipients_there(engine: Engine) -> None:
    view = View(host="bad", domain="x")
    assert ask("conservation", engine, view, "messages", "recipients", "delivered", "difference") == [(4, 5, 4, 1)]


def balance(world: list[Life]) -> tuple[int, ...]:
    """Count what the report should say of one host."""
    states: Counter[str] = Counter()
    problems = 0
    for life in world:
        open_ones = [r for r in life.recipients if life.of(r)[-1].result not in TERMINAL]
        for recipient in life.recipients:
            last = life.of(recipient)[-1].result
            if recipient not in open_ones:
                states["delivered" if last == "success" else "failed"] += 1
            elif life.done is None:
                states["pending"] += 1
            else:
                states["deleted" if life.outcome == "deleted" else "unsettled"] += 1
        if life.done is not None and life.outcome != "deleted":
            empty = not life.recipients and life.birth is not None
            problems += life.outcome == "lost" or bool(open_ones) or empty
    waiting = [life for life in world if life.done is None]
    return (
        len(world), len(world) - len(waiting), len(waiting), sum(not life.recipients for life in waiting),
        sum(len(life.recipients) for life in world), states["delivered"], 0, states["failed"],
        states["pending"], states["deleted"], states["unsettled"], 0, problems,
    )  # fmt: skip


@settings(max_examples=amount(10, 25), deadline=None, suppress_health_check=list(HealthCheck))
@given(worlds(["h1", "h2", "h3"], ["a.example", "b.example"], 60, 4000))
def test_conservation_is_what_a_plain_count_gives(world: list[Life]) -> None:
    rows = LakeRows()
    add_lives(rows, world)
    found = {row[0]: row[2:] for row in ask("conservation", rows.engine())}
    hosts = {life.host for life in world}
    assert found == {host: balance([life for life in world if life.host == host]) for host in hosts}
