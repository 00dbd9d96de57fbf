"""No part of queue-send's loop does more in a turn than it may, however much there is to do: work is counted here."""

import os
import threading
from collections.abc import Iterator
from itertools import count, islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_base.home import Home
from queue_base.limits import Limits
from queue_base.queue.layout import open_layout
from queue_base.reports.bounce_report import BounceFacts, compose_steps
from queue_base.reports.dsn import STEP
from queue_send import cleaner
from queue_send.admin.watchdog import LOOKS
from queue_send.delivery import verdicts
from queue_send.messages import message_files as store
from queue_send.messages.backlog import FoundMessages
from queue_send.messages.bounce_file import FailedRecipient, append_failures, read_failures
from queue_send.notify import notifier
from queue_send.notify.delay import DelayFacts, compose_notice
from queue_send.scheduler.fifo import Fifo
from queue_send.scheduler.model import Attempt, Entry
from queue_send.scheduler.overflow import BLOCK, NEVER, Overflow
from queue_send.scheduler.round_robin import SKIPPED_AT_ONCE, UNTESTED
from queue_send.scheduler.scheduler import EXPIRED_AT_ONCE, SUSPENDED_AT_ONCE, SUSPENDED_MAX
from queue_send.scheduler.waiting import LONG_AGO, Waiting
from queue_wire.failures import FailureReader, pack_failure
from queue_wire.pipes.cleaning import Removal
from support.queues.queued import classified_message
from support.send.loop import Loop
from support.send.recorder import SETTINGS, Recorder
from support.send.watched import LIFETIME, Watched
from support.send.watched import SETTINGS as WATCHED

QUICK_DEATH = SETTINGS._replace(limits=Limits(initial=1, most=1, cohorts=1), active=5000)


@pytest.fixture
def loop(home: Home) -> Iterator[Loop]:
    made = Loop(home)
    yield made
    made.close()


def test_a_destination_that_dies_turns_its_queue_away_a_part_at_a_time() -> None:
    recorder = Recorder(QUICK_DEATH)
    for _ in range(900):
        recorder.send((b"down", 1))
    entry, = recorder.start(0.0)
    assert len(recorder.scheduler.destinations[b"down"].queue) == 899
    recorder.end(entry, 1.0, good=False)
    assert len(recorder.waiting) <= SUSPENDED_AT_ONCE + 1
    while len(recorder.waiting) < 900:
        before = len(recorder.waiting)
        assert recorder.scheduler.next_time(2.0) == 2.0
        assert recorder.scheduler.next_job(2.0) is None
        assert before < len(recorder.waiting) <= before + SUSPENDED_AT_ONCE
    assert recorder.scheduler.active == 0


def test_what_a_dead_destination_has_not_turned_away_yet_is_tried_where_it_is_alive_again() -> None:
    recorder = Recorder(QUICK_DEATH)
    for _ in range(200):
        recorder.send((b"down", 1))
    entry, = recorder.start(0.0)
    recorder.end(entry, 1.0, good=False)
    recorder.scheduler.probe(b"down", 1.0)
    recorder.scheduler.destinations[b"down"].dead = False
    tried = set()
    while started := recorder.start(2.0):
        for entry in started:
            tried.add(entry.attempt.message)
            recorder.end(entry, 2.0)
    assert tried | set(recorder.waiting) == set(range(1, 201))
    assert len(tried) > 150


def test_a_probe_among_much_mail_that_leaves_a_dead_destination_is_the_only_attempt() -> None:
    recorder = Recorder(QUICK_DEATH)
    for _ in range(300):
        recorder.send((b"down", 1))
    entry, = recorder.start(0.0)
    recorder.end(entry, 1.0, good=False)
    recorder.scheduler.flush(1.0)  # It is to be probed while most of its queue has not been turned away.
    started = []
    for _ in range(200):
        recorder.start(1.0)
        found = recorder.scheduler.next_job(1.0)
        started += [found] if found else []
    assert len(started) <= 1


def test_mail_past_its_lifetime_is_given_up_a_part_at_a_time() -> None:
    world = Watched(WATCHED._replace(active=100_000))
    overflow = Overflow()
    world.send(b"a")
    world.start()
    destination = world.scheduler.destinations[b"a"]
    destination.overflow = overflow
    for message in range(2, 20_002):
        overflow.put(message, 5)
    calls = 0
    while len(overflow):
        before = len(overflow)
        world.scheduler._expire_some(destination, world.now)
        calls += 1
        assert before - len(overflow) <= EXPIRED_AT_ONCE + BLOCK
    assert calls >= 20_000 // (EXPIRED_AT_ONCE + BLOCK)


def test_queued_mail_past_its_lifetime_fails_a_part_at_a_time() -> None:
    world = Watched(WATCHED._replace(active=100_000))
    for _ in range(900):
        world.send(b"a")
    world.start()
    world.now += LIFETIME + 7200
    failed, end = 0, world.now + 70
    while (due := world.scheduler.next_expiry(world.now)) is not None and due < end:
        world.now = due
        world.scheduler.expire(world.now)
        assert len(world.failed) - failed <= EXPIRED_AT_ONCE
        failed = len(world.failed)
    assert len(world.failed) == 898


def test_a_round_of_the_watchdog_looks_at_few_messages_in_a_step() -> None:
    world = Watched(WATCHED._replace(active=1))
    world.send(b"a")
    world.start()
    for _ in range(3000):
        # Due for some time, but not for ten times the interval that their age gives.
        message = world.send(b"b", new=False)
        dates, nexthops = world.disk[message]
        world.disk[message] = dates._replace(birth=dates.birth - 500_000), nexthops
    world.now += 5000
    looks = 0
    for _ in world.steps():
        assert world.looks - looks <= 2 * LOOKS
        looks = world.looks
    assert looks > 1000


def test_destinations_without_a_place_are_passed_over_a_part_at_a_time() -> None:
    recorder = Recorder(SETTINGS._replace(active=10_000))
    for number in range(2000):
        recorder.send((b"d%d" % number, 1))
        found = recorder.scheduler.next_load(0.0)
        assert found is not None
        recorder.scheduler.load(Attempt(found[0], b"", 0, 9999), [(b"d%d" % number, [(0, b"x")])], 0.0)
    started = 0
    while recorder.scheduler.next_job(0.0) is not None:
        started += 1
    # Jobs to hosts of which nothing is known take three quarters of the places.
    assert started == 6
    passed = recorder.scheduler.round_robin._first.skipped[UNTESTED]
    assert 0 < len(passed) <= SKIPPED_AT_ONCE


def test_recipients_that_fail_without_an_attempt_do_so_a_part_at_a_time(home: Home, loop: Loop) -> None:
    names = [b"user%d@c.example" % number for number in range(5000)]
    message = classified_message(home, remote=names)
    attempt = Attempt(message, b"a@b.example", 0, 1)
    attempt.in_flight = 5000
    loop.channel._verdicts.expire(Entry(attempt, b"c.example", list(enumerate(names))))
    turns = 0
    while attempt.in_flight:
        before = loop.log._deliveries
        loop.channel._apply_verdicts()
        assert loop.log._deliveries - before <= verdicts.EXPIRED_A_TURN
        # Those whose failures are not safe yet are bounded.
        settled = 5000 - attempt.in_flight
        assert loop.log._deliveries - settled <= verdicts.WRITTEN_MAX + verdicts.EXPIRED_A_TURN
        loop.log.run({}, 0.0)
        loop.disk.run({}, 0.0)
        turns += 1
    assert turns >= 5000 / verdicts.EXPIRED_A_TURN


def test_verdicts_are_taken_a_part_at_a_time_and_none_is_lost(home: Home, loop: Loop) -> None:
    messages = [classified_message(home, remote=[b"b@d%d.example" % number]) for number in range(150)]
    for message in messages:
        loop.arrive(message)
    for _ in range(150):
        loop.settle()
        for job in list(loop.jobs):
            loop.report(job, b"Kok")
    ended = [removal.message for removal, *_ in loop.cleaner._asked]
    assert sorted(ended) == sorted(messages)


def test_a_report_is_put_into_words_a_few_recipients_at_a_time() -> None:
    taken = [0]

    def pairs(most: int) -> Iterator[tuple[bytes, bytes]]:
        for number in range(most):
            taken[0] += 1
            yield b"user%d@c.example" % number, b"Remote host said: 550 no\n"

    bounce = BounceFacts(b"me", b"from@me", b"to@you", b"to@you", pairs(5000), b"Subject: x\n", 0, 0, "u")
    delay = DelayFacts(b"me", b"from@me", b"to@you", pairs(5000), b"Subject: x\n", 0, 0, 0, "u")
    for steps in (compose_steps(bounce), compose_notice(delay)):
        taken[0] = before = 0
        for _ in steps:
            assert taken[0] - before <= STEP
            before = taken[0]
        assert before == 5000


def test_a_notice_of_a_delay_reads_the_recipients_a_piece_at_a_time(
    home: Home, loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = b"".join(b"Duser%d@c.example\0" % number for number in range(20_000)) + b"Tlast@c.example\0"
    message = classified_message(home, remote=[b"x"])
    with open(open_layout(home.queue).hashed("remote", message), "wb") as file:
        file.write(data)
    read, real = [0], os.pread

    def pread(handle: int, length: int, at: int) -> bytes:
        assert length <= store.PIECE
        read[0] += length > 1  # With the first piece, the last byte of the file.
        return real(handle, length, at)

    monkeypatch.setattr(os, "pread", pread)
    before, found = 0, []
    for each in loop.messages.store.left(message, "remote"):
        assert read[0] - before <= 1
        before = read[0]
        found += [each] if each is not None else []
    assert [address for _, address in found] == [b"last@c.example"]
    assert read[0] > 10


def test_failures_are_read_in_small_blocks_and_handed_over_one_by_one(home: Home) -> None:
    layout = open_layout(home.queue)
    message = classified_message(home, remote=[b"x"])
    failures = [FailedRecipient(message, b"user%d@c.example" % number, b"no\n") for number in range(20_000)]
    append_failures(layout, failures)
    steps = read_failures(layout, message)
    pieces = 0
    try:
        while True:
            next(steps)
            pieces += 1
    except StopIteration as end:
        found = end.value
    size = os.stat(layout.bounce(message)).st_size
    assert pieces >= size / (64 * 1024)
    assert not isinstance(found, list)
    assert [address for address, _ in found] == [failure.recipient for failure in failures]


def test_failures_of_one_message_are_one_write_to_its_file(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    layout, opened, real = open_layout(home.queue), count(), os.open

    def counted(path: str, *arguments: int) -> int:
        if path == layout.bounce(7):
            next(opened)
        return real(path, *arguments)

    monkeypatch.setattr("queue_send.messages.bounce_file.os.open", counted)
    append_failures(layout, [FailedRecipient(7, b"user%d@c.example" % number, b"no\n") for number in range(500)])
    assert next(opened) <= 3


def test_a_failure_reader_gives_the_last_text_of_a_recipient_in_the_place_of_its_first() -> None:
    reader = FailureReader()
    for recipient, text in ((b"a", b"one"), (b"b", b"two"), (b"a", b"three")):
        reader.feed(pack_failure(recipient, text))
    assert len(reader) == 2
    assert list(reader.take()) == [(b"a", b"three"), (b"b", b"two")]
    assert len(reader) == 0


def test_removals_and_bounces_that_failed_are_taken_up_a_part_at_a_time(home: Home, loop: Loop) -> None:
    for message in range(1000):
        loop.cleaner._again.append((0.0, Removal(message)))
    loop.cleaner.run({}, loop.clock.now())
    assert len(loop.cleaner._asked) <= cleaner.ANSWERS_A_TURN
    assert notifier.COMPOSING < 0.01


def test_a_message_that_cannot_be_read_is_parked_without_a_wait_for_the_disk(
    home: Home, loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = classified_message(home, remote=[b"b@c.example"])
    with open(open_layout(home.queue).hashed("remote", message), "wb") as file:
        file.write(b"garbage")
    waits: list[str] = []
    real = os.fsync

    def sync(handle: int) -> None:
        waits.append(threading.current_thread().name)
        real(handle)

    monkeypatch.setattr(os, "fsync", sync)
    loop.arrive(message)
    loop.settle()
    assert loop.is_parked(message) and waits and "MainThread" not in waits
    assert os.path.exists(open_layout(home.queue).hashed("corrupt", message))


# What takes the place of structures whose changes took as long as there are messages.


@given(st.lists(st.one_of(st.tuples(st.integers(0, 50), st.integers(0, 9)), st.sampled_from(["pop", "due"]))))
def test_what_waits_comes_out_as_of_a_plain_list(steps: list[tuple[int, int] | str]) -> None:
    waiting, model, flushes = Waiting(), [], 0
    for step in steps:
        if isinstance(step, tuple):
            waiting.push(*step)
            model.append((1, 0, *step))
        elif step == "due":
            # What is made due comes before everything else; what was made due before comes before that.
            flushes += 1
            model = [(0, at or flushes, due, key) for _, at, due, key in model]
            waiting.make_due()
        elif model:
            model.sort()
            made_due, _, due, key = model.pop(0)
            assert waiting.first_due() == (due if made_due else due - LONG_AGO)
            assert waiting.pop() == (due if made_due else due - LONG_AGO, key)
        assert len(waiting) == len(model)
        for key in range(10):
            dues = [due - (0 if made_due else LONG_AGO) for made_due, _, due, each in model if each == key]
            assert sorted(waiting.dues_of(key)) == sorted(dues)
        whole = [each for start in range(0, len(model), 3) for each in waiting.due_by(1000, start, 3)]
        assert sorted(whole) == sorted((due - (0 if made_due else LONG_AGO), key) for made_due, _, due, key in model)


@given(st.lists(st.one_of(st.integers(0, 30), st.none(), st.just("late")), max_size=80), st.integers(1, 4))
def test_what_is_aside_is_taken_and_late_as_of_a_plain_list(steps: list[int | str | None], piece: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("queue_send.scheduler.overflow.BLOCK", piece)
        overflow, model, number = Overflow(), [], 0
        for step in steps:
            if isinstance(step, int):
                number += 1
                overflow.put(number, step)
                model.append((number, step))
            elif step is None:
                assert overflow.take() == (model.pop(0)[0] if model else None)
            else:
                found = overflow.take_expired(15, 1000)
                assert found == [message for message, end in model if end < 15]
                model = [each for each in model if each[1] >= 15]
            assert len(overflow) == len(model)
            assert overflow.oldest(5) == [message for message, _ in model[:5]]
            assert all(overflow.holds(message) == (message in dict(model)) for message in range(1, number + 2))


def test_what_was_turned_away_is_taken_once_although_it_waits_twice() -> None:
    overflow = Overflow()
    for message in (1, 2):
        overflow.put(message, 100)
    overflow.join(Fifo([2, 3, 3, 4, 2]))
    overflow.put(5, 100)
    assert list(iter(overflow.take, None)) == [1, 2, 3, 4, 5]
    assert len(overflow) == 0


def test_a_message_that_is_put_aside_again_after_it_was_taken_is_taken_again() -> None:
    overflow = Overflow()
    overflow.join(Fifo([1, 2, 1]))
    assert overflow.take() == 1
    overflow.put(1, NEVER)
    assert [overflow.take(), overflow.take(), overflow.take()] == [2, 1, None]


def test_the_mail_that_a_dead_destination_turned_away_joins_the_rest_at_once() -> None:
    overflow = Overflow()
    overflow.put(1, 100)
    overflow.join(Fifo(range(2, SUSPENDED_MAX)))
    assert len(overflow._blocks) == 2
    assert list(islice(iter(overflow.take, None), 3)) == [1, 2, 3]


# Numbers that share an array of FoundMessages, and some that do not fit its small form.
NUMBERS = [*range(4), *(4093 * each + 1 for each in (1, 2, 2**32 - 1, 2**32, 2**50)), 2**63]


@given(st.lists(st.tuples(st.booleans(), st.sampled_from(NUMBERS))))
def test_what_was_found_at_start_is_known_until_it_ends(steps: list[tuple[bool, int]]) -> None:
    known, model = FoundMessages(), set()
    for noted, message in steps:
        if noted:
            known.add(message)
            model.add(message)
        else:
            known.forget(message)
            model.discard(message)
        assert {each for each in NUMBERS if known.holds(each)} == model
