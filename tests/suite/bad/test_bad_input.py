"""Bad messages, envelopes and queue files, with the suite running: each is refused or parked, and good mail goes on."""

import subprocess
from pathlib import Path

import pytest

from support.faults.trouble import GOOD_ENVELOPE, put_in_todo, run_enqueue
from support.local.good_mail import GoodMail
from support.processes.suite import Suite, program, wait_until
from support.queues.letters import letter_text

HERE = b"somebody@me.example.org"


def test_queue_inject_refuses_a_message_without_recipients_for_good(mail: GoodMail) -> None:
    with Suite(mail.home) as suite:
        done = subprocess.run(
            [*program("queue-inject"), "--home", mail.home.path],
            input=b"Subject: for nobody\n\nhello\n",
            capture_output=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 100
        assert done.stderr.startswith(b"queue-inject: fatal: unable to send the message: it has no recipients")
        assert mail.files() == []
        mail.check_alive(suite, "after-nobody")


def test_queue_enqueue_refuses_an_envelope_without_its_final_nul(mail: GoodMail) -> None:
    with Suite(mail.home) as suite:
        done = run_enqueue(mail.home, letter_text("cut"), GOOD_ENVELOPE[:-1])
        assert done.returncode == 54
        assert done.stderr.count(b"\n") == 1
        assert b"closing NUL" in done.stderr
        assert mail.files() == []
        mail.check_alive(suite, "after-cut")


def test_queue_enqueue_refuses_an_envelope_that_is_none(mail: GoodMail) -> None:
    with Suite(mail.home) as suite:
        done = run_enqueue(mail.home, letter_text("none"), b"Tsomebody@me.example.org\0\0")
        assert done.returncode == 91
        assert mail.files() == []
        mail.check_alive(suite, "after-none")


@pytest.mark.parametrize("place", ["sender", "recipient"])
def test_queue_enqueue_refuses_an_address_of_1004_bytes_for_good(mail: GoodMail, place: str) -> None:
    long = b"a" * (1004 - len(b"@me.example.org")) + b"@me.example.org"
    envelope = b"F%s\0T%s\0\0" % ((long, HERE) if place == "sender" else (HERE, long))
    with Suite(mail.home) as suite:
        done = run_enqueue(mail.home, letter_text("long"), envelope)
        assert done.returncode == 11
        assert len(done.stderr) < 300
        assert mail.files() == []
        mail.check_alive(suite, "after-long")


GARBAGE = {
    "no-nul": b"u0\0p1\0Fjoe@me.example.org\0Tsomebody@me.example.org",
    "unknown-record": b"u0\0p1\0Fjoe@me.example.org\0Xwhat\0",
    "no-sender": b"u0\0p1\0Tsomebody@me.example.org\0",
    "empty": b"",
    "newlines": b"u0\np1\nF\nT\n\0",
    "binary": bytes(range(256)) * 40,
}


@pytest.mark.parametrize("todo", GARBAGE.values(), ids=GARBAGE.keys())
def test_a_todo_file_of_garbage_is_parked_with_an_alert_and_others_go_on(
    mail: GoodMail, request: pytest.FixtureRequest, todo: bytes
) -> None:
    token = f"beside-{request.node.callspec.id}"
    with Suite(mail.home) as suite:
        number = put_in_todo(mail.home, letter_text("garbage"), todo)
        mail.send(token)
        suite.wait_for(rf"corrupt msg {number}: ")
        suite.wait_for(rf"alert: queue-todo: msg {number} cannot be read and is parked in corrupt: ")
        mail.check(token)
        suite.wait_for(r"end msg")
    # Nothing of it was touched, and nobody tried it.
    wait_until(lambda: len(mail.files()) == 4, why="the good message to be removed")
    reason = Path(mail.home.queue, "corrupt", str(number % 23), str(number)).read_text()
    assert reason.count("\n") == 1
    assert Path(mail.home.queue, "todo", str(number % 23), str(number)).read_bytes() == todo
    assert suite.count(rf"new msg {number}$") == 0
    with Suite(mail.home) as suite:
        mail.check_alive(suite, f"again-{token}")
        assert suite.count(rf"msg {number}") == 0
