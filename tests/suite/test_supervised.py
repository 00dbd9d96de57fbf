"""The suite under real supervisors: it starts, delivers, comes back after TERM, logs with stamps, and stops."""

import datetime
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from queue_base.home import Home
from support.local.mailboxes import give
from support.processes.suite import inject, program, wait_until
from support.processes.supervision import S6, Daemontools, Runit, Supervisor
from support.site import LOCAL
from support.tools import need

STAMP = re.compile(r"@4[0-9a-f]{23} ")


class Installed:
    """A supervisor that runs the service directory which queuectl wrote."""

    def __init__(self, supervisor: Supervisor, home: Home) -> None:
        self.supervisor = supervisor
        self.home = home
        self.new = Path(home.alias, "Maildir", "new")

    def deliver(self, text: str) -> None:
        """Send one message and wait for it."""
        before = len(list(self.new.iterdir()))
        done = inject(self.home, f"joe@{LOCAL}", [f"somebody@{LOCAL}"], f"Subject: {text}\n\n{text}\n".encode())
        assert done.returncode == 0, done.stderr
        wait_until(lambda: len(list(self.new.iterdir())) > before, why=f"the message {text!r}")

    def pid(self, name: str) -> int:
        """Return the pid of a daemon."""
        for pid in self.supervisor.processes():
            try:
                if f"/{name}\0".encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                    return pid
            except OSError:
                continue
        raise AssertionError(f"{name} does not run")


@pytest.fixture(params=[Daemontools, Runit, S6], ids=["svscan", "runsvdir", "s6-svscan"])
def installed(request: pytest.FixtureRequest) -> Iterator[Installed]:
    # Deliveries run as another user where root runs the tests, who cannot walk into pytest's own directories.
    top = Path(tempfile.mkdtemp(prefix="queue-suite-"))
    top.chmod(0o711)
    try:
        yield from install(request.param(top), top)
    finally:
        shutil.rmtree(top)


def install(supervisor: Supervisor, top: Path) -> Iterator[Installed]:
    """Make a home and its service, and run it while the test runs."""
    home = Home(str(top / "home"))
    made = subprocess.run(
        [
            *program("queuectl"), "init", home.path, "--as-me", "--me", LOCAL, "--service", str(supervisor.service),
            "--kind", supervisor.name, "--log", str(supervisor.log_directory),
        ],
        capture_output=True,
        check=False,
        timeout=60,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    alias = Path(home.alias)
    for directory in (alias, alias / "Maildir", *(alias / "Maildir" / name for name in ("tmp", "new", "cur"))):
        directory.mkdir(exist_ok=True)
        give(directory)
    (alias / ".qmail-default").write_text("./Maildir/\n")
    # Before it starts: svscan looks for new services every five seconds.
    supervisor.add()
    with supervisor:
        supervisor.wait_for(r"status: local 0/10 remote 0/250$")
        yield Installed(supervisor, home)


def test_it_starts_delivers_and_comes_back_to_deliver_again_after_term(installed: Installed) -> None:
    installed.supervisor.wait_until_up()
    installed.deliver("first")
    first = installed.pid("queue-send")
    installed.supervisor.term()
    # Not counted from the top: the line after the first delivery says `exitasap` where TERM is as fast.
    again = re.compile(r"status: exiting\n.*status: local 0/10 remote 0/250\n", re.DOTALL)
    wait_until(lambda: again.search("\n".join([*installed.supervisor.log(), ""])), why="the second start")
    assert installed.pid("queue-send") != first
    installed.deliver("second")
    # Delivery numbers count from 1 at each start.
    installed.supervisor.wait_for(r"starting delivery 1: ", times=2)


def test_a_daemon_that_is_killed_makes_the_supervisor_start_the_whole_set_again(installed: Installed) -> None:
    os.kill(installed.pid("queue-todo"), signal.SIGKILL)
    installed.supervisor.wait_for(r"alert: oh no! lost queue-todo connection! dying\.\.\.$")
    installed.deliver("after the loss")


def test_the_log_has_stamps_that_tai64nlocal_reads(installed: Installed) -> None:
    installed.deliver("stamped")
    installed.supervisor.wait_for(r"end msg \d+$")
    lines = installed.supervisor.log()
    assert [line for line in lines if not STAMP.match(line)] == []
    shown = subprocess.run(
        [need("tai64nlocal")],
        input="\n".join(lines) + "\n",
        env={**os.environ, "TZ": "UTC"},
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    ).stdout.splitlines()
    now = datetime.datetime.now(datetime.UTC).replace(tzinfo=None)
    for line, local in zip(lines, shown, strict=True):
        match = re.fullmatch(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\.\d{9} (.*)", local)
        assert match, local
        assert match[2] == line[26:]
        age = now - datetime.datetime.fromisoformat(match[1])
        # s6-log counts leap seconds, as TAI does; multilog, svlogd and tai64nlocal do not.
        ahead = 27 if installed.supervisor.name == "s6" else 0
        assert datetime.timedelta(seconds=-ahead) <= age < datetime.timedelta(minutes=5)


def test_stopping_the_service_ends_every_process_and_keeps_the_log_to_its_last_line(installed: Installed) -> None:
    installed.deliver("the last one")
    assert len(installed.supervisor.processes()) >= 8
    installed.supervisor.exit()
    wait_until(lambda: installed.supervisor.processes() == [], why="the end of every process")
    assert installed.supervisor.log()[-1].endswith(" status: exiting")
