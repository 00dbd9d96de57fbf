"""Servers that mean no good, or cannot help it: each costs a bounded time, and the report says what it did."""

import asyncio
import time
from collections.abc import Callable

import pytest

from queue_remote.message.file import open_message
from queue_remote.smtp.connection import RATE_MIN, Sending
from queue_remote.smtp.timer import ProgressTimer
from queue_wire.pipes.report import HOST_SCOPE, MESSAGE_SCOPE, Report
from support.processes.remote_daemon import RemoteDaemon, RemoteHome
from support.processes.suite import wait_until
from support.servers.smtp.raw_server import Peer, RawServer

TEXT = b"Subject: hello\n\nA message.\n"


pytestmark = pytest.mark.home(timeoutremote="60", connectionidle="0")


def deliver(home: RemoteHome, script: Callable[[Peer], None], recipients: int = 1) -> Report:
    with RawServer(script) as server:
        home.route_all_to(server.port)
        with RemoteDaemon(home) as daemon:
            return daemon.deliver(home.message(TEXT), *[b"to%d@b.example" % number for number in range(recipients)])


@pytest.mark.home(timeoutremote="1")
def test_a_greeting_of_many_lines_that_come_slowly_costs_timeoutremote(home: RemoteHome) -> None:
    def script(peer: Peer) -> None:
        while True:
            peer.drip(b"220-not yet\r\n", 0.1)

    report = deliver(home, script)
    assert report.scope == HOST_SCOPE
    assert b"At greeting: no answer in time" in report.verdicts[0][1]


@pytest.mark.home(timeoutremote="3")
def test_a_server_that_takes_its_time_for_each_recipient_does_not_get_it_for_all_of_them(home: RemoteHome) -> None:
    def script(peer: Peer) -> None:
        peer.greet()
        while True:
            peer.hear()
            peer.drip(b"250 ok\r\n", 0.4)

    begun = time.monotonic()
    report = deliver(home, script, recipients=100)
    # 40 seconds, if each answer had its time.
    assert time.monotonic() - begun < 20
    assert report.scope == MESSAGE_SCOPE
    assert [letter for letter, _ in report.verdicts] == [b"Z"] * 100
    assert b"At RCPT: no answer in time" in report.verdicts[0][1]


@pytest.mark.home(timeoutremote="4", timeoutconnect="1")
def test_a_job_has_timeoutconnect_and_timeoutremote_in_all_until_its_message_is_wanted(home: RemoteHome) -> None:
    def script(peer: Peer) -> None:
        peer.drip(b"220 hi\r\n", 1.5)
        peer.hear()
        peer.drip(b"250 hi\r\n", 1.5)
        while True:
            peer.hear()
            peer.drip(b"250 ok\r\n", 0.3)

    begun = time.monotonic()
    report = deliver(home, script, recipients=100)
    # 3 seconds for the opening and 12 for the envelope, if each had only its own.
    assert 4 < time.monotonic() - begun < 12
    assert [letter for letter, _ in report.verdicts] == [b"Z"] * 100
    assert b"At RCPT: no answer in time" in report.verdicts[0][1]


@pytest.mark.home(timeoutremote="1")
def test_an_opening_in_many_slow_steps_has_timeoutremote_in_all(home: RemoteHome) -> None:
    def script(peer: Peer) -> None:
        peer.drip(b"220 hi\r\n", 0.6)
        peer.hear()
        peer.drip(b"500 what?\r\n", 0.6)
        peer.hear()
        peer.drip(b"250 hi\r\n", 0.6)
        peer.wait_for_end()

    report = deliver(home, script)
    assert report.scope == HOST_SCOPE
    assert b"no answer in time" in report.verdicts[0][1]


def test_a_flood_of_replies_ends_the_delivery(home: RemoteHome) -> None:
    def script(peer: Peer) -> None:
        peer.greet()
        peer.hear()
        while True:
            peer.say(*[b"250-" + b"x" * 500] * 100)

    report = deliver(home, script)
    assert report.scope == MESSAGE_SCOPE
    assert b"does not speak SMTP as I know it" in report.verdicts[0][1]


@pytest.mark.parametrize("stage", ["MAIL", "RCPT", "DATA", "end of message"])
def test_a_reset_is_named_with_its_stage(home: RemoteHome, stage: str) -> None:
    def script(peer: Peer) -> None:
        peer.greet()
        for name in ("MAIL", "RCPT", "DATA"):
            peer.hear()
            if name == stage:
                peer.reset()
                return
            peer.say(b"354 go" if name == "DATA" else b"250 ok")
        peer.hear_message()
        peer.reset()

    [(letter, text)] = deliver(home, script).verdicts
    assert letter == b"Z"
    assert text.endswith(b"At %s: connection reset by peer\n" % stage.encode())
    assert (b"Possible duplicate!" in text) is (stage == "end of message")


def test_a_server_that_answers_before_it_is_asked_gets_nothing(home: RemoteHome) -> None:
    def script(peer: Peer) -> None:
        peer.say(b"220 hi", b"250 hi", b"250 ok", b"250 ok", b"354 go", b"250 taken")
        peer.wait_for_end()

    [(letter, text)] = deliver(home, script).verdicts
    assert letter == b"Z"
    assert b"spoke out of turn" in text


def test_no_report_waits_for_the_answer_to_quit_and_the_connection_does_not_for_long(home: RemoteHome) -> None:
    home.control("timeoutremote", "600")
    times: list[float] = []

    def script(peer: Peer) -> None:
        peer.greet()
        peer.take_message()
        assert peer.hear() == b"QUIT"
        times.append(time.monotonic())
        peer.wait_for_end()
        times.append(time.monotonic())

    with RawServer(script) as server:
        home.route_all_to(server.port)
        with RemoteDaemon(home) as daemon:
            assert daemon.deliver(home.message(TEXT), b"to@b.example").verdicts[0][0] == b"K"
            wait_until(lambda: len(times) == 2, why="the end of the connection")
    assert times[1] - times[0] < 15


def test_421_to_mail_makes_way_for_the_next_address(home: RemoteHome) -> None:
    def busy(peer: Peer) -> None:
        peer.greet()
        peer.hear()
        peer.say(b"421 busy")

    def good(peer: Peer) -> None:
        peer.greet()
        peer.take_message()

    with RawServer(good, "127.0.0.3") as second, RawServer(busy, "127.0.0.2", second.port) as first:
        home.control("smtproutes", f":127.0.0.2:{first.port},127.0.0.3:{second.port}")
        with RemoteDaemon(home) as daemon:
            report = daemon.deliver(home.message(TEXT), b"to@b.example")
    assert report.verdicts == [(b"K", b"127.0.0.3 accepted message.\nRemote host said: 250 done\n")]
    assert first.connections == 1


def test_a_message_has_more_time_the_more_of_it_has_got_off(home: RemoteHome) -> None:
    message = open_message(str(home.path / "queue" / home.message(b"x" * 999 + b"\n").decode()))
    sending = Sending(message)
    before = sending.limit(10)
    wire = sending.next()
    message.close()
    assert sending.ended
    assert sending.limit(10) == pytest.approx(before + len(wire) / RATE_MIN)


def test_a_deadline_moves_with_progress_up_to_its_limit() -> None:
    async def watch() -> float:
        rung = asyncio.Event()
        clock = ProgressTimer(asyncio.get_running_loop(), 0.2, rung.set)
        begun = time.monotonic()
        clock.allow(0.5)
        while not rung.is_set():
            clock.progress()
            await asyncio.sleep(0.01)
        return time.monotonic() - begun

    assert 0.45 < asyncio.run(watch()) < 5


def silent(peer: Peer) -> None:
    peer.wait_for_end()


@pytest.mark.home(timeoutremote="1")
def test_many_addresses_that_are_all_silent_do_not_have_their_time_each(home: RemoteHome) -> None:
    home.control("timeoutconnect", "1")
    with RawServer(silent, "0.0.0.0") as server:
        relays = ",".join(f"127.0.0.{number}:{server.port}" for number in range(2, 12))
        home.control("smtproutes", f":{relays}")
        with RemoteDaemon(home) as daemon:
            report = daemon.deliver(home.message(TEXT), b"to@b.example")
    assert report.scope == HOST_SCOPE
    assert 2 <= server.connections <= 4
