"""Mail that a dead destination turned away: tried soon after it is back, in order, as its window allows."""

import pytest

from queue_send.scheduler import scheduler as module
from queue_send.scheduler.model import Attempt, Entry
from support.send.recorder import RETRY, Recorder


def kill(recorder: Recorder, now: float = 0.0) -> None:
    """Make the host "down" dead; its mail has been tried in vain and waits."""
    for _ in range(4):
        recorder.send((b"down", 1))
    while started := recorder.start(now):
        for group in started:
            recorder.end(group, now, good=False)


def deliver(recorder: Recorder, now: float) -> list[int]:
    """Deliver whatever is due; return the messages in the order of their attempts."""
    tried = []
    while started := recorder.start(now):
        for group in started:
            tried.append(group.attempt.message)
            recorder.end(group, now)
    return tried


def test_what_was_turned_away_is_tried_in_order_and_within_the_window_once_the_host_is_back() -> None:
    recorder = Recorder()
    kill(recorder)
    turned_away = [recorder.send((b"down", 1)) for _ in range(20)]
    assert recorder.start(1.0) == []
    probe, = recorder.start(61.0)
    recorder.end(probe, 61.0)
    first, second = recorder.start(61.0)
    recorder.end(first, 62.0)
    recorder.end(second, 62.0)
    tried = [group.attempt.message for group in (probe, first, second)]
    assert tried + deliver(recorder, 62.0) == turned_away


def test_the_first_message_that_was_turned_away_is_the_probe_where_no_other_comes_in_time() -> None:
    recorder = Recorder()
    kill(recorder)
    first = recorder.send((b"down", 1))
    recorder.send((b"down", 1))
    recorder.start(1.0)
    assert recorder.scheduler.next_time(1.0) == 60.0
    probe, = recorder.start(60.0)
    assert probe.attempt.message == first


def test_a_message_that_was_the_probe_waits_for_its_next_attempt_and_the_next_one_is_the_next_probe() -> None:
    recorder = Recorder()
    kill(recorder)
    turned_away = [recorder.send((b"down", 1)) for _ in range(2)]
    recorder.start(1.0)
    probes = []
    for now in (60.0, 180.0, 420.0):
        for group in recorder.start(now):
            probes.append(group.attempt.message)
            recorder.end(group, now, good=False)
    assert probes == turned_away


def test_a_message_tried_on_the_return_of_its_host_is_not_tried_again_at_its_earlier_next_attempt() -> None:
    recorder = Recorder()
    kill(recorder)
    _, message = (recorder.send((b"down", 1)) for _ in range(2))
    recorder.start(1.0)
    recorder.end(recorder.start(60.0)[0], 60.0)
    group, = recorder.start(500.0)
    assert group.attempt.message == message
    recorder.scheduler.end_job(group, 1, False, 500.0)  # The host has answered, with "try again".
    assert message not in deliver(recorder, 1.0 + RETRY)
    assert message in deliver(recorder, 500.0 + RETRY)


def test_a_message_that_was_turned_away_twice_is_tried_once_on_the_return_of_its_host() -> None:
    recorder = Recorder()
    kill(recorder)
    recorder.send((b"down", 1))
    again = recorder.send((b"down", 1))
    for _ in range(6):
        recorder.send((b"down", 1))
    recorder.start(1.0)
    probe, = recorder.start(60.0)
    recorder.scheduler.make_due(again)
    assert recorder.start(61.0) == []  # The probe is not back.
    recorder.end(probe, 62.0)
    first, second = recorder.start(62.0)
    assert first.attempt.message == again
    recorder.scheduler.end_job(first, 1, False, 62.0)
    recorder.end(second, 62.0)
    assert again not in deliver(recorder, 63.0)


def test_a_host_that_was_dead_is_as_quick_as_its_probe() -> None:
    recorder = Recorder()
    recorder.send((b"down", 1))
    recorder.end(recorder.start(-100.0)[0], 0.0)  # It was slow.
    kill(recorder)
    recorder.send((b"down", 1))
    recorder.start(1.0)
    recorder.end(recorder.start(60.0)[0], 61.0)
    for number in range(5):
        recorder.send((b"hanging%d" % number, 1))
    assert len(recorder.start(61.0)) == 5  # No slow destination has a place beside so many.
    for _ in range(2):
        recorder.send((b"down", 1))
    assert len(recorder.start(62.0)) == 2


def test_what_is_remembered_of_mail_that_was_turned_away_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SUSPENDED_MAX", 5)
    scheduler = Recorder().scheduler
    one, other, late = (scheduler._destination(name) for name in (b"1", b"2", b"3"))

    def suspend(name: bytes, message: int) -> None:
        entry = Entry(Attempt(message, b"", 0, 1000), name, [(0, b"x")])
        scheduler._suspend(entry, scheduler.destinations[name], 0.0)

    for message in range(3):
        suspend(b"1", message)
        suspend(b"2", 10 + message)
    assert list(one.suspended) == [0, 1, 2]
    assert list(other.suspended) == [11, 12]  # Its oldest made way.
    suspend(b"3", 20)
    assert list(late.suspended) == []
    scheduler._revive(one)
    assert one.overflow.oldest(5) == [0, 1, 2]
    suspend(b"3", 21)
    assert list(late.suspended) == [21]
