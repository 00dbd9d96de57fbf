"""What queue-send counts, and what it tells of it on lock/control."""

import signal
import time

import pytest

from queue_admin.messages.admin_client import SchedulerQueries
from queue_base.home import Home
from queue_send.counters import RECENT, Counters, TimeColumns, trouble_class
from queue_wire.admin.figure import COLUMNS
from queue_wire.pipes.notice import REMOTE, Arrived, pack_arrived
from support.processes.suite import wait_until
from support.queues.queued import classified_message
from support.send.control import long_id, order
from support.send.scripted_send import ScriptedSend

Found = dict[tuple[bytes, ...], float]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"Remote host said: 550 5.1.1 no such user\nI'm not going to try again. (#5.1.1)\n", b"address"),
        (b"I wasn't able to establish an SMTP connection. (#4.4.1)\n", b"network"),
        (b"192.0.2.1 said: 450 4.2.2 full", b"mailbox"),
        (b"550 5.7.1 blocked", b"policy"),
        (b"Remote host said: 421 too busy", b"none"),
        (b"from 4.5.6.7: no", b"none"),
        (b"4.8.1 9.1.1 14.1.1 4.1", b"none"),
        (b"", b"none"),
    ],
)
def test_a_trouble_has_the_subject_of_its_status_code(text: bytes, expected: bytes) -> None:
    assert trouble_class(text) == expected


def test_a_time_counts_in_the_column_of_its_power_of_two() -> None:
    times = TimeColumns(0.001)
    for seconds in (0.0, 0.0005, 0.001, 0.0035, 0.004, -5.0, 1e9):
        times.add(seconds, 2)
    assert times.counts == [6, 2, 2, 2, *[0] * (COLUMNS - 5), 2]
    assert times.seconds == pytest.approx(2 * (0.0005 + 0.001 + 0.0035 + 0.004 + 1e9))


def test_the_worst_turn_of_the_last_minutes_is_forgotten_and_that_of_all_time_is_not() -> None:
    counters = Counters()
    counters.add_turn(0.5, 1000.0)
    counters.add_turn(0.1, 1000.0 + RECENT + 1)
    assert counters.worst_recent == 0.5
    counters.add_turn(0.2, 1000.0 + 2 * RECENT + 3)
    assert counters.worst_recent == 0.2
    counters.add_turn(0.001, 1000.0 + 9 * RECENT)
    assert (counters.worst_recent, counters.worst, counters.turns) == (0.001, 0.5, 4)


def figures(home: Home) -> Found:
    with SchedulerQueries(home) as queries:
        return {(each.name, *each.labels): each.number for each in queries.figures()}


def test_queue_send_counts_verdicts_by_channel_result_and_class(home: Home) -> None:
    now = int(time.time())
    classified_message(home, remote=[b"b@c", b"d@c", b"e@c"], birth=now - 100)
    classified_message(home, local=[b"x@me.example.org"], birth=now - 5000)
    with ScriptedSend(home) as send:
        send.remote.report(send.remote.job(), b"Kok", b"Zlater (#4.2.2)\n", b"Dnever (#5.1.1)\n")
        send.local.deliver(b"Kok")
        send.wait_for(r"delivery \d: failure: never.*")
        send.wait_for(r"end msg.*")
        wait_until(lambda: figures(home)[b"ended",] == 1, why="the end of a message")
        wait_until(lambda: figures(home)[b"messages", b"remote", b"deferred"] == 1, why="the end of an attempt")
        # The deferral's record is written without a sync, the failure's with one.
        wait_until(lambda: figures(home)[b"disk-work",] > figures(home)[b"syncs",], why="the record of a deferral")
        found = figures(home)
    assert {key[1:]: number for key, number in found.items() if key[0] == b"results"} == {
        (b"local", b"success", b"none"): 1,
        (b"remote", b"success", b"none"): 1,
        (b"remote", b"deferral", b"mailbox"): 1,
        (b"remote", b"failure", b"address"): 1,
    }
    # The ages are between 64 and 128, and between 4096 and 8192 seconds.
    assert {key: number for key, number in found.items() if key[0] == b"age"} == {
        (b"age", b"remote", b"7"): 1,
        (b"age", b"local", b"13"): 1,
    }
    assert sum(number for key, number in found.items() if key[0] == b"delivery") == 4
    assert 5100 <= found[b"age-seconds", b"remote"] + found[b"age-seconds", b"local"] < 5200
    assert found[b"read",] == 1
    assert found[b"disk-work",] > found[b"syncs",] >= 1
    assert 0 < found[b"sync-seconds",] < found[b"disk-work-seconds",]
    assert abs(found[b"started",] - now) < 60
    assert 0 < found[b"turn-recent",] <= found[b"turn-worst",] <= found[b"turn-seconds",]


def test_a_message_that_is_flushed_again_and_again_is_counted_once_and_not_after_its_end(home: Home) -> None:
    message = classified_message(home, remote=[b"b@c"])
    with ScriptedSend(home) as send:

        def defer() -> None:
            send.remote.report(send.remote.job(), b"Zlater (#4.2.2)\n")
            wait_until(lambda: figures(home)[b"messages", b"remote", b"active"] == 0, why="the end of an attempt")

        defer()
        for _ in range(3):
            order(home, "flush", long_id(home, message))
            defer()
        assert figures(home)[b"messages", b"remote", b"deferred"] == 1
        order(home, "delete", long_id(home, message))
        wait_until(lambda: figures(home)[b"messages", b"remote", b"deferred"] == 0, why="its end")
        assert sum(number for key, number in figures(home).items() if key[0] == b"messages") == 0


@pytest.mark.home(destinationinitial="1", destinationconcurrency="1", destinationcohorts="1", activelimit="8")
def test_destinations_that_are_dead_or_have_much_mail_are_named(home: Home, send: ScriptedSend) -> None:
    def arrive(recipient: bytes) -> None:
        send.todo.classified(classified_message(home, remote=[recipient]))
        send.fence()

    arrive(b"a@dead.example")
    send.remote.report(send.remote.job(), b"Zno route (#4.4.1)", scope=b"h")
    send.wait_for("dest dead.example dead: .*")
    arrive(b"a@dead.example")
    for _ in range(4):
        arrive(b"a@busy.example")
    found = figures(home)
    assert found[b"dead", b"remote"] == 1
    assert found[b"suspended", b"remote", b"dead.example"] == 1
    assert found[b"waiting", b"remote", b"dead.example"] == 0
    assert found[b"destinations", b"remote"] == 2
    assert found[b"window", b"remote", b"busy.example"] == found[b"in-flight", b"remote", b"busy.example"] == 1
    assert found[b"waiting", b"remote", b"busy.example"] == 3
    send.signal(signal.SIGALRM)  # Everything is due, and the destination is probed.
    while send.remote.deliver(b"Kok").nexthop != b"dead.example":
        pass
    wait_until(lambda: figures(home)[b"dead", b"remote"] == 0, why="the end of its death")
    assert (b"suspended", b"remote", b"dead.example") not in figures(home)


def test_a_full_notice_tells_how_long_a_message_waited_in_todo(home: Home, send: ScriptedSend) -> None:
    message = classified_message(home, remote=[b"a@b"])
    birth = int((time.time() - 3) * 1e6)
    send.todo.send(pack_arrived(Arrived(message, birth, 10, b"s@t", [(REMOTE, b"a@b")])))
    send.remote.job()
    found = figures(home)
    assert found[b"arrived",] == 1
    assert 3 <= found[b"wait-seconds",] < 30
