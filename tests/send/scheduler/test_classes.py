"""Mail of the first class is loaded and started before bulk mail, which has its share and is never starved."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queue_base.limits import Limits
from queue_send.scheduler.message_classes import MessageClasses
from queue_send.scheduler.model import Entry, Settings
from support.send.recorder import RETRY, Recorder

WIDE = Limits(initial=100, most=100, recipients=2)


def recorder(concurrency: int = 8, active: int = 1000, bulkshare: int = 50, limits: Limits = WIDE) -> Recorder:
    return Recorder(Settings(concurrency, active, limits, bulkshare=bulkshare))


def is_bulk(caller: Recorder, entry: Entry) -> bool:
    return caller.classes.rank(entry.attempt.message) > 0


def test_a_message_has_the_class_that_was_put_until_it_has_ended() -> None:
    classes = MessageClasses(("normal", "bulk"))
    for message, name in ((1, "bulk"), (2, "normal"), (3, ""), (4, "gone")):
        classes.put(message, name)
    assert [classes.rank(message) for message in (1, 2, 3, 4, 5)] == [1, 0, 0, 2, 0]
    assert [classes.name(message) for message in (1, 2, 4)] == ["bulk", "", "gone"]
    classes.put(1, "")
    assert classes.rank(1) == 0 and classes.any
    classes.discard(4)
    assert not classes.any


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("same", [True, False])
def test_a_normal_message_behind_much_bulk_is_the_next_that_starts(known: bool, same: bool) -> None:
    caller = recorder(limits=Limits(initial=2, most=2))
    for number in range(3000):
        caller.send((b"same" if same else b"d%d" % (number % 500), 1), known=known, priority="bulk")
    running = caller.start(0.0)
    assert running and all(is_bulk(caller, entry) for entry in running)
    normal = caller.send((b"same", 1), known=known)
    caller.end(running[0], 1.0)
    started = caller.start(1.0)
    assert normal in [entry.attempt.message for entry in started]


def test_bulk_may_use_all_places_while_no_other_mail_waits() -> None:
    caller = recorder(concurrency=4, bulkshare=25, limits=Limits(initial=2, most=2))
    for number in range(20):
        caller.send((b"d%d" % number, 1), priority="bulk")
    # Three quarters are for hosts of which nothing is known yet.
    assert len(caller.start(0.0)) == 3


def test_a_normal_message_is_loaded_though_bulk_fills_the_active_set() -> None:
    caller = recorder(concurrency=100, active=10, limits=Limits(initial=1, most=1))
    for number in range(40):
        caller.send((b"b%d" % (number % 10), 1), priority="bulk")
    caller.start(0.0)
    assert caller.scheduler.active == 9  # An eighth is kept for destinations that are known to be prompt.
    normal = [caller.send((b"n%d" % number, 1)) for number in range(10)]
    started = [entry.attempt.message for entry in caller.start(0.0)]
    # Half of the active set is kept for them, but for that eighth.
    assert started == normal[:4]


def test_deferred_mail_keeps_its_class() -> None:
    caller = recorder(concurrency=2, limits=Limits(initial=1, most=1, cohorts=1000))
    bulk = [caller.send((b"b%d" % number, 1), priority="bulk") for number in range(3)]
    ended = 0
    while running := caller.start(0.0):
        for entry in running:
            caller.end(entry, 0.0, good=False)
            ended += 1
    assert ended == 3 and sorted(caller.waiting) == bulk
    normal = caller.send((b"n", 1))
    first = caller.start(float(RETRY))[0]
    assert first.attempt.message == normal


@settings(max_examples=150, deadline=None)
@given(
    st.integers(2, 12),
    st.integers(1, 100),
    st.booleans(),
    st.lists(st.tuples(st.sampled_from(["", "", "bulk", "later"]), st.integers(0, 5)), min_size=1, max_size=120),
    st.randoms(use_true_random=False),
)
def test_bulk_never_starts_above_its_share_while_normal_mail_waits_and_all_mail_is_delivered(
    concurrency: int, share: int, known: bool, mail: list[tuple[str, int]], random: object
) -> None:
    assert hasattr(random, "randrange")
    caller = recorder(concurrency, 20, share)
    scheduler = caller.scheduler.scheduler
    most = scheduler.settings.lower_places
    running: list[Entry] = []
    waiting = list(mail)
    now = 0.0
    delivered: Counter[str] = Counter()
    while waiting or running or len(caller.scheduler):
        now += 1.0
        for _ in range(min(len(waiting), 7)):
            priority, destination = waiting.pop(0)
            caller.send((b"d%d" % destination, 1), known=known, priority=priority)
        while True:
            found = scheduler.next_load(now)
            if found is not None:
                caller.load(*found, now)
            waits, before = scheduler._first_waits(now), scheduler.lower_in_flight
            entry = caller.scheduler.next_job(now)
            if entry is None and found is None:
                break
            if entry is not None:
                if is_bulk(caller, entry) and waits:
                    assert before < most
                running.append(entry)
        assert running or not len(caller.scheduler), "nothing starts though mail waits"
        for _ in range(random.randrange(1, len(running) + 1) if running else 0):
            entry = running.pop(random.randrange(len(running)))
            delivered[caller.classes.name(entry.attempt.message)] += 1
            caller.end(entry, now)
    assert sum(delivered.values()) == len(mail)
    assert scheduler.lower_in_flight == 0 and not scheduler._lower_attempts


def test_one_of_ten_is_bulk_while_normal_mail_never_ends() -> None:
    caller = recorder(concurrency=4, bulkshare=50)
    for _ in range(100):
        caller.send((b"b", 1), known=True, priority="bulk")
    for number in range(1000):
        caller.send((b"n%d" % (number % 8), 1), known=True)
    started: list[bool] = []
    running = caller.start(0.0)
    while len(started) < 400:
        started += [is_bulk(caller, entry) for entry in running]
        for entry in running:
            caller.end(entry, 0.0)
        running = caller.start(0.0)
    assert 20 <= sum(started) <= 60
