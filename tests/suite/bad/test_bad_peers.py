"""A second set on the same queue is refused; a daemon that talks nonsense does no harm."""

import signal
import subprocess
from pathlib import Path

import pytest

from queue_wire.pipes.framing import pack_netstring
from support.faults.trouble import nonsense_program
from support.local.good_mail import GoodMail
from support.processes.suite import Suite, program


def test_a_second_set_on_the_same_queue_is_refused_with_a_clear_line_and_the_first_goes_on(mail: GoodMail) -> None:
    with Suite(mail.home) as suite:
        second = subprocess.run(
            [*program("queue-start"), "--home", mail.home.path], capture_output=True, check=False, timeout=30
        )
        assert second.returncode == 111
        lock = f"{mail.home.queue}/lock/sendmutex"
        assert second.stderr.decode() == (
            f"queue-start: alert: cannot start: unable to lock {lock}: queue-send is already running on this queue\n"
        )
        mail.check_alive(suite, "first")


def test_queue_send_by_itself_says_who_starts_it(mail: GoodMail) -> None:
    with Suite(mail.home) as suite:
        alone = subprocess.run(
            [*program("queue-send"), "--home", mail.home.path], capture_output=True, check=False, timeout=30
        )
        assert alone.returncode == 100
        assert b"queue-start starts queue-send" in alone.stderr
        mail.check_alive(suite, "not-alone")


# What the daemon says first, and what the log says about it; after that the real one goes on.
HARMLESS = {
    "a report for an unknown job": (
        "queue-remote", pack_netstring(b"999\0m\0Kfine\n"), "warning: internal error: delivery report out of range",
    ),
    "a report with words for a number": (
        "queue-remote", pack_netstring(b"one\0m\0Kfine\n"),
        "warning: internal error: queue-remote sent something impossible",
    ),
    "a report of an unknown scope": (
        "queue-local", pack_netstring(b"1\0x\0Kfine\n"),
        "warning: internal error: queue-local sent something impossible",
    ),
    "an empty report": (
        "queue-local", pack_netstring(b""), "warning: internal error: queue-local sent something impossible",
    ),
    "an answer that nobody asked for": (
        "queue-clean", b"+", "warning: internal error: queue-clean sent something impossible",
    ),
    "an unknown notice": (
        "queue-todo", b"Zwhat\0", "warning: internal error: queue-todo sent something impossible",
    ),
    "a notice about a message that is not there": (
        "queue-todo", b"DR4711\0L4711 was here\0", "4711 was here",
    ),
    "a log line of two lines": (
        "queue-pickup", b"Lone\nalert: two\0", "warning: internal error: queue-pickup sent something impossible",
    ),
}


@pytest.mark.parametrize(("name", "said", "logged"), HARMLESS.values(), ids=HARMLESS.keys())
def test_a_daemon_that_talks_nonsense_is_logged_and_mail_goes_on(
    mail: GoodMail, request: pytest.FixtureRequest, tmp_path: Path, name: str, said: bytes, logged: str
) -> None:
    token = request.node.callspec.id.replace(" ", "-")
    with Suite(mail.home, programs=nonsense_program(tmp_path, name, said)) as suite:
        suite.wait_for(logged)
        mail.check_alive(suite, token)
        assert suite.count("^alert: two") == 0
        assert suite.count("Traceback") == 0


def test_a_report_with_too_many_verdicts_defers_its_delivery(mail: GoodMail, tmp_path: Path) -> None:
    report = pack_netstring(b"?\0m\0Kone\n\0Ktwo\n\0Kthree\n")
    programs = nonsense_program(tmp_path, "queue-remote", report, answer=True)
    with Suite(mail.home, programs=programs) as suite:
        mail.send("mangled")
        # The number is 1 or 2: whichever of queue-local and queue-remote is ready first is given the first delivery.
        suite.wait_for(r"^delivery \d: report mangled, will defer")
        suite.signal(signal.SIGALRM)
        mail.check("mangled")


# What has no framing cannot be read on from; the set is started anew, and nothing is lost.
FATAL = {
    "no netstring": ("queue-remote", b"hello, this is queue-remote\n"),
    "an endless netstring": ("queue-local", b"99999999999:"),
    "a netstring without its comma": ("queue-remote", b"3:abc;"),
}


@pytest.mark.parametrize(("name", "said"), FATAL.values(), ids=FATAL.keys())
def test_a_daemon_whose_reports_have_no_framing_ends_the_set_and_the_next_one_delivers(
    mail: GoodMail, request: pytest.FixtureRequest, tmp_path: Path, name: str, said: bytes
) -> None:
    token = request.node.callspec.id.replace(" ", "-")
    mail.send(token)
    suite = Suite(mail.home, programs=nonsense_program(tmp_path, name, said))
    assert suite.process.wait(30) == 111
    suite.stop()
    assert suite.count(f"warning: internal error: {name} sent something impossible") == 1
    assert suite.count(rf"alert: oh no! lost {name} connection! dying\.\.\.$") == 1
    assert suite.lines[-1] == "status: exiting" or suite.count("status: exiting") == 1
    with Suite(mail.home):
        mail.check(token)
