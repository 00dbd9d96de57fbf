"""The scheduler queues mail ahead of a window where that spares a second load, and only where nobody pays for it."""

import pytest

from queue_send.scheduler import scheduler as loading
from support.send.recorder import RETRY, SETTINGS, Recorder


def counts(recorder: Recorder, nexthop: bytes) -> tuple[int, int, int]:
    """Return how many messages of a destination are in flight, queued, and aside."""
    destination = recorder.scheduler.destinations[nexthop]
    return destination.in_flight, len(destination.queue), len(destination.overflow)


def test_mail_for_one_destination_is_loaded_once_while_the_active_set_is_not_half_full() -> None:
    recorder = Recorder()
    for _ in range(100):
        recorder.send((b"a", 1))
    started = recorder.start(0.0)
    assert counts(recorder, b"a") == (2, 98, 0)
    tried = []
    while started:
        tried += [group.attempt.message for group in started]
        recorder.end(started.pop(0), 0.0)
        started += recorder.start(0.0)
    assert sorted(set(tried)) == list(range(1, 101))


def test_over_half_of_the_active_set_a_destination_has_no_more_than_its_window_can_use() -> None:
    recorder = Recorder(SETTINGS._replace(active=20))
    for _ in range(30):
        recorder.send((b"a", 1))
    recorder.start(0.0)
    assert counts(recorder, b"a") == (2, 8, 20)
    recorder.send((b"b", 1))
    assert [group.nexthop for group in recorder.start(0.0)] == [b"b"]


def test_one_destination_has_so_many_queued_and_the_others_wait_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "QUEUED_AHEAD_MAX", 10)
    recorder = Recorder()
    for _ in range(30):
        recorder.send((b"a", 1))
    recorder.start(0.0)
    assert counts(recorder, b"a") == (2, 10, 18)


def test_mail_does_not_pass_what_has_waited_aside_for_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "QUEUED_AHEAD_MAX", 10)
    recorder = Recorder()
    for _ in range(30):
        recorder.send((b"a", 1))
    started = recorder.start(0.0)
    tried = []
    for _ in range(29):
        tried.append(started[0].attempt.message)
        recorder.end(started.pop(0), 0.0)
        recorder.send((b"a", 1))
        started += recorder.start(0.0)
    assert sorted(tried) == list(range(1, 30))


def test_a_message_with_another_destination_does_not_wait_behind_a_long_queue_for_its_next_attempt() -> None:
    recorder = Recorder()
    for _ in range(100):
        recorder.send((b"a", 1))
    both = recorder.send((b"a", 1), (b"b", 1))
    *_, other = recorder.start(0.0)
    assert other.nexthop == b"b"
    recorder.end(other, 0.0, good=False)
    assert recorder.waiting == [both]
    assert counts(recorder, b"a") == (2, 98, 1)
    assert recorder.scheduler.next_time(0.0) == RETRY
