"""The files of maildrop/ that could not be queued: each user's are tried again at intervals of its own."""

import time

import pytest

from queue_inject.pickup.failed_files import RETRY_MAX, RETRY_SECONDS, FailedFiles

ANN, BOB = 1000, 1001


class Clock:
    """The time, which a test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", clock)
    return clock


def fail_again(failed: FailedFiles, clock: Clock, times: int) -> list[float]:
    """Have what is due fail again, so often; return the seconds between."""
    seconds = []
    for _ in range(times):
        before = clock.now
        assert failed.due is not None
        clock.now = max(clock.now, failed.due)
        seconds.append(clock.now - before)
        for uid, name in failed.take():
            failed.add(name, uid)
    return seconds


def test_the_intervals_of_a_user_grow_and_are_its_own(clock: Clock) -> None:
    failed = FailedFiles(10)
    failed.add("of ann", ANN)
    seconds = fail_again(failed, clock, 10)
    assert seconds[:3] == [RETRY_SECONDS, 2 * RETRY_SECONDS, 4 * RETRY_SECONDS] and seconds[-1] == RETRY_MAX
    failed.add("of bob", BOB)
    clock.now += RETRY_SECONDS
    assert failed.take() == [(BOB, "of bob")] and failed.take() == []
    assert "of bob" not in failed and "of ann" in failed and len(failed) == 1


def test_many_files_of_a_user_that_fail_together_are_one_failure(clock: Clock) -> None:
    failed = FailedFiles(10)
    for number in range(10):
        failed.add(f"{number}", ANN)
    assert not failed.add("one too many", ANN) and failed.add("3", ANN)
    clock.now += RETRY_SECONDS
    assert len(failed.take()) == 10


def test_a_success_of_anybody_has_all_tried_once(clock: Clock) -> None:
    failed = FailedFiles(10)
    failed.add("of ann", ANN)
    fail_again(failed, clock, 10)
    failed.add("of bob", BOB)
    failed.retry_all()
    assert sorted(failed.take()) == [(ANN, "of ann"), (BOB, "of bob")]
    failed.add("of ann", ANN)
    failed.retry_all()
    assert failed.take() == [], "it fails though others succeed"
    assert fail_again(failed, clock, 2) == [RETRY_SECONDS, 2 * RETRY_SECONDS]
