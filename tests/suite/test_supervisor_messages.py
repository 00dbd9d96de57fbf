"""What queue-send tells its supervisor: over systemd's socket, and on s6's descriptor."""

import fcntl
import os
import select
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from queue_base.home import Home
from support.processes.forked import BIN
from support.processes.suite import DEADLINE, Suite


class NotifySocket:
    """The socket that systemd gives a service."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(path)
        self._socket.settimeout(60)

    def wait_for(self, assignment: str) -> dict[str, str]:
        """Return the variables of the next message that has this one."""
        name, _, value = assignment.partition("=")
        while (found := self.next()).get(name) != value:
            pass
        return found

    def next(self) -> dict[str, str]:
        """Return the variables of the next message."""
        found = self._socket.recv(4096).decode()
        return dict(line.split("=", 1) for line in found.split("\n"))

    def close(self) -> None:
        self._socket.close()


def test_systemd_is_told_of_the_start_a_reload_and_the_stop(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = str(tmp_path / "notify")
    told = NotifySocket(address)
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    try:
        with Suite(home, executed=True) as suite:
            assert told.wait_for("READY=1")["STATUS"] == "in flight: local 0, remote 0"
            for daemon in ("queue-local", "queue-remote", "queue-todo"):
                variables = Path(f"/proc/{suite.daemon(daemon)}/environ").read_bytes().split(b"\0")
                assert not [each for each in variables if each.startswith((b"NOTIFY_SOCKET", b"QUEUE_NOTIFY"))]
            before = time.monotonic_ns() // 1000
            suite.signal(signal.SIGHUP)
            assert before <= int(told.wait_for("RELOADING=1")["MONOTONIC_USEC"]) <= time.monotonic_ns() // 1000
            told.wait_for("READY=1")
            suite.wait_for("^config unchanged$")
            suite.signal(signal.SIGTERM)
            told.wait_for("STOPPING=1")
            assert suite.process.wait(60) == 0
    finally:
        told.close()


def test_systemd_is_told_why_the_suite_cannot_start(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = str(tmp_path / "notify")
    told = NotifySocket(address)
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    Path(home.path, "control", "me").unlink()
    try:
        done = subprocess.run([BIN / "queue-start", "--home", home.path], capture_output=True, check=False, timeout=60)
        assert done.returncode == 111, done.stderr
        (status,) = told.next().values()
        assert status.startswith("cannot start: unable to read ") and done.stderr.decode().endswith(f"{status}\n")
    finally:
        told.close()


@pytest.mark.parametrize("least", [3, 300])  # A supervisor may give a high number.
def test_s6_is_told_of_the_start_with_a_newline_and_the_end_of_its_descriptor(
    home: Home, monkeypatch: pytest.MonkeyPatch, least: int
) -> None:
    reader, low = os.pipe()
    writer = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, least)
    os.close(low)
    monkeypatch.setenv("QUEUE_NOTIFY_FD", str(writer))
    try:
        with Suite(home, inherited=(writer,)):
            os.close(writer)
            assert select.select([reader], [], [], DEADLINE)[0]
            assert os.read(reader, 10) == b"\n"
            # Nobody else has it open.
            assert select.select([reader], [], [], DEADLINE)[0]
            assert os.read(reader, 10) == b""
    finally:
        os.close(reader)
