"""The scheduler's turns: what is slow leaves places free, and nothing waits for what it has nothing to do with."""

from hypothesis import given
from hypothesis import strategies as st

from support.send.recorder import SETTINGS, Recorder


def test_slow_destinations_take_at_most_half_of_the_places_while_quick_ones_take_the_rest() -> None:
    recorder = Recorder()
    slow, quick = [b"slow%d" % number for number in range(12)], [b"quick%d" % number for number in range(12)]
    for names, seconds in ((slow, 100.0), (quick, 1.0)):
        for name in names:
            recorder.send((name, 1))
            for group in recorder.start(0.0):
                recorder.end(group, seconds)
    for name in slow + quick:
        recorder.send((name, 1))
    started = [group.nexthop for group in recorder.start(200.0)]
    assert len(started) == 8
    assert sum(name in slow for name in started) == 4


def test_slow_destinations_leave_two_fifths_of_the_places_free_but_have_an_eighth_in_any_case() -> None:
    recorder = Recorder(SETTINGS._replace(concurrency=24))
    slow, quick = [b"slow%d" % number for number in range(20)], [b"quick%d" % number for number in range(20)]
    for names, seconds in ((slow, 100.0), (quick, 1.0)):
        for name in names:
            recorder.send((name, 1))
            for group in recorder.start(0.0):
                recorder.end(group, seconds)
    for busy, left in ((10, 5), (14, 3), (20, 3)):  # Places that quick destinations have taken, and left for slow ones.
        for name in quick[:busy]:
            recorder.send((name, 1))
        running = recorder.start(200.0)
        for name in slow:
            recorder.send((name, 1))
        started = recorder.start(200.0)
        assert len(started) == left
        while running or started:
            for group in running + started:
                recorder.end(group, 201.0 if group.nexthop in quick else 300.0)
            running, started = [], recorder.start(200.0)


def test_a_quick_destination_whose_host_is_away_for_once_is_not_slow_for_that() -> None:
    recorder = Recorder()
    names = [b"known%d" % number for number in range(6)]
    for name in names:
        recorder.send((name, 1))
        recorder.end(recorder.start(0.0)[0], 1.0)
        recorder.send((name, 1))
        recorder.end(recorder.start(2.0)[0], 62.0, good=False)
    for name in names:
        recorder.send((name, 1))
    assert len(recorder.start(100.0)) == 6


def test_a_place_that_a_slow_destination_gives_back_goes_to_the_next_slow_one() -> None:
    recorder = Recorder()
    names = [b"slow%d" % number for number in range(6)]
    for name in names:
        recorder.send((name, 1))
        for group in recorder.start(0.0):
            recorder.end(group, 100.0)
    for name in names:
        recorder.send((name, 1))
    first = recorder.start(200.0)
    assert len(first) == 4
    assert recorder.scheduler.next_time(200.0) is None
    recorder.end(first[0], 300.0)
    assert recorder.scheduler.next_time(300.0) == 300.0
    assert [group.nexthop for group in recorder.start(300.0)] == [names[4]]


def test_destinations_that_nothing_is_known_of_leave_a_quarter_of_the_places_free() -> None:
    recorder = Recorder()
    for number in range(20):
        recorder.send((b"new%d" % number, 1))
    assert len(recorder.start(0.0)) == 6


def test_a_job_in_flight_for_long_counts_as_slow_before_it_ends() -> None:
    recorder = Recorder()
    recorder.send((b"known", 1))
    recorder.end(recorder.start(0.0)[0], 100.0)  # It was slow.
    for number in range(5):
        recorder.send((b"new%d" % number, 1))
    assert len(recorder.start(200.0)) == 5
    recorder.send((b"known", 1))
    assert recorder.start(300.0) == []  # Five hang already, more than half of the eight.


def test_a_place_that_is_left_when_jobs_count_as_slow_is_used_then_though_nothing_else_happens() -> None:
    recorder = Recorder()
    for number in range(20):
        recorder.send((b"new%d" % number, 1))
    assert len(recorder.start(0.0)) == 6
    due = recorder.scheduler.next_time(1.0)
    assert due == 15.0
    assert len(recorder.start(due)) == 1


def test_recipients_with_a_quick_host_do_not_wait_for_room_at_a_crowded_one() -> None:
    recorder = Recorder()
    for _ in range(30):
        recorder.send((b"crowded", 1))
    crowd = recorder.start(0.0)
    for _ in range(4):
        recorder.send((b"fast", 1))
    fast = recorder.start(0.0)
    both = recorder.send((b"fast", 1), (b"crowded", 1))
    recorder.start(0.0)
    assert {group.nexthop for group in crowd} == {b"crowded"}
    while fast:
        for group in fast:
            recorder.end(group, 1.0)
        fast = recorder.start(1.0)
    assert recorder.messages[both] == [(b"crowded", 1)]


def test_deferred_recipients_are_due_in_time_though_others_of_the_message_wait_for_room() -> None:
    recorder = Recorder()
    for _ in range(30):
        recorder.send((b"crowded", 1))
    recorder.start(0.0)
    both = recorder.send((b"down", 1), (b"crowded", 1))
    group, = recorder.start(0.0)
    recorder.end(group, 1.0, good=False)
    assert recorder.waiting == [both]


def test_a_probe_in_vain_is_one_job_however_many_recipients_its_message_has() -> None:
    recorder = Recorder()
    now = 0.0
    for _ in range(8):
        recorder.send((b"down", 1))
    while started := recorder.start(now):
        for group in started:
            recorder.end(group, now, good=False)
    recorder.send((b"down", 7))
    now += 61.0
    probe, = recorder.start(now)
    recorder.end(probe, now, good=False)
    assert recorder.start(now) == []
    assert recorder.waiting[-1] == probe.attempt.message


def test_mail_that_waits_for_room_goes_on_when_what_was_before_it_is_withdrawn() -> None:
    recorder = Recorder()
    messages = [recorder.send((b"a", 1)) for _ in range(6)]
    flying = recorder.start(0.0)
    assert len(flying) == 2
    before = set(recorder.scheduler.attempts) - {group.attempt.message for group in flying}
    for message in before:
        recorder.scheduler.withdraw(message, 0.0)
    for group in flying:
        recorder.end(group, 1.0)
    tried = {group.attempt.message for group in (*flying, *recorder.start(1.0))}
    assert tried == set(messages) - before


def learn(recorder: Recorder, pace: bytes, count: int, seconds: float) -> list[bytes]:
    """Let so many destinations have had a job that took `seconds`; return their names."""
    names = [b"%s%d" % (pace, number) for number in range(count)]
    for name in names:
        recorder.send((name, 1))
        for group in recorder.start(0.0):
            recorder.end(group, seconds)
    return names


def test_hosts_that_take_a_second_do_not_keep_the_places_from_prompt_ones() -> None:
    recorder = Recorder()
    steady, prompt = learn(recorder, b"steady", 12, 1.0), learn(recorder, b"prompt", 3, 0.1)
    for name in steady + prompt:
        recorder.send((name, 1))
    while (found := recorder.scheduler.next_load(10.0)) is not None:
        recorder.load(*found, 10.0)
    running = recorder.start(10.0)
    assert [group.nexthop for group in running] == [*steady[:6], *prompt[:2]]
    turns = []
    for group in running[-2:]:
        recorder.end(group, 10.1)
        turns += [started.nexthop for started in recorder.start(10.1)]
    assert turns == [prompt[2], steady[6]]  # No place stays empty.


def test_hosts_that_take_a_second_have_a_quarter_of_the_places_beside_prompt_ones() -> None:
    recorder = Recorder()
    steady, prompt = learn(recorder, b"steady", 8, 1.0), learn(recorder, b"prompt", 8, 0.1)
    for name in prompt + steady:
        recorder.send((name, 1))
    running = recorder.start(10.0)
    assert [group.nexthop for group in running] == prompt
    for group in running[:4]:
        recorder.end(group, 10.1)
        recorder.send((group.nexthop, 1))
    started = [group.nexthop for group in recorder.start(10.1)]
    assert started[:2] == steady[:2]
    assert len(started) == 4


@given(st.lists(st.sampled_from([1.0, 0.1]), max_size=16), st.integers(0, 8))
def test_no_place_stays_empty_while_a_prompt_or_steady_destination_is_ready(paces: list[float], busy: int) -> None:
    recorder = Recorder()
    names = [learn(recorder, b"%d-" % number, 1, seconds)[0] for number, seconds in enumerate(paces)]
    for name in names[:busy]:
        recorder.send((name, 1))
    running = recorder.start(10.0)
    for name in names:
        recorder.send((name, 1))
    while names or running:
        running += recorder.start(11.0)
        waiting = sum(bool(groups) for groups in recorder.messages.values()) - len(running)
        assert len(running) == min(8, len(running) + waiting)
        if not running:
            break
        recorder.end(running.pop(0), 11.0)
