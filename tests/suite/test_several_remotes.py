"""The suite with several queue-remotes: control/processesremote, who has which connections, and the death of one."""

import os
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from support.local.good_mail import GoodMail
from support.processes.suite import Suite, enqueue, program, wait_until
from support.queues.letters import letter_text, token_of
from support.servers.smtp.smtp_sink import SmtpSink

HOSTS = 8


@pytest.fixture(name="sink")
def fixture_sink(mail: GoodMail) -> Iterator[SmtpSink]:
    """Return a sink on all loopback addresses; mail for dN.example goes to 127.0.0.N there."""
    with SmtpSink(address="") as sink:
        routes = [f"d{number}.example:127.0.0.{number}:{sink.port}\n" for number in range(1, HOSTS + 1)]
        mail.control("smtproutes", "".join(routes))
        mail.control("connectionidle", "600\n")
        yield sink


def send_to_all(mail: GoodMail, name: str) -> list[str]:
    """Send a message to each host; return their tokens."""
    tokens = [f"{name}-{number}" for number in range(1, HOSTS + 1)]
    for number, token in enumerate(tokens, 1):
        done = enqueue(mail.home, b"joe@me.example.org", [b"joe@d%d.example" % number], letter_text(token))
        assert done.returncode == 0, done.stderr
    return tokens


def peers(pid: int) -> set[str]:
    """Return the addresses that a process has connections to."""
    return {found.raddr.ip for found in psutil.Process(pid).net_connections("tcp") if found.raddr}


def test_mail_goes_by_both_and_a_host_has_connections_to_one_of_them_only(mail: GoodMail, sink: SmtpSink) -> None:
    mail.control("processesremote", "2\n")
    with Suite(mail.home) as suite:
        remotes = suite.daemons("queue-remote", 2)
        assert len(remotes) == 2
        for name in ("first", "second", "third"):
            send_to_all(mail, name)
        suite.wait_for("^end msg ", times=3 * HOSTS)
        by = [peers(pid) for pid in remotes]
        assert not by[0] & by[1]
        assert by[0] | by[1] == {f"127.0.0.{number}" for number in range(1, HOSTS + 1)}
        assert all(by)
        shown = subprocess.run(
            [*program("queuectl"), "--home", mail.home.path, "stat"], capture_output=True, text=True, check=True
        ).stdout
        lines = [line.split() for line in shown.splitlines() if line.startswith("queue-remote: ")]
        assert sorted(int(words[2].rstrip(",")) for words in lines) == sorted(remotes)
    assert Counter(token_of(message.content) for message in sink.messages()) == Counter(
        f"{name}-{number}" for name in ("first", "second", "third") for number in range(1, HOSTS + 1)
    )


def test_the_death_of_one_ends_the_suite_and_the_next_run_delivers_what_is_left(mail: GoodMail, sink: SmtpSink) -> None:
    mail.control("processesremote", "2\n")
    with Suite(mail.home) as suite:
        tokens = [token for name in ("a", "b", "c") for token in send_to_all(mail, name)]
        os.kill(suite.daemons("queue-remote", 2)[1], signal.SIGKILL)
        suite.wait_for(r"alert: oh no! lost queue-remote connection! dying\.\.\.")
        assert suite.process.wait(60) == 111
    with Suite(mail.home):
        wait_until(mail.site.is_empty, why="an empty queue")
    found = Counter(token_of(message.content) for message in sink.messages())
    assert set(found) == set(tokens) and max(found.values()) <= 2


def test_each_of_them_ends_with_queue_send_and_takes_hup(mail: GoodMail, sink: SmtpSink) -> None:
    mail.control("processesremote", "3\n")
    with Suite(mail.home) as suite:
        send_to_all(mail, "before-hup")
        suite.wait_for("^end msg ", times=HOSTS)  # All have greeted.
        remotes = suite.daemons("queue-remote", 3)
        for pid in remotes:
            os.kill(pid, signal.SIGHUP)
        suite.signal(signal.SIGHUP)
        send_to_all(mail, "after-hup")
        suite.wait_for("^end msg ", times=2 * HOSTS)
        processes = [psutil.Process(pid) for pid in remotes]
        assert len(processes) == 3 and suite.stop() == 0
        psutil.wait_procs(processes, 60)
        assert not [process for process in processes if process.is_running()]


@pytest.mark.parametrize("text", ["many\n", "0\n", "17\n"])
def test_a_wrong_number_is_an_alert_and_one_queue_remote_runs(mail: GoodMail, text: str) -> None:
    path = mail.control("processesremote", text)
    with Suite(mail.home) as suite:
        suite.wait_for(rf"alert: unable to parse {path} line 1: not a number from 1 to 16: '{text[:-1]}'; the default")
        mail.check_alive(suite, "default")
        assert len(suite.daemons("queue-remote")) == 1
        words = Path(f"/proc/{suite.process.pid}/cmdline").read_bytes().split(b"\0")
        assert b"--remotes" not in words
