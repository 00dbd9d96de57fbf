"""The watchdog, with a clock of the test's own: what it finds, wherever mail can be stuck, and what it leaves alone."""

import pytest

from queue_send.admin.watchdog import GRACE
from queue_wire.admin.cause import (
    ACTIVE_FULL,
    DUE,
    IN_FLIGHT,
    OVERFLOW,
    RATE_LIMITED,
    RECORDING,
    WINDOW_FULL,
)
from support.send.watched import FLIGHT, LIFETIME, SETTINGS, START, Watched

LATE = 10 * 400 + 1  # Ten times the first interval of the quadratic schedule for remote mail.


def test_a_message_in_flight_far_longer_than_any_timeout_is_told_of() -> None:
    world = Watched()
    message = world.send(b"a")
    world.start()
    world.now += FLIGHT
    assert world.patrols() == []
    world.now += 1
    assert world.patrols() == [(message, IN_FLIGHT, False)]


def test_a_verdict_that_the_disk_does_not_take_is_told_of() -> None:
    world = Watched()
    message = world.send(b"a")
    world.start()
    world.flying.clear()
    world.now += FLIGHT + 1
    assert world.patrols() == [(message, RECORDING, False)]


def test_mail_that_waits_for_a_full_window_is_told_of_in_memory_and_aside() -> None:
    world = Watched(SETTINGS._replace(active=6))  # So few that what the window has no room for goes aside.
    messages = [world.send(b"a") for _ in range(6)]
    world.start()
    world.now += LATE - 1
    assert world.patrols() == []
    world.now += 1
    assert world.patrols() == [(message, WINDOW_FULL, False) for message in messages[2:4]] + [
        (message, OVERFLOW, False) for message in messages[4:]
    ]


def test_mail_that_its_rate_keeps_waiting_is_told_of() -> None:
    world = Watched()
    world.send(b"rated")
    second = world.send(b"rated")
    world.start()
    world.end(world.flying[0], good=True)
    world.now += LATE
    assert world.patrols() == [(second, RATE_LIMITED, False)]


@pytest.mark.parametrize("new", [True, False])
def test_mail_that_is_due_and_finds_no_place_is_told_of(new: bool) -> None:
    world = Watched(SETTINGS._replace(active=1))
    world.send(b"a")
    world.start()
    second = world.send(b"b", new=new)
    world.now += LATE - 1
    assert world.patrols() == []
    world.now += 1
    assert world.patrols() == [(second, ACTIVE_FULL, False)]


def test_deferred_mail_has_ten_times_the_interval_that_its_age_gives() -> None:
    world = Watched()
    message = world.send(b"a")
    world.start()
    world.now += 10_000
    world.end(world.flying[0], good=False)
    due = world.disk[message][0].due
    assert due == START + (100 + 20) ** 2
    world.now = due + 10 * (120**2 - 100**2)
    assert world.patrols() == []
    world.now += 1
    assert world.patrols() == [(message, DUE, False)]


def test_mail_that_is_deferred_as_it_should_be_is_left_alone() -> None:
    world = Watched()
    for _ in range(8):
        world.send(b"dead")
    for _ in range(300):
        world.start()
        for group in list(world.flying):
            world.end(group, good=False)
        assert world.patrols() == []
        world.now += 600


def test_what_is_not_to_be_tried_is_left_alone() -> None:
    world = Watched(SETTINGS._replace(active=1))
    world.send(b"a")
    world.start()
    held = world.send(b"b"), world.send(b"b", new=False)
    world.now += LATE
    for message in held:
        del world.disk[message]
    assert world.patrols() == []


def test_what_was_due_before_the_start_counts_from_there() -> None:
    world = Watched()
    world.now -= 100_000
    message = world.send(b"a", new=False)
    world.now = START + 4000.0
    assert world.patrols() == []
    world.now += 1
    assert world.patrols() == [(message, DUE, False)]


def test_mail_past_its_lifetime_is_told_of_as_such() -> None:
    world = Watched(SETTINGS._replace(active=1))
    world.send(b"a")
    world.start()
    second = world.send(b"b")
    world.now += LIFETIME + GRACE + 1
    assert (second, ACTIVE_FULL, True) in world.patrols()


def test_each_message_is_told_of_once_a_day() -> None:
    world = Watched()
    message = world.send(b"a")
    world.start()
    told = []
    for _ in range(3 * 1440):
        world.now += 60
        told += world.patrols()
    assert told == [(message, IN_FLIGHT, False)] * 3


@pytest.mark.parametrize("new", [True, False])
def test_a_stall_of_100_000_messages_is_a_handful_of_lines_and_small_pieces(new: bool) -> None:
    world = Watched(SETTINGS._replace(active=1))
    world.send(b"a")
    world.start()
    for _ in range(100_000):
        world.send(b"b", new=new)
    world.now += LATE
    looks = 0
    for _ in world.steps():
        assert world.looks - looks <= 5000
        looks = world.looks
    assert len(world.told) == 5
    assert 99_900 <= world.others <= 100_000
    lines = 6
    for _ in range(1440):
        world.now += 60
        lines += len(world.patrols()) + (world.others > 0)
    assert lines < 250


def test_a_round_over_a_million_waiting_messages_looks_at_none_of_them() -> None:
    world = Watched()
    for message in range(1, 1_000_001):
        world.scheduler.add_deferred(message, START + 50_000 + message)
    world.now += 40_000
    assert len(list(world.steps())) < 5
    assert world.looks == 0
