"""What waits is counted once, wherever and however often it is queued, and not at all when it has ended."""

import json
import signal
import time
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from queue_base.home import Home
from queue_base.limits import Limits
from queue_send.scheduler.fifo import Fifo
from queue_send.scheduler.message_set import PAGE, MessageSet
from queue_send.scheduler.model import Settings
from queue_send.scheduler.overflow import BLOCK, Overflow
from queue_send.scheduler.scheduler import SWEEP_PAUSE, SWEPT_AT_ONCE, Scheduler
from support.processes.suite import wait_until
from support.queues.queued import classified_message
from support.send.control import long_id, order
from support.send.scripted_send import ScriptedSend

NUMBERS = st.one_of(st.integers(0, 3 * PAGE), st.integers(0, 2**63))


@given(st.lists(st.tuples(st.booleans(), NUMBERS), max_size=60))
def test_a_set_of_messages_is_as_a_set(steps: list[tuple[bool, int]]) -> None:
    found, model = MessageSet(), set[int]()
    for adds, number in steps:
        if adds:
            assert found.add(number) == (number not in model)
            model.add(number)
        else:
            assert found.discard(number) == (number in model)
            model.discard(number)
        assert len(found) == len(model) and (number in found) == (number in model)


def test_a_message_that_is_flushed_again_and_again_waits_once() -> None:
    scheduler = Scheduler(Settings(10, 10, Limits()))
    for _ in range(5):
        scheduler.add_deferred(7, 100, flushed=True)
    scheduler.make_due(7)
    scheduler.add_new(8)
    assert len(scheduler.waiting) == len(scheduler) == 2
    scheduler.forget(7)
    assert len(scheduler) == 1


def test_a_message_that_comes_again_keeps_its_place_in_the_overflow() -> None:
    overflow = Overflow()
    for message in (1, 2, 1, 1):
        overflow.put(message, 100)
    overflow.join(Fifo([2, 3]))
    assert len(overflow) == 3
    assert [overflow.take() for _ in range(4)] == [1, 2, 3, None]


def test_messages_that_have_ended_leave_the_overflow_a_part_at_a_time() -> None:
    scheduler = Scheduler(Settings(10, 10, Limits(initial=1, most=1)))
    count = (SWEPT_AT_ONCE * 3 + 1) * BLOCK
    for message in range(1, count + 1):
        scheduler.add_new(message, b"slow.example", 10**9)
    now = 1000.0
    for message in range(1, count):
        scheduler.forget(message)
    assert len(scheduler.waiting) == 1
    destination = scheduler.destinations[b"slow.example"]
    calls = 0
    while len(destination.overflow) > 1:
        before = len(destination.overflow)
        scheduler.start(now)
        assert before - len(destination.overflow) <= SWEPT_AT_ONCE * BLOCK
        calls += 1
        now = max(now, scheduler.next_time(now + SWEEP_PAUSE) or now)
    assert calls >= 4
    found = scheduler.next_load(now)
    assert found is not None and found[0] == count


def totals(home: Home) -> str:
    return order(home, "destinations").split("\n")[1]


def test_waiting_does_not_grow_by_flush_and_falls_by_hold_and_delete(home: Home) -> None:
    Path(home.control, "concurrencyremote").write_text("1\n")
    now = time.time()
    messages = [
        classified_message(home, remote=[b"b@c.example"], birth=now - 100, due=now + 3600) for _ in range(9)
    ]
    with ScriptedSend(home) as send:
        send.fence()
        wait_until(lambda: " 9 waiting" in totals(home), why="the backlog")
        order(home, "flush", long_id(home, messages[0]))
        job = send.remote.job()
        for _ in range(3):
            order(home, "flush", "--domain", "c.example")
            assert totals(home) == "remote: 1/20000 messages active, 8 waiting, 1/1 deliveries in flight"
        order(home, "hold", long_id(home, messages[1]))
        assert " 7 waiting" in totals(home)
        order(home, "release", long_id(home, messages[1]))
        assert " 8 waiting" in totals(home)
        order(home, "delete", *[long_id(home, message) for message in messages[1:]])
        assert " 0 waiting" in totals(home)
        send.remote.report(job, b"Kok")
        send.wait_for(f"end msg {messages[0]}")
        assert totals(home) == "remote: 0/20000 messages active, 0 waiting, 0/1 deliveries in flight"


def test_what_waits_on_disk_for_a_destination_does_not_grow_by_flush_and_falls_by_delete(home: Home) -> None:
    Path(home.control, "destinationinitial").write_text("1\n")
    Path(home.control, "destinationconcurrency").write_text("1\n")
    Path(home.control, "activelimit").write_text("4\n")
    now = time.time()
    messages = [classified_message(home, remote=[b"b@c.example"], birth=now - 100) for _ in range(9)]

    def on_disk() -> int:
        return int(json.loads(order(home, "destinations", "--format", "json").splitlines()[-1])["on_disk"])

    with ScriptedSend(home) as send:
        send.remote.job()
        wait_until(lambda: on_disk() == 6, why="the overflow")
        for _ in range(3):
            order(home, "flush", "--domain", "c.example")
            send.fence()
            wait_until(lambda: on_disk() == 6, why="the overflow")
        names = [long_id(home, message) for message in messages]
        order(home, "delete", *names)
        wait_until(lambda: on_disk() == 0, why="the sweep")


def test_the_next_probe_does_not_lie_in_the_past(home: Home) -> None:
    Path(home.control, "destinationinitial").write_text("1\n")
    Path(home.control, "destinationcohorts").write_text("1\n")
    message = classified_message(home, remote=[b"b@c.example"])
    with ScriptedSend(home) as send:
        send.remote.report(send.remote.job(), b"Zno route", scope=b"h")
        send.wait_for("dest c.example dead: .*")
        order(home, "delete", long_id(home, message))
        send.signal(signal.SIGALRM)
        send.fence()
        wait_until(lambda: " now " in order(home, "destinations").split("\n")[-1], why="the probe")
        assert json.loads(order(home, "destinations", "--format", "json").splitlines()[-1])["probe"] is None
