"""What the scheduler does not keep: entries of mail that is gone, destinations that nobody sends to any more."""

import tracemalloc

import pytest

from queue_base.limits import Limits
from queue_send.scheduler import scheduler as scheduling
from queue_send.scheduler.destination import FORGET_AFTER, Destination
from support.send.limited import limited
from support.send.recorder import LIFETIME, RETRY, Recorder
from support.send.watched import SETTINGS, Watched


def test_mail_that_waited_for_room_leaves_nothing_behind_when_it_is_delivered() -> None:
    recorder = Recorder()
    for _ in range(50):
        recorder.send((b"relay", 1))
    while started := recorder.start(0.0):
        for group in started:
            recorder.end(group, 0.0)
    assert not any(recorder.messages.values())
    assert len(recorder.scheduler) == 0
    # A number is used again: a later message must not be tried because the earlier one would have expired now.
    assert recorder.scheduler.next_time(0.0) is None
    assert recorder.scheduler.next_load(LIFETIME + 2.0) is None


def test_mail_that_waits_for_room_gets_its_last_attempt_whatever_its_place() -> None:
    world = Watched(SETTINGS._replace(active=6))  # So few that what the window has no room for goes aside.
    flying = [world.send(b"a") for _ in range(2)]
    world.start()
    queued = [world.send(b"a") for _ in range(2)]
    world.now += 5000
    young = [world.send(b"a") for _ in range(300)]
    world.start()
    old = world.send(b"a")
    dates, nexthops = world.disk[old]
    world.disk[old] = dates._replace(birth=dates.birth - 9000, expires=dates.expires - 9000), nexthops
    world.start()
    world.now = world.disk[old][0].expires + 1.5
    world.patrols()
    world.start()
    assert old in world.scheduler.attempts
    assert set(world.scheduler.attempts) == {old, *flying, *queued}
    assert world.scheduler.destinations[b"a"].overflow.oldest(400) == young


def test_a_lifetime_that_was_made_longer_keeps_mail_that_waits_for_room() -> None:
    world = Watched(SETTINGS._replace(active=6))  # So few that what the window has no room for goes aside.
    messages = [world.send(b"a") for _ in range(6)]
    world.start()
    for message in messages:
        dates, nexthops = world.disk[message]
        world.disk[message] = dates._replace(expires=dates.expires + 5000), nexthops
    world.now += LIFETIME + 2
    world.patrols()
    world.start()
    assert world.failed == []
    assert world.scheduler.destinations[b"a"].overflow.oldest(10) == messages[4:]


def test_a_destination_that_nobody_sends_to_any_more_is_forgotten() -> None:
    world = Watched()
    gone = world.send(b"dead")
    away = [world.send(b"dead") for _ in range(3)]
    world.start()
    world.end(world.flying[0], good=False)
    world.end(world.flying[0], good=False)
    world.start()
    assert world.scheduler.destinations[b"dead"].dead
    for message in (gone, *away):
        del world.disk[message]
    world.now += 3600
    world.start()
    world.patrols()
    assert b"dead" in world.scheduler.destinations
    world.now += FORGET_AFTER
    world.start()
    world.patrols()
    assert world.scheduler.destinations == {}


def test_a_host_that_was_away_for_once_is_forgotten_if_nothing_follows() -> None:
    recorder = Recorder()
    recorder.send((b"a", 1))
    group, = recorder.start(0.0)
    recorder.end(group, 0.0, good=False)
    recorder.scheduler.expire_all(FORGET_AFTER - 1.0)
    assert b"a" in recorder.scheduler.destinations
    recorder.scheduler.expire_all(FORGET_AFTER + 1.0)
    assert recorder.scheduler.destinations == {}


def test_what_counts_for_a_rate_is_not_forgotten() -> None:
    world = Watched(SETTINGS._replace(table=limited(rates=b"rated:3/1000\n")))
    for _ in range(2):
        world.send(b"rated")
    world.start()
    for group in list(world.flying):
        world.end(group, good=True)
    world.now += 999
    world.patrols()
    for _ in range(2):
        world.send(b"rated")
    world.start()
    assert len(world.flying) == 1


def test_a_clock_that_is_put_back_does_not_stop_a_destination_with_a_rate() -> None:
    destination = Destination(b"a", Limits(rate=(1, 100.0)))
    destination.count_start(1_000_000.0)
    assert destination.next_start(1_000_000.0) == 1_000_100.0
    assert destination.next_start(500_000.0) == 500_000.0


def test_a_clock_that_is_put_back_does_not_keep_a_dead_destination_from_its_probe() -> None:
    destination = Destination(b"a", Limits(initial=1, cohorts=1))
    assert destination.count_failure(1_000_000.0)
    assert destination.suspends(1_000_001.0) and not destination.suspends(1_000_061.0)
    assert not destination.suspends(500_000.0)


def test_a_moment_ago_is_no_clock_that_was_put_back() -> None:
    destination = Destination(b"a", Limits(initial=1, cohorts=1, rate=(1, 100.0)))
    destination.count_start(1_000_000.0)
    assert destination.count_failure(1_000_000.0)
    # The turn of the loop began before the report was dealt with.
    assert destination.suspends(999_999.5)
    assert destination.next_start(999_999.5) == 1_000_100.0


def fail_once(recorder: Recorder, names: list[bytes], now: float = 0.0) -> None:
    """Send a message to each of these hosts, which all fail."""
    for name in names:
        recorder.send((name, 1))
    while running := recorder.start(now):
        for entry in running:
            recorder.end(entry, now, good=False)


def test_of_very_many_hosts_that_have_failed_those_that_failed_last_are_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scheduling, "FAILED_MAX", 100)
    recorder = Recorder()
    names = [b"gone%d.example" % number for number in range(300)]
    fail_once(recorder, names)
    assert sorted(recorder.scheduler.destinations) == sorted(names[200:])
    assert set(recorder.scheduler._failed) == set(names[200:])
    fail_once(recorder, names[:1])
    assert names[0] in recorder.scheduler.destinations and names[200] not in recorder.scheduler.destinations


def test_a_dead_host_that_is_forgotten_leaves_nothing_behind_and_its_mail_is_tried_at_its_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scheduling, "FAILED_MAX", 5)
    recorder = Recorder()
    for _ in range(6):
        fail_once(recorder, [b"dead.example"] * 3)
    suspended = recorder.send((b"dead.example", 1))
    assert recorder.start(0.0) == [] and list(recorder.scheduler.dead) == [b"dead.example"]
    fail_once(recorder, [b"gone%d.example" % number for number in range(9)])
    assert not recorder.scheduler.dead and b"dead.example" not in recorder.scheduler.destinations
    assert recorder.scheduler._suspended_count == 0
    while running := recorder.start(RETRY + 1.0):
        for entry in running:
            recorder.end(entry, RETRY + 1.0)
    assert not recorder.messages[suspended]


def test_a_host_that_has_failed_and_has_mail_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduling, "FAILED_MAX", 5)
    recorder = Recorder()
    for _ in range(9):
        recorder.send((b"busy.example", 1))
    running = recorder.start(0.0)
    recorder.end(running[0], 0.0, good=False)
    fail_once(recorder, [b"gone%d.example" % number for number in range(4)])
    assert b"busy.example" in recorder.scheduler.destinations


def test_a_host_that_has_failed_takes_little_memory() -> None:
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        kept = [Destination(b"gone%d.example" % number, Limits()) for number in range(1000)]
        assert (tracemalloc.get_traced_memory()[0] - before) / len(kept) < 1200
    finally:
        tracemalloc.stop()
