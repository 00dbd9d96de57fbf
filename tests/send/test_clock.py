"""The clock may be put back or forward: what was to happen after a time happens after it, whatever the clock says."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_base.daemon.clock import Clock, ClockSpan, keep_spans, read_spans
from queue_base.home import Home
from queue_base.limits import Limits
from queue_base.queue.layout import open_layout
from queue_send.scheduler.model import Attempt, Entry, Settings
from queue_send.scheduler.retry import next_attempt
from queue_wire.control.schedule import QUADRATIC
from support.queues.queued import classified_message
from support.send.control import file
from support.send.driven import Driven
from support.send.limited import limited
from support.send.loop import Loop

DAY = 86400
LIFETIME = 1000 * DAY
LIMITS = Limits(initial=2, most=3, cohorts=1, probe_first=60, probe_most=600, recipients=3)
SETTINGS = Settings(concurrency=6, active=10, limits=LIMITS, table=limited(rates=b"rated:2/100\n"))
DOMAINS = [b"a", b"b", b"rated"]


class Time:
    """Two clocks: one that goes on, and the system's, which is set by `step` seconds."""

    def __init__(self) -> None:
        self.even = 50_000.0
        self.step = 0
        self.clock = Clock(self.system, lambda: self.even)

    def system(self) -> float:
        return 1_000_000_000.0 + self.even + self.step


class World:
    """A scheduler, messages on a disk whose times are the system's, and what was started when, by the even clock."""

    def __init__(self) -> None:
        self.time = Time()
        self.scheduler = Driven(SETTINGS, self)
        self.left: dict[int, list[bytes]] = {}
        self.due: dict[int, int] = {}
        self.flying: list[Entry] = []
        self.started: list[tuple[float, int, bytes]] = []

    @property
    def now(self) -> float:
        self.time.clock.look()
        return self.time.clock.now()

    def deferred(self, attempt: Attempt, now: float) -> None:
        due = int(now) + 400
        self.due[attempt.message] = self.time.clock.to_disk(due)
        self.scheduler.add_deferred(attempt.message, due)

    def finished(self, attempt: Attempt, now: float) -> None:
        pass

    def withdrawn(self, attempt: Attempt) -> None:
        pass

    def expired(self, entry: Entry) -> None:
        raise AssertionError("nothing expires here")

    def died(self, nexthop: bytes) -> None:
        pass

    def revived(self, nexthop: bytes) -> None:
        pass

    def send(self, domains: list[bytes]) -> None:
        message = len(self.left) + 1
        self.left[message] = list(dict.fromkeys(domains))
        self.due[message] = int(self.time.system())
        self.scheduler.add_new(message)

    def turn(self) -> None:
        now, idle = self.now, 0
        while idle < 3:
            found = self.scheduler.next_load(now)
            if found is not None:
                self._load(*found, now)
            entry = self.scheduler.next_job(now)
            if entry is not None:
                self.flying.append(entry)
                self.started.append((self.time.even, entry.attempt.message, entry.nexthop))
            idle = idle + 1 if found is None and entry is None else 0

    def _load(self, message: int, stamp: int | None, now: float) -> None:
        clock = self.time.clock
        if not self.left[message] or (stamp is not None and stamp not in clock.all_from_disk(self.due[message])):
            self.scheduler.cancel_load(message)
            return
        groups = [(name, [(0, b"x@" + name)]) for name in self.left[message]]
        self.scheduler.load(Attempt(message, b"", int(now), int(now) + LIFETIME), groups, now)

    def report(self, place: int, good: bool, host_failed: bool) -> None:
        if self.flying:
            entry = self.flying.pop(place % len(self.flying))
            if good:
                entry.attempt.left -= 1
                self.left[entry.attempt.message].remove(entry.nexthop)
            self.scheduler.end_job(entry, int(not good), host_failed and not good, self.now)


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.lists(st.sampled_from(DOMAINS), min_size=1, max_size=3)),
        st.tuples(st.just("wait"), st.sampled_from([0.25, 30.0, 100.0, 400.0, 3000.0])),
        st.tuples(st.just("step"), st.sampled_from([-400 * DAY, -DAY, -3600, -30, -1, 1, 30, 3600, DAY, 400 * DAY])),
        st.tuples(st.just("report"), st.tuples(st.integers(0, 9), st.booleans(), st.booleans())),
    ),
    max_size=60,
)


@given(EVENTS)
def test_whatever_is_done_to_the_clock_every_job_starts_when_it_would_with_one_that_nobody_sets(
    events: list[tuple[str, object]],
) -> None:
    told, untold = World(), World()
    for kind, value in events:
        for world in (told, untold):
            match kind, value:
                case "send", list(domains):
                    world.send(domains)
                case "wait", float(seconds):
                    world.time.even += seconds
                case "step", int(seconds) if world is told:
                    world.time.step += seconds
                case "report", (int(place), bool(good), bool(host_failed)):
                    world.report(place, good, host_failed)
            world.turn()
            due = world.scheduler.next_time(world.now)
            assert due is None or due >= world.now
    # Until all that waits for a time has been started.
    for world in (told, untold):
        for _ in range(100):
            while world.flying:
                world.report(0, True, False)
            world.turn()
            due = world.scheduler.next_time(world.now)
            if due is None and not world.flying:
                break
            world.time.even += max(0.0, (due or 0.0) - world.now)
        assert not any(world.left.values())
    assert told.started == untold.started


@given(st.lists(st.tuples(st.integers(0, 5000), st.integers(-10 * DAY, 10 * DAY))))
def test_the_clock_goes_on_evenly_and_knows_the_system_s_time(steps: list[tuple[int, int]]) -> None:
    times = Time()
    begun = times.clock.now()
    for seconds, step in steps:
        times.even += seconds
        times.step += step
        times.clock.look()
        assert times.clock.now() - begun == times.even - 50_000.0
        assert abs(times.clock.to_disk(int(times.clock.now())) - times.system()) <= 1.5
        assert times.clock.from_disk(times.clock.to_disk(2_000_000_000)) == 2_000_000_000


def test_mail_that_was_born_before_the_clock_was_put_back_is_tried_again_soon() -> None:
    assert next_attempt(QUADRATIC, 5 * DAY, DAY, 20, lambda: 0.0) == DAY + 400


@pytest.fixture
def times() -> Time:
    return Time()


@pytest.fixture
def loop(home: Home, times: Time) -> Iterator[Loop]:
    Path(home.control, "destinationrate").write_text("rated.example:1/3600\n")
    Path(home.control, "retryschedule").write_text("10m\n")
    Path(home.control, "retryjitter").write_text("0\n")
    made = Loop(home, times.clock)
    yield made
    made.close()


def arrived(home: Home, loop: Loop, times: Time, recipient: bytes) -> int:
    message = classified_message(home, remote=[recipient], birth=times.system(), due=int(times.system()))
    loop.arrive(message)
    return message


@pytest.mark.parametrize("step", [-DAY, DAY])
def test_a_rate_lets_the_next_message_go_in_its_time_although_the_clock_was_set(
    home: Home, loop: Loop, times: Time, step: int
) -> None:
    for _ in range(2):
        arrived(home, loop, times, b"b@rated.example")
    loop.settle()
    assert len(loop.jobs) == 1
    times.step += step
    times.even += 3590.0
    loop.settle()
    assert len(loop.jobs) == 1
    times.even += 11.0
    loop.settle()
    assert len(loop.jobs) == 2


@pytest.mark.parametrize("step", [-DAY, DAY])
def test_deferred_mail_is_tried_again_in_its_time_although_the_clock_was_set(
    home: Home, loop: Loop, times: Time, step: int
) -> None:
    before = arrived(home, loop, times, b"b@c.example")
    loop.settle()
    loop.report(loop.jobs[0], b"Zlater")
    loop.settle()
    times.step += step
    after = arrived(home, loop, times, b"b@d.example")
    loop.settle()
    loop.report(loop.jobs[0], b"Zlater")
    loop.settle()
    stamp = file(home, "remote", after).stat().st_mtime
    assert abs(stamp - (times.system() + 600)) <= 2
    times.even += 590.0
    loop.settle()
    assert loop.jobs == []
    times.even += 12.0
    loop.settle()
    tried = {int(job.path.rpartition(b"/")[2]) for job in loop.jobs}
    assert tried == {before, after}


@pytest.mark.parametrize("again", [False, True], ids=["running", "started again meanwhile"])
def test_a_clock_that_is_days_ahead_for_a_moment_makes_no_mail_too_old(
    home: Home, tmp_path: Path, times: Time, again: bool
) -> None:
    before = classified_message(home, remote=[b"b@c.example"], birth=times.system() - 30, due=int(times.system()))

    def bounces(message: int) -> bool:
        return os.path.exists(open_layout(home.queue).bounce(message))

    spans = times.clock.spans
    times.step += 10 * DAY
    if again:
        keep_spans(str(tmp_path / "clock"), spans)
        times.clock = Clock(times.system, lambda: times.even, read_spans(str(tmp_path / "clock")))
    loop = Loop(home, times.clock)
    try:
        loop.messages.all_found()
        during = classified_message(home, remote=[b"d@c.example"], birth=times.system(), due=int(times.system()))
        for message in (before, during):
            loop.arrive(message)
        for step in (0, -10 * DAY):
            times.step += step
            times.even += 400.0
            loop.settle()
            for job in list(loop.jobs):
                loop.report(job, b"Zlater")
            loop.settle()
            assert not any(bounces(message) for message in (before, during))
        times.even += 8 * DAY
        loop.settle()
        for job in list(loop.jobs):
            loop.report(job, b"Zlater")
        loop.settle()
        assert all(bounces(message) for message in (before, during))
    finally:
        loop.close()


def test_spans_of_another_boot_and_garbage_are_no_spans(tmp_path: Path) -> None:
    path = tmp_path / "clock"
    spans = [ClockSpan(1e9, float("-inf"), 17.5), ClockSpan(2e9, 17.5, float("inf"))]
    keep_spans(str(path), spans)
    assert read_spans(str(path)) == spans
    kept = path.read_bytes()
    for wrong in (b"", b"x" + kept, kept + b"1 2\n", kept + b"a b c\n", kept + b"inf 1 2\n", b"\xff" + kept):
        path.write_bytes(wrong)
        assert read_spans(str(path)) == []
    path.unlink()
    assert read_spans(str(path)) == []


def test_mail_of_an_earlier_run_waits_no_longer_than_it_had_to_although_the_clock_was_put_back(
    home: Home, times: Time
) -> None:
    message = classified_message(home, remote=[b"b@c.example"], birth=times.system() + DAY)
    due = times.system() + DAY + 600
    os.utime(open_layout(home.queue).hashed("remote", message), (due, due))
    loop = Loop(home, times.clock)
    try:
        assert loop.messages.discover(message)
        loop.settle()
        assert loop.jobs == []
        times.even += 602.0
        loop.settle()
        assert len(loop.jobs) == 1
    finally:
        loop.close()


def test_the_clock_of_a_run_is_the_system_s_until_that_is_set() -> None:
    clock = Clock()
    clock.look()
    assert clock.ahead == 0
    assert abs(clock.now() - time.time()) < 1.0
