"""queuectl flush, requeue and bounce while queue-send runs, and what selectors choose."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from queue_base.home import Home
from support.queues.queued import classified_message
from support.send.control import file, long_id, order, queuectl
from support.send.scripted_send import ScriptedSend


def waiting(home: Home, *recipients: bytes, sender: bytes = b"a@example.org", age: float = 100) -> int:
    """Put in a message that is due in an hour."""
    now = time.time()
    return classified_message(home, remote=list(recipients), sender=sender, birth=now - age, due=now + 3600)


@pytest.fixture
def mails(home: Home) -> dict[str, int]:
    """Three messages that wait."""
    return {
        "one": waiting(home, b"b@one.example"),
        "two": waiting(home, b"b@two.example", sender=b"c@example.org"),
        "old": waiting(home, b"d@two.example", sender=b"", age=80_000),
    }


@pytest.fixture
def send(home: Home, mails: dict[str, int]) -> Iterator[ScriptedSend]:
    with ScriptedSend(home) as running:
        running.fence()
        yield running


def test_flush_of_a_domain_wakes_only_that_domain(home: Home, send: ScriptedSend) -> None:
    assert order(home, "flush", "--domain", "ONE.example") == "flushed 1 message"
    assert send.remote.job().recipients == [b"b@one.example"]
    send.fence()
    assert send.remote.silent


@pytest.mark.parametrize("command", ["flush", "hold"])
def test_a_message_that_is_woken_several_times_before_its_turn_is_tried_once(
    home: Home, send: ScriptedSend, mails: dict[str, int], command: str
) -> None:
    send.control("concurrencyremote", "1\n")
    send.signal(signal.SIGHUP)
    send.wait_for("status: local 0/10 remote 0/1")
    order(home, "flush", long_id(home, mails["one"]))
    first = send.remote.job()
    for _ in range(3):
        order(home, command, long_id(home, mails["two"]))
        if command == "hold":
            order(home, "release", long_id(home, mails["two"]))
    send.remote.report(first, b"Zlater")
    second = send.remote.job()
    assert second.recipients == [b"b@two.example"]
    send.remote.report(second, b"Zlater")
    send.wait_for(f"delivery {second.number}: deferral: later")
    send.fence()
    assert send.remote.silent


def test_flush_probes_a_dead_destination(home: Home, send: ScriptedSend) -> None:
    send.control("destinationcohorts", "1\n")
    send.control("destinationinitial", "1\n")
    for _ in range(10):
        if send.found("dest one.example dead: .*"):
            break
        order(home, "flush", "--domain", "one.example")
        job = send.remote.job()
        send.remote.report(job, b"Zno route", scope=b"h")
        send.wait_for(f"delivery {job.number}: deferral: no_route")
        send.fence()
    assert send.found("dest one.example dead: .*")
    assert order(home, "flush", "--domain", "one.example") == "flushed 1 message"
    send.remote.deliver(b"Kok")
    send.wait_for("dest one.example alive: .*")


@pytest.mark.parametrize(
    ("selectors", "chosen"),
    [
        (["--all"], ["one", "two", "old"]),
        (["--sender", "C@example.org"], ["two"]),
        (["--sender", ""], ["old"]),
        (["--recipient", "b@two.example"], ["two"]),
        (["--domain", "two.example"], ["two", "old"]),
        (["--older-than", "1h"], ["old"]),
        (["--domain", "two.example", "--sender", "c@example.org"], ["two"]),
        (["--domain", "three.example"], []),
    ],
)
def test_selectors_choose_what_fits_all_of_them(
    home: Home, mails: dict[str, int], selectors: list[str], chosen: list[str]
) -> None:
    done = queuectl(home, "hold", "--dry-run", *selectors)
    assert sorted(done.stdout.split()) == sorted(long_id(home, mails[name]) for name in chosen)
    assert done.stderr.startswith(f"would have held {len(chosen)} message")
    assert done.returncode == (0 if chosen else 1)
    assert not list(Path(home.queue, "hold").rglob("*/*"))


def test_a_requeued_message_is_born_now_and_tried_at_once(
    home: Home, send: ScriptedSend, mails: dict[str, int]
) -> None:
    before = time.time()
    old = long_id(home, mails["old"])
    news, last = order(home, "requeue", old).split("\n")
    assert last == "requeued 1 message"
    assert news == f"{old}: is {long_id(home, mails['old'])} now"
    assert file(home, "info", mails["old"]).stat().st_mtime >= before - 0.001
    send.remote.deliver(b"Zlater")
    send.wait_for("delivery 1: deferral: later")
    send.fence()
    assert send.remote.silent
    assert queuectl(home, "requeue", old).stderr == f"{old}: no such message\n"


def test_a_bounced_message_goes_back_to_its_sender_and_ends(
    home: Home, send: ScriptedSend, mails: dict[str, int]
) -> None:
    message = mails["one"]
    assert order(home, "bounce", long_id(home, message)) == "bounced 1 message"
    send.wait_for(
        "delivery 1: failure: The_administrator_has_asked_for_this_message_to_be_returned._\\(#5.0.0\\)/"
    )
    qp = send.wait_for(f"bounce msg {message} qp .*").split()[-1]
    send.wait_for(f"end msg {message}")
    assert send.clean.asked() == message
    envelopes = [path.read_bytes() for path in Path(home.queue, "todo").rglob("*/*")]
    assert any(b"\0p%d\0F\0Ta@example.org\0" % int(qp) in envelope for envelope in envelopes)
    assert send.remote.silent


def test_a_bounce_now_waits_for_what_is_in_flight(home: Home, send: ScriptedSend) -> None:
    message = classified_message(home, local=[b"c@me.example.org"], remote=[b"b@c.example"])
    send.todo.classified(message, "B")
    job = send.remote.job()
    send.local.deliver(b"Zlater")
    send.wait_for("delivery .: deferral: later")
    assert order(home, "bounce", long_id(home, message)) == "bounced 1 message"
    send.fence()
    assert not send.found("bounce msg .*")
    send.remote.report(job, b"Kok")
    send.wait_for("delivery 3: failure: The_administrator_.*")
    assert send.found(f"starting delivery 3: msg {message} to local c@me.example.org")
    send.wait_for(f"end msg {message}")


def test_a_bounce_that_was_answered_is_made_after_a_crash(home: Home) -> None:
    message = classified_message(home, remote=[b"b@c.example"])
    with ScriptedSend(home) as send:
        send.remote.job()
        order(home, "bounce", long_id(home, message))
        send.kill()
    with ScriptedSend(home) as send:
        send.wait_for(f"bounce msg {message} qp .*")
        send.wait_for(f"end msg {message}")
        assert send.remote.silent


