"""queuectl config: how a change comes into force; transcripts/config_check.txt has what it names as a mistake."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from queue_admin.main import main
from queue_admin.metrics.smtpd_client import ask_processes
from queue_admin.settings.control_faults import _first_denied
from queue_base.accounts import Owner
from queue_base.home import Home
from queue_wire.control.registry import FILES
from support.processes.forked import run_program
from support.processes.suite import Suite, program, wait_until
from support.smtpd.smtpd_daemon import SmtpdDaemon
from support.tools import need_root

pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed"),
    pytest.mark.home(locals="me.example.org", classifyafter=None),
]


@pytest.fixture(autouse=True)
def programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs are looked for beside the one that runs, which is pytest here."""
    monkeypatch.setattr(sys, "argv", program("queuectl")[-1:])


@pytest.fixture
def suite(home: Home) -> Iterator[Suite]:
    with Suite(home) as running:
        running.wait_for(r"status: local 0/\d+ remote 0/\d+")
        yield running


def queuectl(home: Home, *words: str, code: int = 0, given: bytes = b"") -> tuple[str, str]:
    """Run the real queuectl; return what it prints on stdout and stderr."""
    done = run_program("queuectl", "--home", home.path, *words, given=given)
    assert done.returncode == code, done
    return done.stdout.decode(), done.stderr.decode()


def listed(home: Home, *words: str) -> dict[str, dict[str, object]]:
    lines = queuectl(home, "config", *words, "--format", "json")[0].splitlines()
    return {found["name"]: found for found in map(json.loads, lines)}


def run(home: Home, *words: str) -> int:
    return main(["queuectl", "--home", home.path, "config", *words])


def test_every_control_file_is_shown_with_default_range_and_source(home: Home) -> None:
    Path(home.control, "timeoutremote").write_text("600\n")
    out, err = queuectl(home, "config")
    assert [line.split()[0] for line in out.splitlines()] == ["name", *(file.name for file in FILES)]
    (line,) = [line for line in out.splitlines() if line.startswith("timeoutremote")]
    assert line.split() == [
        "timeoutremote",
        "600",
        "1200",
        "s",
        "1",
        "to",
        "86400",
        "file",
        "time",
        "for",
        "each",
        "reply",
    ]
    assert "queue-send does not run; these values are in force at its start" in err


def test_what_keeps_another_account_from_a_program_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    program = tmp_path / "check"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    other = Owner(os.getuid() + 12345, os.getgid() + 12345)
    denied = _first_denied(str(program), other)
    assert denied in map(str, program.parents) and not os.stat(denied).st_mode & 0o001
    assert _first_denied("/bin/true", other) == ""
    assert _first_denied(str(program), Owner(os.getuid(), os.getgid())) == ""


def test_a_set_is_in_force_when_it_ends_and_the_log_says_what_changed(home: Home, suite: Suite) -> None:
    assert queuectl(home, "config", "set", "concurrencyremote", "40")[0] == (
        "control/concurrencyremote changed: in force\n"
    )
    suite.wait_for(r"^config concurrencyremote 40, was default$")
    assert listed(home, "-n").keys() == {"me", "locals", "concurrencyremote"}
    # queue-todo has these, and is waited for.
    assert queuectl(home, "config", "set", "locals", "me.example.org", "b.example")[0].endswith(": in force\n")
    suite.wait_for(r"^config locals 2 lines, was 1 line$")
    # By hand: the file says one thing, queue-send has another in force.
    Path(home.control, "concurrencyremote").write_text("50\n")
    found = listed(home)["concurrencyremote"]
    assert (found["value"], found["pending"], found["source"]) == ("40", "50", "running")
    # Another file is wrong: all old values stay, and the command says so.
    Path(home.control, "activelimit").write_text("0\n")
    _, err = queuectl(home, "config", "set", "concurrencylocal", "4", code=111)
    assert "control/concurrencylocal is changed, but not in force: queue-send: unable to parse" in err
    assert "activelimit line 1: not a number from 1 to 1000000: '0'" in err
    Path(home.control, "activelimit").unlink()
    queuectl(home, "config", "set", "--unset", "concurrencyremote")
    suite.wait_for(r"^config concurrencyremote default, was 40$")
    suite.wait_for(r"status: local 0/4 remote 0/250$")


def test_what_queue_remote_reads_is_in_force_when_the_set_ends_or_the_command_says_why_not(
    home: Home, suite: Suite
) -> None:
    for name, value in ("timeoutremote", "60"), ("smtproutes", ":relay.invalid"), ("tlspolicy", "a.example:none"):
        assert queuectl(home, "config", "set", name, value)[0] == f"control/{name} changed: in force\n"
        suite.wait_for(f"^queue-remote: config {name} .*, was default$")
    # Another file is wrong: queue-remote keeps its old values.
    policies = Path(home.control, "tlspolicy")
    policies.write_text("a.example:perhaps\n")
    _, err = queuectl(home, "config", "set", "timeoutremote", "90", code=111)
    assert "control/timeoutremote is changed, but not in force: queue-remote: unable to parse" in err
    policies.unlink()
    assert queuectl(home, "config", "set", "timeoutremote", "91")[0].endswith(": in force\n")
    # A change by hand, which queue-remote takes with its next job: what it said before is not told as in force.
    Path(home.control, "timeoutremote").write_text("92\n")
    assert listed(home)["timeoutremote"]["value"] == "92"


def test_a_secret_that_the_owner_of_the_queue_may_not_read_is_named(home: Home) -> None:
    need_root()
    os.chown(home.queue, 54321, 54321)
    secrets = Path(home.control, "srssecrets")
    secrets.write_text("x\n")
    secrets.chmod(0o600)
    _, error = queuectl(home, "config", "set", "srs", "srs.example.org", code=100)
    assert f"unable to read {secrets}: its owner or its group should be that of queue/" in error
    os.chown(secrets, -1, 54321)
    os.chown(f"{home.queue}/mess", -1, 54321)
    secrets.chmod(0o640)
    queuectl(home, "config", "set", "srs", "srs.example.org")


def test_what_queue_local_reads_is_in_force_when_the_set_ends_or_the_command_says_why_not(
    home: Home, suite: Suite
) -> None:
    for name, value in ("localtimeout", "60"), ("defaultdelivery", "./Mailbox"), ("locallimits", "files 500"):
        assert queuectl(home, "config", "set", name, value)[0] == f"control/{name} changed: in force\n"
    # Another file is wrong: queue-local keeps its old values.
    limits = Path(home.control, "locallimits")
    limits.write_text("files many\n")
    _, err = queuectl(home, "config", "set", "localtimeout", "90", code=111)
    assert "control/localtimeout is changed, but not in force: queue-local: unable to parse" in err
    limits.unlink()
    assert queuectl(home, "config", "set", "localtimeout", "91")[0].endswith(": in force\n")


def test_the_first_line_of_ondemand_is_not_in_force_before_queue_ondemand_runs(home: Home, suite: Suite) -> None:
    assert queuectl(home, "config", "set", "ondemand", "shop.example:etrn")[0] == (
        "control/ondemand changed: not in force yet; start the suite again, because queue-ondemand does not run\n"
    )
    assert queuectl(home, "config", "check", code=1)[0] == (
        "control/ondemand: queue-ondemand does not run, so nothing is stored; start the suite again\n"
    )
    suite.stop()
    assert queuectl(home, "config", "check") == ("", "")


def test_what_is_not_confirmed_is_not_told_as_in_force(home: Home, suite: Suite) -> None:
    for name, value, when in (
        ("processesremote", "2", "not in force yet; queue-start reads it when it starts the suite again"),
        ("defaulthost", "a.example", "each program that injects reads it before its next message"),
        ("localstoptimeout", "5", "queue-local reads it at the next stop"),
    ):
        assert queuectl(home, "config", "set", name, value)[0] == f"control/{name} changed: {when}\n"


def test_a_value_that_cannot_be_used_is_not_shown_as_in_force_and_is_marked(home: Home) -> None:
    control = Path(home.control)
    (control / "timeoutremote").write_text("600\n")
    (control / "greylist").write_text("delay 5m\n")
    with Suite(home), SmtpdDaemon(home):
        wait_until(lambda: ask_processes(home, False).processes, 60, "queue-smtpd to answer")
        assert listed(home, "-n").keys() == {"me", "locals", "timeoutremote", "greylist", "smtpd", "relayclients"}
        (control / "timeoutremote").write_text("abc\n")
        (control / "queuelifetime").write_text("0\n")
        (control / "localtimeout").write_text("soon\n")
        (control / "greylist").write_text("delay soon\n")
        (control / "databytes").write_text("much\n")
        (control / "tlspolicy").write_text("a.example:perhaps\n")
        found = listed(home, "-n")
        for name, value in {
            "timeoutremote": "600",
            "queuelifetime": "604800 s",
            "localtimeout": "1200 s",
            "greylist": "1 line",
            "databytes": "0, none",
            "tlspolicy": "none",
        }.items():
            assert (found[name]["value"], found[name]["source"]) == (value, "running"), name
            assert found[name]["pending"] is None
            assert str(found[name]["trouble"]).startswith(f"control/{name} line 1: "), found[name]
        lines = queuectl(home, "config", "show", "timeoutremote")[0].splitlines()
        assert lines[1].split()[1] == "600"
        assert lines[2] == "  control/timeoutremote line 1: not a number from 1 to 86400: 'abc'"
    # What no daemon has: the default where queue-send takes that, and nothing else.
    found = listed(home, "-n")
    assert (found["queuelifetime"]["value"], found["queuelifetime"]["source"]) == ("604800 s", "default")
    assert (found["timeoutremote"]["value"], found["timeoutremote"]["source"]) == ("not usable", "file")
    assert found["timeoutremote"]["trouble"]
