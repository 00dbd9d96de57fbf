"""queue-send with scripted peers: when a message is tried again, and when it is given up."""

import time
from pathlib import Path

import pytest

from queue_base.home import Home
from queue_base.queue.layout import open_layout
from support.queues.queued import classified_message
from support.send.scripted_send import ScriptedSend


def recipients_file(home: Home, kind: str, message: int) -> Path:
    return Path(open_layout(home.queue).hashed(kind, message))


@pytest.mark.parametrize(("kind", "skip"), [("remote", 20), ("local", 10)])
def test_a_deferral_sets_the_next_attempt_on_the_disk_by_qmails_curve(home: Home, kind: str, skip: int) -> None:
    birth = int(time.time()) - 5000
    recipients = {"local": [b"b@me.example.org"]} if kind == "local" else {"remote": [b"b@c"]}
    message = classified_message(home, **recipients, birth=birth + 0.75)  # type: ignore[arg-type]
    with ScriptedSend(home) as send:
        peer = send.local if kind == "local" else send.remote
        before = int(time.time())
        peer.deliver(b"Zlater")
        send.wait_for("delivery 1: deferral: later")
        send.fence()
        after = int(time.time())
        due = recipients_file(home, kind, message).stat().st_mtime
        assert due in {birth + (int((now - birth) ** 0.5) + skip) ** 2 for now in range(before, after + 1)}
        assert peer.silent


def test_what_is_not_due_yet_waits_and_what_falls_due_is_started(home: Home) -> None:
    classified_message(home, remote=[b"later@c"], due=time.time() + 3600)
    soon = classified_message(home, remote=[b"soon@c"], due=time.time() + 1.0)
    with ScriptedSend(home) as send:
        send.fence()
        assert send.remote.silent
        assert send.remote.job().recipients == [b"soon@c"]
        assert send.wait_for(r"starting delivery 1: .*").endswith(f"msg {soon} to remote soon@c")
        assert send.remote.silent


def test_an_expired_message_is_tried_once_more_and_then_bounced(home: Home) -> None:
    message = classified_message(home, remote=[b"b@c"], birth=time.time() - 604800 - 10)
    with ScriptedSend(home) as send:
        send.remote.deliver(b"ZConnected but greeting failed. (#4.4.1)\n")
        send.wait_for(
            r"delivery 1: failure: Connected_but_greeting_failed._\(#4.4.1\)/"
            r"I'm_not_going_to_try_again;_this_message_has_been_in_the_queue_too_long./"
        )
        send.wait_for(f"end msg {message}")
        assert [line.split()[0] for line in send.found(r"(bounce|end) msg .*")] == ["bounce", "end"]


@pytest.mark.parametrize(
    ("sender", "age", "expired"), [(b"", 86410, True), (b"#@[]", 86410, True), (b"", 86000, False)]
)
def test_a_bounce_expires_after_its_own_lifetime(home: Home, sender: bytes, age: int, expired: bool) -> None:
    classified_message(home, remote=[b"b@c"], sender=sender, birth=time.time() - age)
    with ScriptedSend(home) as send:
        send.remote.deliver(b"Zlater\n")
        send.wait_for(r"delivery 1: failure: later/I'm_not.*" if expired else r"delivery 1: deferral: later/")


def test_a_next_attempt_before_1970_keeps_no_mail_from_being_tried(home: Home) -> None:
    classified_message(home, remote=[b"b@c"])
    odd = classified_message(home, remote=[b"odd@c"], due=-5.0)
    assert recipients_file(home, "remote", odd).stat().st_mtime == -5.0
    with ScriptedSend(home) as send:
        assert {*send.remote.job().recipients, *send.remote.job().recipients} == {b"b@c", b"odd@c"}
