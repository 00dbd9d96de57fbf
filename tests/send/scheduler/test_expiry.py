"""Lifetime on every path out of the queue: nothing waits long after it, whatever for. The clock is the test's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_send.admin.watchdog import last_wait
from queue_send.scheduler.retry import next_attempt, within_lifetime
from queue_send.scheduler.scheduler import LAST_WAIT
from queue_wire.control.schedule import QUADRATIC, unpack_schedule
from support.send.watched import LIFETIME, START, Watched

SCHEDULES = [QUADRATIC, unpack_schedule(b"exponential 5m 4h", 0), unpack_schedule(b"15m 30m 2h 4h", 0)]


@given(st.sampled_from(SCHEDULES), st.integers(0, LIFETIME), st.sampled_from([10, 20]))
def test_the_last_attempt_is_right_after_the_lifetime_at_the_latest(schedule, age, skip) -> None:  # type: ignore[no-untyped-def]
    due = next_attempt(schedule, START, START + age, skip, lambda: 1.0)
    kept = within_lifetime(due, START + age, START + LIFETIME)
    assert START + age < kept
    assert kept == due if due <= START + LIFETIME else kept <= START + LIFETIME + 123


@given(st.integers(0, 2 * LIFETIME), st.sampled_from([10, 20]))
def test_the_interval_of_the_quadratic_schedule_is_known_from_birth_and_due(age: int, skip: int) -> None:
    due = next_attempt(QUADRATIC, START, START + age, skip, lambda: 0.0)
    wait = due - START - age
    # It knows when the attempt was within a step of the square root.
    assert wait <= last_wait(QUADRATIC, START, due, skip) <= wait + 2 * age**0.5 + 1


@given(st.integers(0, 2 * LIFETIME))
def test_the_interval_of_the_exponential_schedule_is_known_from_birth_and_due(age: int) -> None:
    due = next_attempt(SCHEDULES[1], START, START + age, 0, lambda: 0.0)
    assert last_wait(SCHEDULES[1], START, due, 0) == due - START - age


def test_the_interval_of_a_list_is_known_from_birth_and_due() -> None:
    now = START
    for _ in range(12):
        due = next_attempt(SCHEDULES[2], START, now, 0, lambda: 0.0)
        assert last_wait(SCHEDULES[2], START, due, 0) == due - now
        now = due


def test_what_waits_for_a_rate_fails_when_its_lifetime_is_over() -> None:
    world = Watched()
    messages = [world.send(b"rated") for _ in range(8)]
    world.start()
    world.now += LIFETIME - 1000
    last = [world.send(b"rated")]
    world.start()
    world.now += 1002
    world.patrols()
    world.start()
    world.patrols()
    started = {group.attempt.message for group in world.flying}
    assert {message for message, _ in world.failed} | started == set(messages)
    assert not started & set(last)


def test_what_waits_for_a_full_window_gets_its_last_attempt_or_fails_soon() -> None:
    world = Watched()
    messages = [world.send(b"a") for _ in range(6)]
    world.start()
    assert len(world.flying) == 2
    world.now += LIFETIME + 2
    world.start()
    world.patrols()
    assert world.failed == []
    world.end(world.flying[0], good=True)
    world.start()
    tried = {group.attempt.message for group in world.flying} | {messages[0]}
    world.now += LAST_WAIT + 1
    world.patrols()
    world.start()
    assert sorted(message for message, _ in world.failed) == sorted(set(messages) - tried)


def test_what_a_dead_destination_keeps_fails_when_its_lifetime_is_over() -> None:
    world = Watched()
    messages = [world.send(b"dead") for _ in range(4)]
    end = START + LIFETIME + 60
    while world.now <= end:
        world.start()
        for group in list(world.flying):
            if world.now > group.attempt.expires:
                world.failed.append((group.attempt.message, b"dead"))
                world.end(group, good=True)
            else:
                world.end(group, good=False)
        due = world.scheduler.next_time(world.now)
        world.now = end + 1 if due is None else max(world.now + 1, due)
    assert sorted(message for message, _ in world.failed) == messages
    assert world.disk == {}


@pytest.mark.parametrize("last", [START + 100, START + 99])
def test_what_an_earlier_run_left_waits_no_longer_than_it_may(last: int) -> None:
    world = Watched()
    message = world.send(b"a", new=False)
    world.scheduler.next_load(world.now)
    world.scheduler.cancel_load(message)
    world.scheduler.add_deferred(message, START + 100, False, last)
    assert world.scheduler.next_time(world.now) == last
