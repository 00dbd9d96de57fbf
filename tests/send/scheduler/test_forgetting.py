"""What the scheduler does not keep: entries of mail that is gone, destinations that nobody sends to any more."""

from queue_base.limits import Limits
from queue_send.scheduler.destination import FORGET_AFTER, Destination
from support.send.limited import limited
from support.send.recorder import LIFETIME, Recorder
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
