"""A new message whose destination is known waits there: nobody's mail is read before mail that can be delivered."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_base.limits import Limits
from queue_send.admin.queries import Explainer
from queue_send.scheduler import scheduler as loading
from queue_send.scheduler.model import Entry
from queue_wire.admin.cause import OVERFLOW
from support.send.recorder import LIFETIME, SETTINGS, Recorder

WIDE = SETTINGS._replace(concurrency=100)
PAUSE = loading.SUSPEND_PAUSE


def die(recorder: Recorder, nexthop: bytes) -> set[int]:
    """Let the jobs of a destination fail until it is dead; return the messages that were tried."""
    tried = set()
    jobs = recorder.start(0.0)
    while not recorder.scheduler.destinations[nexthop].dead:
        for job in jobs:
            tried.add(job.attempt.message)
            recorder.end(job, 0.0, good=job.nexthop != nexthop)
        jobs = recorder.start(0.0)
    return tried


@given(
    sick=st.lists(st.sampled_from([b"tarpit", b"slow", b"away"]), max_size=60),
    at=st.integers(0, 60),
    window=st.integers(1, 5),
)
def test_of_mail_for_destinations_that_take_none_no_more_is_read_than_they_have_room_for(
    sick: list[bytes], at: int, window: int
) -> None:
    recorder = Recorder(WIDE._replace(limits=Limits(initial=window)))
    for nexthop in sick[:at]:
        recorder.send((nexthop, 1), known=True)
    healthy = recorder.send((b"healthy", 1), known=True)
    for nexthop in sick[at:]:
        recorder.send((nexthop, 1), known=True)
    started = [job.attempt.message for job in recorder.start(0.0)]
    assert healthy in started
    # So many are in flight, and so many are queued for the places that become free.
    room = window + max(2, window)
    assert len(recorder.loaded) <= 1 + room * len(set(sick))
    assert sorted(started) == sorted(
        message for nexthop in {*sick, b"healthy"}
        for message in [m for m, groups in recorder.messages.items() if groups[0][0] == nexthop][:window]
    )  # fmt: skip


def test_mail_that_waits_at_its_destination_is_delivered_in_the_order_of_its_arrival() -> None:
    recorder = Recorder()
    sent = [recorder.send((b"a", 1), known=True) for _ in range(100)]
    tried, jobs = [], recorder.start(0.0)
    while jobs:
        tried += [job.attempt.message for job in jobs]
        for job in jobs:
            recorder.end(job, 0.0)
        jobs = recorder.start(0.0)
    assert tried == sent == recorder.loaded


def test_new_mail_whose_destination_is_known_alternates_with_due_deferred_mail() -> None:
    recorder = Recorder(WIDE._replace(limits=Limits(initial=20)))
    old = [recorder.send((b"old", 1)) for _ in range(8)]
    while (found := recorder.scheduler.next_load(0.0)) is not None:
        recorder.scheduler.retry_at(found[0], 5)
    new = [recorder.send((b"new", 1), known=True) for _ in range(8)]
    recorder.start(5.0)
    kinds = [message in new for message in recorder.loaded]
    assert kinds in ([True, False] * 8, [False, True] * 8)
    assert sorted(recorder.loaded) == old + new


def test_new_mail_whose_destination_is_not_known_takes_turns_with_mail_whose_is() -> None:
    recorder = Recorder(WIDE._replace(limits=Limits(initial=20)))
    known = [recorder.send((b"a", 1), known=True) for _ in range(8)]
    other = [recorder.send((b"b", 1), (b"c", 1)) for _ in range(8)]
    recorder.start(0.0)
    assert sorted(recorder.loaded[:8]) == sorted(known[:4] + other[:4])


def test_what_waits_at_a_destination_that_dies_is_deferred_little_by_little() -> None:
    recorder = Recorder(WIDE)
    sent = [recorder.send((b"dead", 1), known=True) for _ in range(200)]
    die(recorder, b"dead")
    at_once = len(recorder.waiting)
    assert at_once <= len(recorder.loaded) <= 10 + loading.OVERFLOW_SUSPENDED
    now = 0.0
    while len(recorder.waiting) < len(sent):
        before, then = len(recorder.waiting), recorder.scheduler.next_time(now)
        assert then is not None and then <= now + PAUSE + 1e-6
        now = max(then, now + PAUSE)
        recorder.start(now)
        assert 0 < len(recorder.waiting) - before <= loading.OVERFLOW_SUSPENDED
    assert sorted(recorder.waiting) == sent
    assert recorder.scheduler.overflow == 0


def test_mail_for_a_dead_destination_does_not_delay_what_can_be_delivered() -> None:
    recorder = Recorder(WIDE._replace(limits=Limits(initial=20)))
    recorder.send((b"dead", 1), known=True)
    for _ in range(500):
        recorder.send((b"dead", 1), known=True)
    die(recorder, b"dead")
    read = len(recorder.loaded)
    for _ in range(20):
        recorder.send((b"well", 1), known=True)
    assert len(recorder.start(0.0)) == 20
    assert len(recorder.loaded) <= read + 20 + loading.OVERFLOW_SUSPENDED


def test_new_mail_for_a_dead_destination_is_deferred_without_an_attempt() -> None:
    recorder = Recorder()
    recorder.send((b"dead", 3), known=True)
    for _ in range(9):
        recorder.send((b"dead", 1), known=True)
    die(recorder, b"dead")
    recorder.start(PAUSE)
    late = recorder.send((b"dead", 1), known=True)
    assert recorder.start(2 * PAUSE) == []
    assert late in recorder.waiting


def test_the_first_message_that_waits_at_a_dead_destination_is_its_probe() -> None:
    recorder = Recorder()
    for _ in range(10):
        recorder.send((b"dead", 1), known=True)
    tried = die(recorder, b"dead")
    recorder.start(PAUSE)
    probe_at = recorder.scheduler.destinations[b"dead"].probe_at
    late = recorder.send((b"dead", 1), known=True)
    jobs: list[Entry] = recorder.start(probe_at)
    assert len(jobs) == 1
    recorder.end(jobs[0], probe_at)
    # It is alive again, and all that was not tried before follows.
    while jobs := recorder.start(probe_at):
        for job in jobs:
            recorder.end(job, probe_at)
    assert {message for message, groups in recorder.messages.items() if groups} == tried
    assert late in recorder.loaded


def test_beyond_so_many_destinations_new_mail_waits_in_the_order_of_arrival(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "DESTINATIONS_MAX", 3)
    recorder = Recorder(WIDE)
    for number in range(6):
        recorder.send((b"d%d" % number, 1), known=True)
    assert (recorder.scheduler.overflow, recorder.scheduler.admission.new) == (3, 3)
    recorder.send((b"d0", 1), known=True)
    assert (recorder.scheduler.overflow, recorder.scheduler.admission.new) == (4, 3)
    assert len(recorder.start(0.0)) == 7


def test_what_waits_at_a_destination_is_given_up_at_the_end_of_its_lifetime() -> None:
    recorder = Recorder(WIDE._replace(limits=Limits(initial=1, most=1)))
    for _ in range(5):
        recorder.send((b"tarpit", 1), known=True)
    recorder.start(0.0)
    read = len(recorder.loaded)
    recorder.scheduler.expire_all(LIFETIME + 10.0)
    assert recorder.scheduler.overflow == 0
    assert read < 5


def test_of_destinations_whose_mail_is_delivered_nothing_is_kept() -> None:
    recorder = Recorder()
    for number in range(100):
        recorder.send((b"d%d" % number, 1), known=True)
    while jobs := recorder.start(0.0):
        for job in jobs:
            recorder.end(job, 0.0)
    scheduler = recorder.scheduler
    assert not (scheduler.destinations or scheduler._with_overflow or scheduler._with_room or scheduler._in_turn)


def test_why_a_message_waits_is_known_also_after_its_route_has_changed() -> None:
    recorder = Recorder(WIDE)
    messages = [recorder.send((b"relay", 1), known=True) for _ in range(8)]
    recorder.start(0.0)
    causes = list(Explainer(b"R", recorder.scheduler.scheduler).message(messages[-1], [0], [b"other"], [], b"", 1.0))
    assert [(cause.kind, cause.nexthop) for cause in causes] == [(OVERFLOW, b"relay")]
