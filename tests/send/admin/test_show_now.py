"""What queuectl show says that is done with a message now, or why it waits; with peers that the test plays."""

import re
import signal
import time
from pathlib import Path

from queue_base.home import Home
from queue_wire.logline import moment
from support.processes.forked import BIN
from support.queues.inflow import patched_programs
from support.queues.queued import classified_message, queue_message
from support.send.control import file, long_id, order, queuectl, wait_for_backlog
from support.send.scripted_send import ScriptedSend

TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"


def now(home: Home, message: int, programs: Path = BIN) -> list[str]:
    """Return what the `now:` lines of a message say."""
    shown = order(home, "show", long_id(home, message), programs=programs).splitlines()
    return [line.removeprefix("now: ") for line in shown if line.startswith("now: ")]


def arrived(home: Home, send: ScriptedSend, *remote: bytes) -> int:
    message = classified_message(home, remote=list(remote))
    send.todo.classified(message)
    send.fence()
    return message


def without_times(lines: list[str]) -> list[str]:
    return [re.sub(TIME, "T", line) for line in lines]


def test_a_message_that_waits_says_until_when(home: Home) -> None:
    due = int(time.time()) + 3600
    message = classified_message(home, remote=[b"b@c.example"], due=due)
    with ScriptedSend(home) as send:
        send.fence()
        wait_for_backlog(home)
        assert now(home, message) == [f"remote: waits for its next attempt at {moment(due)}"]


def test_a_message_waits_no_longer_than_its_lifetime_whatever_its_file_says(home: Home) -> None:
    birth = int(time.time()) - 1000
    message = classified_message(home, remote=[b"b@c.example"], birth=birth, due=4_000_000_000)
    with ScriptedSend(home) as send:
        send.fence()
        wait_for_backlog(home)
        assert now(home, message) == [f"remote: waits for its next attempt at {moment(birth + 604801)}"]


def test_a_message_in_flight_says_where_to(home: Home, send: ScriptedSend) -> None:
    message = arrived(home, send, b"a@c.example", b"b@c.example", b"c@D.example")
    send.remote.job()
    assert without_times(now(home, message)) == [
        "remote: 2 recipients in flight to c.example since T",
        "remote: 1 recipient in flight to d.example since T",
    ]


def test_a_message_behind_a_window_full_of_hanging_deliveries_says_so(home: Home) -> None:
    Path(home.control, "destinationinitial").write_text("1\n")
    Path(home.control, "destinationconcurrency").write_text("1\n")
    Path(home.control, "activelimit").write_text("4\n")  # So few that what the window has no room for goes aside.
    with ScriptedSend(home) as send:
        send.fence()
        wait_for_backlog(home)
        messages = [arrived(home, send, b"b@c.example") for _ in range(5)]
        assert without_times(now(home, messages[0])) == ["remote: 1 recipient in flight to c.example since T"]
        waiting = "remote: 1 recipient waiting at c.example: its window is 1, jobs in flight: 1"
        assert now(home, messages[1]) == now(home, messages[2]) == [waiting]
        aside = "remote: put aside until c.example has room, messages there: 2; its window is 1, jobs in flight: 1"
        assert now(home, messages[4])[0] == aside


def test_a_message_for_a_dead_destination_says_so(home: Home) -> None:
    Path(home.control, "destinationinitial").write_text("1\n")
    Path(home.control, "destinationcohorts").write_text("1\n")
    with ScriptedSend(home) as send:
        send.fence()
        wait_for_backlog(home)
        message = arrived(home, send, b"b@c.example")
        send.remote.report(send.remote.job(), b"Zno route", scope=b"h")
        send.wait_for("dest c.example dead: .*")
        other = arrived(home, send, b"x@c.example", b"y@c.example")
        assert without_times(now(home, message)) == without_times(now(home, other)) == [
            "remote: waits for its next attempt at T",
            "remote: c.example is dead, next probe at T; recipients deferred without an attempt: 2",
        ]


def test_a_message_that_its_rate_keeps_waiting_says_so(home: Home) -> None:
    Path(home.control, "destinationrate").write_text("c.example:1/3600\n")
    with ScriptedSend(home) as send:
        send.fence()
        wait_for_backlog(home)
        arrived(home, send, b"b@c.example")
        message = arrived(home, send, b"b@c.example")
        found = now(home, message)
        assert without_times(found)[0] == (
            "remote: 1 recipient waiting at c.example: its rate allows the next message at T"
        )


def test_a_message_that_the_active_set_has_no_place_for_says_so(home: Home) -> None:
    Path(home.control, "activelimit").write_text("1\n")
    with ScriptedSend(home) as send:
        send.fence()
        wait_for_backlog(home)
        arrived(home, send, b"b@c.example")
        message = arrived(home, send, b"b@d.example")
        assert without_times(now(home, message)) == [
            "remote: due since T, and waits for a place: 1 of 1 messages are active"
        ]


def test_a_message_that_finds_all_deliveries_taken_says_so(home: Home) -> None:
    Path(home.control, "concurrencyremote").write_text("1\n")
    with ScriptedSend(home) as send:
        send.fence()
        wait_for_backlog(home)
        arrived(home, send, b"b@c.example")
        message = arrived(home, send, b"b@d.example")
        assert without_times(now(home, message)) == [
            "remote: due since T, and waits for a place: 1 of 1 deliveries are in flight"
        ]


def test_a_message_that_the_delivery_daemon_has_no_room_for_says_so(home: Home) -> None:
    with ScriptedSend(home, ready=False) as send:
        send.remote.ready(1)
        send.fence()
        wait_for_backlog(home)
        arrived(home, send, b"b@c.example")
        send.remote.job()
        message = arrived(home, send, b"b@d.example")
        assert without_times(now(home, message)) == [
            "remote: due since T; the delivery daemon takes no more jobs, 1 are in flight"
        ]


def test_a_queue_send_that_is_about_to_end_is_not_called_dead(home: Home, send: ScriptedSend) -> None:
    message = arrived(home, send, b"b@c.example")
    send.remote.job()
    send.signal(signal.SIGTERM)
    send.wait_for(".*exitasap")
    assert now(home, message) == ["not known: queue-send does not listen: it starts or ends, or its log says why"]


def test_a_message_on_hold_says_so(home: Home, send: ScriptedSend) -> None:
    message = arrived(home, send, b"b@c.example")
    send.remote.job()
    order(home, "hold", long_id(home, message))
    assert without_times(now(home, message)) == [
        "on hold: nothing is tried", "remote: 1 recipient in flight to c.example since T",
    ]  # fmt: skip


def test_local_mail_and_what_is_not_classified_have_their_lines(home: Home, send: ScriptedSend) -> None:
    message = classified_message(home, local=[b"box@me.example.org"])
    send.todo.classified(message)
    send.local.job()
    assert without_times(now(home, message)) == ["local: 1 recipient in flight to box@me.example.org since T"]
    assert now(home, queue_message(home, [b"b@c.example"])) == ["waits for queue-todo to classify it"]
    assert now(home, classified_message(home, remote=[b"b@c.example"])) == ["queue-send does not know this message"]


def test_a_message_whose_bounce_waits_says_so(home: Home, send: ScriptedSend) -> None:
    message = arrived(home, send, b"b@c.example")
    job = send.remote.job()
    Path(home.queue, "pid").rmdir()
    send.remote.report(job, b"Dnobody")
    send.wait_for("warning: trouble injecting bounce message of msg .*")
    assert without_times(now(home, message)) == ["its bounce could not be injected; next attempt at T"]


def test_a_message_that_ends_says_so_until_it_is_gone(home: Home, send: ScriptedSend) -> None:
    message = arrived(home, send, b"b@c.example")
    send.remote.deliver(b"Kok")
    assert send.clean.asked() == message
    assert now(home, message) == ["finished; queue-clean is removing it"]


def test_a_queue_send_that_does_not_run_is_told_from_the_disk_alone(home: Home) -> None:
    message = classified_message(home, remote=[b"b@c.example"])
    assert now(home, message) == ["queue-send does not run; nothing is tried"]


def test_a_queue_send_that_is_stopped_does_not_hang_show(home: Home, send: ScriptedSend, tmp_path: Path) -> None:
    programs = patched_programs(tmp_path, queuectl="import queue_admin.messages.admin_client as a; a.QUERY_WAIT = 0.5")
    message = arrived(home, send, b"b@c.example")
    send.signal(signal.SIGSTOP)
    try:
        start = time.monotonic()
        [line] = now(home, message, programs)
        assert re.match(r"not known: unable to reach queue-send, pid \d+: no answer in 0 s; it is stopped", line)
        assert time.monotonic() - start < 20
    finally:
        send.signal(signal.SIGCONT)


def test_a_queue_send_that_has_the_lock_and_does_not_listen_is_not_called_dead(home: Home, send: ScriptedSend) -> None:
    message = arrived(home, send, b"b@c.example")
    Path(home.queue, "lock", "control").unlink()
    assert now(home, message) == ["not known: queue-send does not listen: it starts or ends, or its log says why"]


def test_who_may_not_use_the_socket_gets_a_note(home: Home, send: ScriptedSend) -> None:
    message = arrived(home, send, b"b@c.example")
    path = Path(home.queue, "lock", "control")
    path.unlink()
    path.write_bytes(b"")
    assert now(home, message)[0].startswith("not known: ")


def test_a_message_that_nobody_injects_any_more_has_no_such_line(home: Home, send: ScriptedSend) -> None:
    message = classified_message(home, remote=[b"b@c.example"], due=4_000_000_000)
    file(home, "info", message).unlink()
    file(home, "remote", message).unlink()
    shown = queuectl(home, "show", str(message))
    assert shown.returncode == 0 and "now: " not in shown.stdout
