"""When a destination was dead, slow or deferring: episodes of deliveries written by hand, and against a plain model."""

from itertools import groupby

import pytest
from hypothesis import HealthCheck, given, settings

from queue_report.reports.engine import Engine
from queue_report.reports.report import View
from support.plugins.amount import amount
from support.spark.lake_rows import LakeRows, ask, ns, utc
from support.spark.queue_model import Attempt, Life, add_lives, worlds

DAY = 86400
T = 1_000_000
ASKED = "The_administrator_has_asked_for_this_message_to_be_returned._(#5.0.0)/"


class Story:
    """Deliveries to one domain, a message each, which is born 50 s before and settled by its last delivery."""

    def __init__(self, rows: LakeRows, domain: str) -> None:
        self.rows, self.domain, self.number = rows, domain, 0

    def tell(self, at: int, result: str, *, took: int = 1, kind: str = "", code: str = "", reason: str = "") -> None:
        """Add a delivery that ends at T + at."""
        self.number += 1
        key = f"{self.domain}.{self.number}"
        waits = result in ("deferral", "mangled", "lost")
        self.rows.message(key, T + at - 50, None if waits else T + at, recipients=1)
        done = None if result == "lost" else T + at
        self.rows.delivery(
            key, f"a@{self.domain}", T + at - took, done, result, kind=kind, code=code, reason=reason or f"{at}"
        )


@pytest.fixture(scope="module")
def engine() -> Engine:
    rows = LakeRows()
    # Three are enough, two are not; what is neither good nor bad does not break a row.
    story = Story(rows, "dead.example")
    story.tell(0, "deferral", kind="network")
    story.tell(1, "success")
    for at, result in ((10, "deferral"), (11, "deferral"), (12, "mangled"), (13, "deferral"), (14, "lost")):
        story.tell(at, result, kind="network" if result == "deferral" else "")
    story.tell(15, "failure", reason=ASKED, code="5.0.0", kind="other")
    story.tell(16, "failure", code="4.4.1", kind="network")
    story.tell(20, "failure", code="5.1.1", kind="mailbox")
    story.tell(30, "deferral", kind="network")
    story.tell(31, "deferral", kind="network")
    # Some host answered.
    story = Story(rows, "busy.example")
    for at in (100, 110, 120):
        story.tell(at, "deferral", kind="network" if at == 100 else "rate")
    story.tell(130, "success")
    # Slow ones in a row, whatever is deferred between them; a quick one ends it.
    story = Story(rows, "slow.example")
    for at, took in ((200, 60), (210, 59), (300, 60), (400, 61), (500, 90)):
        story.tell(at, "success", took=took)
    story.tell(450, "deferral", took=1)
    story.tell(510, "failure", code="5.1.1", kind="mailbox")
    # A day between two is a gap: the first three are an episode that ended at its last one, the fourth is none.
    story = Story(rows, "gap.example")
    for at in (0, 1, DAY + 1, 2 * DAY + 2, 2 * DAY + 3, 3 * DAY + 4, 3 * DAY + 5, 3 * DAY + 6):
        story.tell(at, "deferral", kind="network")
    # A good one more than a day later does not end an episode; it was over.
    story = Story(rows, "late.example")
    for at in (0, 1, 2):
        story.tell(at, "deferral", kind="network")
    story.tell(DAY + 3, "success")
    return rows.engine()


def test_an_episode_is_three_bad_deliveries_without_a_good_one_between(engine: Engine) -> None:
    columns = ("domain", "kind", "began", "ended", "attempts", "messages", "reason")
    assert ask("destinations", engine, None, *columns) == [
        ("gap.example", "dead", utc(T), utc(T + DAY + 1), 3, 3, "0"),
        ("late.example", "dead", utc(T), utc(T + 2), 3, 3, "0"),
        ("dead.example", "dead", utc(T + 10), utc(T + 20), 4, 4, "10"),
        ("busy.example", "deferring", utc(T + 100), utc(T + 130), 3, 3, "100"),
        ("slow.example", "slow", utc(T + 300), utc(T + 510), 3, 3, "300"),
        ("gap.example", "dead", utc(T + 3 * DAY + 4), None, 3, 3, str(3 * DAY + 4)),
    ]


def test_messages_that_waited_at_some_time_of_it_were_held(engine: Engine) -> None:
    # At dead.example 3 wait for ever and one was settled before; the 4 bad, the mangled, the lost, the returned and
    # the one whose failure ended it waited in the episode, and so did what was deferred at 30: it was born at -20.
    found = dict(ask("destinations", engine, View(domain="dead.example"), "domain", "held"))
    assert found == {"dead.example": 1 + 4 + 1 + 1 + 1 + 1 + 2}
    assert ask("destinations", engine, View(domain="busy.example"), "held") == [(4,)]


def test_a_window_has_the_episodes_that_reach_into_it(engine: Engine) -> None:
    def domains(since: int, until: int) -> list[str]:
        view = View(since=ns(T + since), until=ns(T + until))
        return [row[0] for row in ask("destinations", engine, view, "domain")]

    assert domains(20, 100) == ["gap.example", "dead.example"]
    assert domains(3 * DAY + 6, 4 * DAY) == ["gap.example"]
    assert domains(3 * DAY + 7, 4 * DAY) == []


def expected_of(life_of: dict[str, Life], tries: list[tuple[Attempt, str]], end: int, slow: bool) -> list[list[object]]:
    """Return the episodes of one destination's (attempt, key), as the documentation words them."""
    judged = []
    for attempt, key in sorted(tries, key=lambda pair: (pair[0].done or 0, pair[0].start, pair[1])):
        answered = attempt.result == "success" or (attempt.result == "failure" and attempt.kind != "network")
        deferred = attempt.result == "deferral" or (attempt.result == "failure" and attempt.kind == "network")
        if attempt.done is None or not (answered or (deferred and not slow)):
            continue
        judged.append((answered and (not slow or attempt.done - attempt.start < 60), attempt, key))
    runs: list[list[tuple[bool, Attempt, str]]] = [[]]
    for one in judged:
        if runs[-1] and (runs[-1][-1][0] or (one[1].done or 0) - (runs[-1][-1][1].done or 0) > DAY):
            runs.append([])
        runs[-1].append(one)
    found: list[list[object]] = []
    for run in runs:
        bad = [(attempt, key) for good, attempt, key in run if not good]
        if len(bad) < 3:
            continue
        began, last = bad[0][0].done or 0, bad[-1][0].done or 0
        ended = run[-1][1].done if run[-1][0] else (last if end - last > DAY else None)
        dead = all(attempt.kind == "network" for attempt, _ in bad)
        held = 0
        for life in life_of.values():
            settled = [life.of(r)[-1] for r in life.recipients]
            over = life.done
            if settled and all(a.result in ("success", "failure") for a in settled):
                over = max(a.done or 0 for a in settled)
            held += bool(life.recipients) and (ended is None or life.born < ended) and (over is None or over >= began)
        kind = "slow" if slow else "dead" if dead else "deferring"
        times = [utc(began), None if ended is None else utc(ended)]
        found.append([kind, *times, len(bad), len({key for _, key in bad}), held])
    return found


@settings(max_examples=amount(10, 25), deadline=None, suppress_health_check=list(HealthCheck))
@given(worlds(["h1", "h2"], ["a.example"], 30, 40_000))
def test_episodes_are_what_a_plain_reading_of_their_rule_gives(world: list[Life]) -> None:
    # One domain a host, so that all recipients of a life are of one destination.
    rows = LakeRows()
    add_lives(rows, world)
    end = max([0, *(t or 0 for x in world for t in (x.first, x.done))])
    end = max([end, *(t or 0 for x in world for a in x.attempts for t in (a.start, a.done))])
    expected = []
    for host, lives in groupby(sorted(world, key=lambda life: life.host), key=lambda life: life.host):
        life_of = {life.key: life for life in lives}
        tries = [(attempt, life.key) for life in life_of.values() for attempt in life.attempts]
        for slow in (False, True):
            expected += [[host, *episode] for episode in expected_of(life_of, tries, end, slow)]
    columns = ("host", "kind", "began", "ended", "attempts", "messages", "held")
    found = [list(row) for row in ask("destinations", rows.engine(), None, *columns)]
    assert sorted(found, key=repr) == sorted(expected, key=repr)
