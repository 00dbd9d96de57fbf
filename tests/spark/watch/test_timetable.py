"""When a resident build does what: fixed times, growing pauses, and the quiet hours for putting files together."""

from itertools import pairwise

import pytest

from queue_report.watch.timetable import (
    BATCHES_MAX,
    LATEST_TIDY,
    LONGEST_PAUSE,
    PAGE_SHARE,
    QUIET_TIDY,
    Timetable,
)


def batch(table: Timetable, lines: int = 0, takes: float = 1.0) -> int:
    """Make the batch that is due; return how many were skipped."""
    began = table.due
    table.begin(began)
    return table.end(began + takes, lines)


def test_batches_begin_at_fixed_times_however_long_each_takes() -> None:
    table = Timetable(60.0, 1000.25)
    begun = []
    for number in range(10_000):
        begun.append(table.due)
        assert batch(table, takes=number % 60) == 0
    assert begun == pytest.approx([1000.25 + 60 * number for number in range(10_000)], abs=1e-6)


@pytest.mark.parametrize(("takes", "skipped"), [(60.0, 0), (60.5, 1), (120.0, 1), (200.0, 3)])
def test_a_batch_that_takes_longer_than_the_interval_skips_those_that_were_due(takes: float, skipped: int) -> None:
    table = Timetable(60.0, 0.0)
    assert batch(table, takes=takes) == skipped
    assert table.due == 60.0 * (skipped + 1)


def test_a_batch_that_was_asked_for_moves_no_other() -> None:
    table = Timetable(60.0, 0.0)
    batch(table)
    table.begin(30.0)
    assert table.end(31.0, 5) == 0
    assert table.due == 60.0


def test_pauses_grow_while_trouble_lasts_and_end_with_it() -> None:
    table = Timetable(60.0, 0.0)
    pauses = []
    for _ in range(80):
        began = table.due
        table.begin(began)
        table.fail(began + 1)
        pauses.append(table.due - began)
    assert pauses[:5] == [60, 120, 240, 480, LONGEST_PAUSE] and set(pauses[5:]) == {LONGEST_PAUSE}
    began = table.due
    batch(table)
    assert table.due == began + 60


def test_a_pause_is_never_shorter_than_the_interval() -> None:
    table = Timetable(7200.0, 0.0)
    table.begin(0.0)
    assert table.fail(1.0) == 7199.0


def test_a_quiet_log_is_tidied_once_an_hour_if_there_is_anything_to_tidy() -> None:
    table = Timetable(60.0, 0.0)
    tidied = []
    for number in range(600):
        # Busy for 50 minutes, quiet for 10.
        batch(table, lines=1000 if number % 60 < 50 else 0)
        now = table.due - 59
        if table.is_tidy_due(now):
            tidied.append(now)
            table.tidied(now)
    assert len(tidied) in (9, 10)
    assert all((now / 60) % 60 >= 50 for now in tidied)
    assert min(later - now for now, later in pairwise(tidied)) >= QUIET_TIDY


def test_a_log_that_says_nothing_is_tidied_once_a_day_only() -> None:
    table = Timetable(60.0, 0.0)
    batch(table, lines=10)
    tidied = []
    while table.due < 10 * LATEST_TIDY:
        batch(table)
        if table.is_tidy_due(table.due):
            tidied.append(table.due)
            table.tidied(table.due)
    assert len(tidied) == 10


def test_a_log_that_is_never_quiet_is_tidied_after_so_many_batches() -> None:
    table = Timetable(60.0, 0.0)
    for number in range(1, BATCHES_MAX + 1):
        batch(table, lines=1000)
        assert table.is_tidy_due(table.due) == (number >= BATCHES_MAX)


def test_nothing_is_tidied_while_there_is_trouble() -> None:
    table = Timetable(60.0, 0.0)
    batch(table, lines=10)
    table.begin(7200.0)
    table.fail(7201.0)
    assert not table.is_tidy_due(7201.0)


def test_a_page_is_written_when_the_lake_has_changed_and_takes_little_of_the_time() -> None:
    table = Timetable(60.0, 0.0)
    assert table.is_page_due(0.0)
    table.page_written(0.0, 20.0)
    batch(table)
    assert not table.is_page_due(1e6)
    batch(table, lines=1)
    assert not table.is_page_due(20.0 / PAGE_SHARE - 1)
    assert table.is_page_due(20.0 / PAGE_SHARE)
