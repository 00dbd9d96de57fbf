"""The watchdog in a real queue-send whose peers the test plays; the environment makes its rounds short."""

import os
import time
from pathlib import Path

import pytest

from queue_base.home import Home
from support.queues.home import make_home
from support.queues.queued import classified_message
from support.send.control import long_id, order, wait_for_backlog
from support.send.scripted_send import ScriptedSend

TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("QUEUE_WATCHDOG_ROUND", "0.2")
    home = make_home(tmp_path / "home", split=3)
    Path(home.control, "retryschedule").write_text("1s\n")
    return home


def test_a_report_that_never_comes_is_an_alert_with_its_cause(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUEUE_WATCHDOG_FLIGHT", "1")
    message = classified_message(home, remote=[b"b@c.example"])
    with ScriptedSend(home) as send:
        send.remote.job()
        found = send.wait_for(f"alert: msg {message} .*").split(": ", 2)
        name = long_id(home, message)
        assert found[1].startswith(f"msg {message} ({name}) has been due since 20")
        assert found[2].startswith("1 recipient in flight to c.example since 20")
        shown = order(home, "show", name)
        assert f"now: remote: {found[2]}" in shown


def test_mail_that_finds_no_place_is_an_alert_once(home: Home) -> None:
    Path(home.control, "activelimit").write_text("1\n")
    first = classified_message(home, remote=[b"b@c.example"])
    with ScriptedSend(home) as send:
        assert send.remote.job().path.endswith(b"/%d" % first)
        wait_for_backlog(home)
        messages = [classified_message(home, remote=[b"b@d.example"]) for _ in range(8)]
        for message in messages:
            send.todo.classified(message)
        for count in range(1, 6):
            send.wait_for(rf"alert: msg \d+ \(.*\) has been due since {TIME}: due since {TIME}, and waits .*", count)
        send.wait_for("alert: up to . more messages are overdue; .*")
        time.sleep(1.0)  # Five rounds, in which nothing may be said again.
        send.fence()
        named = [line.split()[2] for line in send.found("alert: msg .*")]
        assert len(named) == len(set(named)) == 5 and {int(name) for name in named} <= set(messages)
        assert len(send.found("alert: up to .*")) == 1


def test_a_message_that_waits_for_its_rate_fails_when_its_lifetime_is_over(home: Home) -> None:
    Path(home.control, "destinationrate").write_text("c.example:1/86400\n")
    Path(home.control, "queuelifetime").write_text("60\n")
    with ScriptedSend(home) as send:
        send.fence()
        wait_for_backlog(home)
        first = classified_message(home, remote=[b"a@c.example"])
        send.todo.classified(first)
        send.remote.deliver(b"Kok")
        second = classified_message(home, remote=[b"b@c.example"], birth=time.time() - 57)
        send.todo.classified(second)
        send.wait_for("delivery 2: failure: The_destination_could_not_be_tried.*")
        send.wait_for(f"bounce msg {second} qp .*")
        send.wait_for(f"end msg {second}")


def test_the_next_attempt_on_the_disk_is_never_long_after_the_lifetime(home: Home) -> None:
    Path(home.control, "retryschedule").write_text("1h\n")
    Path(home.control, "queuelifetime").write_text("1000\n")
    birth = int(time.time()) - 500
    message = classified_message(home, remote=[b"b@c.example"], birth=birth)
    with ScriptedSend(home) as send:
        send.remote.deliver(b"Zlater")
        send.wait_for("delivery 1: deferral: later")
        send.fence()
    assert os.stat(f"{home.queue}/remote/{message % 3}/{message}").st_mtime == birth + 1001
