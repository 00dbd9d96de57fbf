"""The active set: whoever has very many messages leaves room in it for prompt destinations and for other submitters."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_base.limits import Limits
from queue_send.scheduler import scheduler as loading
from queue_send.scheduler.model import Entry, Settings
from queue_send.scheduler.new_mail import FEW, LoadedCounts, NewMail
from queue_send.scheduler.round_robin import KNOWN_MAX
from support.send.recorder import Recorder

SMALL = Settings(concurrency=20, active=160, limits=Limits())
HOG, OTHER = b"uid 1000", b"uid 1001"


def fill(recorder: Recorder, pattern: bytes = b"dead%d.example", count: int = 1000) -> list[Entry]:
    """Send very many messages of one submitter to as many destinations; return the jobs in flight, which hang."""
    for number in range(count):
        recorder.send((pattern % number, 1), known=True, submitter=HOG)
    return recorder.start(1000.0)


def make_prompt(recorder: Recorder, nexthop: bytes) -> None:
    recorder.send((nexthop, 1))
    for entry in recorder.start(0.0):
        recorder.end(entry, 0.1)


def started(recorder: Recorder, now: float = 1001.0) -> list[bytes]:
    return [entry.nexthop for entry in recorder.start(now)]


@pytest.mark.parametrize("destinations", [30, 5000])
def test_mail_for_a_prompt_host_is_started_behind_very_many_messages_of_one_submitter(
    monkeypatch: pytest.MonkeyPatch, destinations: int
) -> None:
    monkeypatch.setattr(loading, "DESTINATIONS_MAX", destinations)
    recorder = Recorder(SMALL)
    make_prompt(recorder, b"prompt.example")
    fill(recorder)
    for _ in range(3):
        recorder.send((b"prompt.example", 1), known=True, submitter=HOG)
    assert started(recorder) == [b"prompt.example"] * 2
    assert recorder.scheduler.active <= SMALL.active


@pytest.mark.parametrize("known", [False, True])
def test_the_first_message_of_another_submitter_is_started_behind_very_many_of_one(
    monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    monkeypatch.setattr(loading, "DESTINATIONS_MAX", 30)
    recorder = Recorder(SMALL)
    fill(recorder)
    recorder.send((b"fresh.example", 1), known=known, submitter=OTHER)
    assert started(recorder, 1100.0) == [b"fresh.example"]


def test_a_message_with_several_recipients_of_another_submitter_does_not_wait_behind_those_of_one() -> None:
    recorder = Recorder(SMALL)
    for number in range(1000):
        recorder.send((b"dead%d.example" % number, 1), (b"gone%d.example" % number, 1), submitter=HOG)
    recorder.start(1000.0)
    recorder.send((b"one.example", 1), (b"two.example", 1), submitter=OTHER)
    assert started(recorder, 1100.0) == [b"one.example", b"two.example"]


def test_a_host_stays_known_as_prompt_behind_more_dead_ones_than_are_remembered() -> None:
    recorder = Recorder(SMALL._replace(active=100_000, concurrency=50_000))
    make_prompt(recorder, b"prompt.example")
    for seconds in (0.1, 60.0):
        for number in range(KNOWN_MAX + 100):
            recorder.send((b"%.1f-%d.example" % (seconds, number), 1))
        for entry in recorder.start(1000.0):
            recorder.end(entry, 1000.0 + seconds, good=False)
    assert recorder.scheduler.round_robin.is_brisk(b"prompt.example")


def test_a_host_that_refuses_at_once_is_not_known_as_prompt() -> None:
    recorder = Recorder(SMALL)
    recorder.send((b"refuses.example", 1))
    recorder.end(recorder.start(0.0)[0], 0.1, good=False)
    assert not recorder.scheduler.round_robin.is_brisk(b"refuses.example")


def test_when_others_have_nothing_all_mail_of_one_submitter_is_delivered() -> None:
    recorder = Recorder(SMALL)
    running = fill(recorder)
    while running:
        for entry in running:
            recorder.end(entry, 1000.0)
        running = recorder.start(1000.0)
    assert not any(recorder.messages.values())
    assert not recorder.scheduler.admission._loaded._counts


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from([None, b"a", b"b", b"c"])),
        st.tuples(st.just("take"), st.booleans()),
        st.tuples(st.just("end"), st.sampled_from([b"a", b"b", b"c"])),
    ),
    max_size=120,
)


@given(STEPS)
def test_submitters_take_turns_and_each_has_its_mail_in_the_order_of_arrival(steps: list[tuple[str, object]]) -> None:
    counts = LoadedCounts()
    new = NewMail(counts)
    model: dict[object, list[int]] = {None: [], b"a": [], b"b": [], b"c": []}
    loaded: dict[object, int] = {b"a": 0, b"b": 0, b"c": 0}
    number = 0
    for step, what in steps:
        few = {key for key in loaded if model[key] and loaded[key] < FEW}
        if step == "put":
            number += 1
            assert what is None or isinstance(what, bytes)
            model[what].append(number)
            new.put(number, what)
        elif step == "end":
            assert isinstance(what, bytes)
            if loaded[what]:
                loaded[what] -= 1
                if counts.remove(what):
                    new.sort(what)
        else:
            assert new.has(bool(what)) == (bool(few) if what else any(model.values()))
            message = new.take(bool(what))
            assert (message is None) == (not few if what else not any(model.values()))
            if message is not None:
                key = next(key for key, messages in model.items() if messages and messages[0] == message)
                model[key].pop(0)
                if what:
                    assert key in few
                if isinstance(key, bytes):
                    loaded[key] += 1
                    if counts.add(key):
                        new.sort(key)
        assert len(new) == sum(map(len, model.values()))
        assert sorted(new.oldest(1000)) == sorted(each for every in model.values() for each in every)
        assert all(new.holds(each) == any(each in every for every in model.values()) for each in range(number + 1))
