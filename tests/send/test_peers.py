"""queue-send and peers that send nonsense, die, or are slow: it says so, and no mail is lost."""

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from queue_base.home import Home
from queue_base.queue.layout import open_layout
from queue_wire.pipes.framing import pack_netstring
from queue_wire.pipes.notice import ANNOUNCE, EXIT
from support.queues.queued import classified_message
from support.send.scripted_peers import Peer
from support.send.scripted_send import ScriptedSend


def recipients_of(home: Home, kind: str, message: int) -> bytes:
    return Path(open_layout(home.queue).hashed(kind, message)).read_bytes()


@pytest.mark.parametrize("nonsense", [b"nonsense", b"3:abcd,", b"-1:,", b"999999999:", b"99999999999"])
def test_reports_without_framing_are_a_lost_connection(home: Home, nonsense: bytes) -> None:
    classified_message(home, remote=[b"b@c"])
    with ScriptedSend(home) as send:
        send.remote.job()
        send.remote.send(nonsense)
        assert send.wait() == 111
        assert send.found(r"warning: internal error: queue-remote sent something impossible: .*")
        assert send.found(r"alert: oh no! lost queue-remote connection! dying\.\.\.")
        assert send.lines[-1] == "status: exiting"


@pytest.mark.parametrize(
    "payload", [b"", b"x", b"2", b"2\0z\0Kok", b"-1\0m\0Kok", b"ready\0many", b"ready", b"\xff\0m\0Kok"]
)
def test_a_report_that_means_nothing_is_a_warning_and_mail_goes_on(home: Home, payload: bytes) -> None:
    message = classified_message(home, remote=[b"b@c"])
    with ScriptedSend(home) as send:
        job = send.remote.job()
        send.remote.send(pack_netstring(payload))
        send.wait_for(r"warning: internal error: queue-remote sent something impossible: .*")
        send.remote.report(job, b"Kok")
        assert send.clean.removed() == message


@pytest.mark.parametrize("payload", [b"1", b"1\0", b"1\0z\0Kok", b"1\0m"])
def test_a_report_that_means_nothing_for_a_job_in_flight_is_a_deferral(home: Home, payload: bytes) -> None:
    message = classified_message(home, remote=[b"b@c"])
    with ScriptedSend(home) as send:
        send.remote.job()
        send.remote.send(pack_netstring(payload))
        send.wait_for("delivery 1: report mangled, will defer")
        send.wait_for("status: local 0/10 remote 0/.*", times=2)
        assert recipients_of(home, "remote", message) == b"Tb@c\0"


@pytest.mark.parametrize("number", [0, 2, 99, 10**17])
def test_a_report_for_an_unknown_job_is_out_of_range(home: Home, number: int) -> None:
    message = classified_message(home, remote=[b"b@c"])
    with ScriptedSend(home) as send:
        job = send.remote.job()
        send.remote.send(pack_netstring(b"%d\0m\0Dno" % number))
        send.wait_for("warning: internal error: delivery report out of range")
        send.local.send(pack_netstring(b"1\0m\0Dno"))
        send.wait_for("warning: internal error: delivery report out of range", times=2)
        assert recipients_of(home, "remote", message) == b"Tb@c\0"
        send.remote.report(job, b"Kok")
        send.remote.report(job, b"Dno")
        send.wait_for("warning: internal error: delivery report out of range", times=3)
        assert send.clean.removed() == message


@pytest.mark.parametrize(
    "record", [b"", b"Z", b"DQ5", b"D", b"DR", b"DR0", b"DRx", b"DR-5", b"Lone\nalert: two", b"\xff"]
)
def test_a_notice_that_means_nothing_is_a_warning_and_mail_goes_on(home: Home, record: bytes) -> None:
    with ScriptedSend(home) as send:
        send.todo.send(record + b"\0")
        send.wait_for(r"warning: internal error: queue-todo sent something impossible: .*")
        send.pickup.send(record + b"\0")
        send.wait_for(r"warning: internal error: queue-pickup sent something impossible: .*")
        assert not send.found("alert: two")
        message = classified_message(home, remote=[b"b@c"])
        send.todo.classified(message)
        send.remote.deliver(b"Kok")
        assert send.clean.removed() == message


def test_a_notice_without_an_end_is_a_warning_and_later_notices_count(home: Home) -> None:
    # Otherwise it might have been about an announced message.
    Path(home.control, "classifyafter").write_text("0\n")
    with ScriptedSend(home) as send:
        send.todo.send(b"L" + b"x" * 17000)
        send.wait_for(r"warning: internal error: queue-todo sent something impossible: notice: record over 16384 bytes")
        message = classified_message(home, remote=[b"b@c"])
        send.todo.send(b"\0")
        send.todo.classified(message)
        send.remote.deliver(b"Kok")
        assert send.clean.removed() == message


@pytest.mark.parametrize("record", [pack_netstring(b"A5"), b"Kx\0", b"M\0", b"12x:"])
def test_what_may_be_about_an_announced_message_and_cannot_be_read_ends_the_run(home: Home, record: bytes) -> None:
    Path(home.control, "classifyafter").write_text("5\n")
    with ScriptedSend(home) as send:
        commands = b""
        while ANNOUNCE not in commands:
            commands += Peer.receive(send.todo)
        send.todo.send(record)
        send.wait_for(r"alert: oh no! lost queue-todo connection! dying\.\.\.")


def test_answers_that_mean_nothing_or_that_nobody_asked_for_are_warnings(home: Home) -> None:
    with ScriptedSend(home) as send:
        send.clean.send(b"+")
        send.wait_for("warning: internal error: queue-clean sent something impossible")
        message = classified_message(home)
        send.todo.classified(message, "X")
        assert send.clean.asked() == message
        send.clean.send(b"?")
        send.wait_for("warning: internal error: queue-clean sent something impossible", times=2)
        send.clean.send(b"!")
        send.wait_for(f"warning: unable to clean up msg {message}; will try again later")


@pytest.mark.parametrize("letters", [b"K" + b"x" * 70000, b"Z\xff\0\n%", b"D" + b"\n\n\n" * 100])
def test_a_hostile_text_is_one_short_line_in_the_log(home: Home, letters: bytes) -> None:
    classified_message(home, remote=[b"b@c"])
    with ScriptedSend(home) as send:
        send.remote.deliver(letters)
        line = send.wait_for(r"delivery 1: (success|deferral|failure): .*")
        assert len(line) <= 1000 and line.isprintable()


PEERS: dict[str, Callable[[ScriptedSend], None]] = {
    "queue-local": lambda send: send.local.die(),
    "queue-remote": lambda send: send.remote.die(),
    "queue-clean": lambda send: send.clean.die(),
    "queue-todo": lambda send: send.todo.die(),
    "queue-pickup": lambda send: send.pickup.die(),
    "queue-intake": lambda send: send.intake.die(),
}


@pytest.mark.parametrize("peer", PEERS)
def test_the_death_of_any_peer_is_an_alert_and_the_end(home: Home, peer: str) -> None:
    with ScriptedSend(home) as send:
        send.fence()
        PEERS[peer](send)
        assert send.wait() == 111
        assert send.found(r"alert: .*") == [f"alert: oh no! lost {peer} connection! dying..."]
        assert send.lines[-2:] == ["status: local 0/10 remote 0/250 exitasap", "status: exiting"]


def test_what_a_daemon_reported_before_its_death_counts_also_if_a_write_to_it_fails_first(home: Home) -> None:
    done = classified_message(home, remote=[b"done@c"])
    with ScriptedSend(home) as send:
        job = send.remote.job()
        send.remote.take_no_more()
        lost = classified_message(home, remote=[b"lost@d"])
        send.todo.classified(lost)
        send.wait_for(r"alert: oh no! lost queue-remote connection! dying\.\.\.")
        send.remote.report(job, b"Kok")
        send.wait_for("delivery 1: success: ok")
        send.remote.die()
        assert send.clean.asked() == done
        assert send.wait() == 111
        assert len(send.found("alert: oh no! lost .*")) == 1
        assert recipients_of(home, "remote", lost) == b"Tlost@d\0"


def test_after_a_death_the_deliveries_of_the_other_channel_are_waited_for(home: Home) -> None:
    lost = classified_message(home, remote=[b"b@c"])
    kept = classified_message(home, local=[b"x@me.example.org", b"y@me.example.org"])
    later = classified_message(home, remote=[b"later@c"], due=4_000_000_000)
    with ScriptedSend(home) as send:
        send.remote.job()
        jobs = [send.local.job(), send.local.job()]
        send.remote.die()
        send.wait_for(r"alert: oh no! lost queue-remote connection! dying\.\.\.")
        send.local.report(jobs[0], b"Kok")
        send.wait_for(r"delivery \d: success: ok")
        send.fence()
        assert not send.found("status: exiting")
        send.local.report(jobs[1], b"Kok")
        assert send.clean.asked() == kept
        assert send.wait() == 111
        assert send.lines[-1] == "status: exiting"
        assert recipients_of(home, "remote", lost) == b"Tb@c\0"
        assert recipients_of(home, "remote", later) == b"Tlater@c\0"


def test_a_daemon_that_does_not_read_its_jobs_does_not_stop_the_other_channel(home: Home) -> None:
    Path(home.control, "concurrencyremote").write_text("5000\n")
    Path(home.control, "destinationrecipients").write_text("1\n")
    Path(home.control, "destinationinitial").write_text("400\n")
    Path(home.control, "destinationconcurrency").write_text("400\n")
    classified_message(home, remote=[b"%d@%s" % (number, b"x" * 900) for number in range(400)])
    with ScriptedSend(home, ready=False) as send:
        send.remote.ready(5000)
        send.local.ready()
        send.wait_for(r"status: local 0/10 remote 400/5000")
        local = classified_message(home, local=[b"x@me.example.org"])
        send.todo.classified(local, "L")
        send.local.deliver(b"Kok")
        assert send.clean.removed() == local
        assert [send.remote.job().recipients[0][:3] for _ in range(400)][::399] == [b"0@x", b"399"]


def test_what_queue_todo_classified_before_the_end_is_in_the_log(home: Home) -> None:
    with ScriptedSend(home) as send:
        send.fence()
        send.signal(signal.SIGTERM)
        assert send.todo.receive() == EXIT
        for number in range(3000):
            send.todo.log(b"new msg %d" % number)
        send.todo.die()
        assert send.wait() == 0
        assert send.found("new msg .*") == [f"new msg {number}" for number in range(3000)]
        assert send.lines[-1] == "status: exiting"
