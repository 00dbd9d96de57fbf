"""Programs of ours that start at once: a process that has loaded a program's modules forks for each start.

A program needs a fifth of a second to load its modules, and hundreds of tests start one each. Here it is loaded once
for each process of pytest. A fork begins with the program's main(), as a program that was executed does after its
imports, with the arguments, environment, working directory and descriptors that it is given. A forked queue-start does
not execute the daemons: each is a main() in the process that would have executed it (fork_server.py). Tests that are
about the start of programs, and those that run one under strace, as another user or with other code, execute it; with
--exhaustive all do.
"""

import atexit
import functools
import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from support.plugins.amount import amount

BIN = Path(__file__).resolve().parents[3] / "bin"
DAEMONS = {
    "queue-clean": "queue_clean.main",
    "queue-intake": "queue_intake.main",
    "queue-local": "queue_local.main",
    "queue-ondemand": "queue_ondemand.main",
    "queue-pickup": "queue_inject.pickup.main",
    "queue-remote": "queue_remote.main",
    "queue-send": "queue_send.main",
    "queue-todo": "queue_todo.main",
}
MODULES = {
    **DAEMONS,
    "queue-smtpd": "queue_smtpd.main",
    "queue-start": "queue_admin.start",
    "queuectl": "queue_admin.main",
}
_SECONDS = 60.0
_allowed = False
_SERVER = Path(__file__).with_name("fork_server.py")
_ROOM = "." * 2000
# For a request and its answer: some tests start programs in several threads.
_lock = threading.Lock()


class Forked:
    """A process, with as much of subprocess.Popen as tests use. `pidfd` is readable when it has ended."""

    stdin: IO[bytes] | None = None
    stdout: IO[bytes] | None = None
    stderr: IO[bytes] | None = None

    def __init__(self, pid: int, pidfd: int, status: int) -> None:
        self.pid = pid
        self.pidfd = pidfd
        self._status = status
        self._waiting = threading.Lock()
        self.returncode: int | None = None

    def __del__(self) -> None:
        for descriptor in (self.pidfd, self._status):
            os.close(descriptor)

    def poll(self) -> int | None:
        """Return the exit code, None as long as it runs."""
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float = _SECONDS) -> int:
        """Return the exit code, once it has ended."""
        if self.returncode is None:
            poll = select.poll()
            poll.register(self._status, select.POLLIN)
            if not poll.poll(timeout * 1000):
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
            with self._waiting:  # Another thread may wait, too, and only one of them gets the code.
                if self.returncode is None:
                    self.returncode = int(os.read(self._status, 100))
        return self.returncode

    def send_signal(self, number: int) -> None:
        try:
            signal.pidfd_send_signal(self.pidfd, signal.Signals(number))
        except ProcessLookupError:
            pass  # It has ended.

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def communicate(self, timeout: float = _SECONDS) -> tuple[bytes, bytes]:
        """Close stdin, read stdout and stderr to their ends, and wait for the process."""
        end = time.monotonic() + timeout
        if self.stdin is not None and not self.stdin.closed:
            try:
                self.stdin.close()
            except BrokenPipeError:
                pass
        outputs = (self.stdout, self.stderr)
        found = [b"", b""]
        while left := [each for each in outputs if each is not None and not each.closed]:
            ready = select.select(left, [], [], max(0.0, end - time.monotonic()))[0]
            if not ready:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
            for each in ready:
                data = os.read(each.fileno(), 1 << 16)
                found[outputs.index(each)] += data
                if not data:
                    each.close()
        self.wait(max(0.0, end - time.monotonic()))
        return found[0], found[1]


@functools.cache
def _server(name: str) -> tuple[socket.socket, object]:
    """Return the socket of a program's process, and what a fork of it would have wrong if it is another one now."""
    # queue-start executes the daemons.
    executed = [f"{daemon}={module}" for daemon, module in DAEMONS.items() if name == "queue-start"]
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with its:
        process = subprocess.Popen(
            [sys.executable, str(_SERVER), _ROOM, str(its.fileno()), str(BIN), MODULES[name], *executed],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[its.fileno()],
        )

    def end() -> None:
        ours.close()
        process.wait(_SECONDS)

    atexit.register(end)
    return ours, _surroundings()


def _surroundings() -> object:
    """Return what a program takes from whoever starts it, and a fork of a process that was started earlier does not."""
    limits = [resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name.startswith("RLIMIT_")]
    variables = {name: value for name, value in os.environ.items() if name.startswith(("PYTHON", "LANG", "LC_"))}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    return limits, variables, mask, os.geteuid()


def allow_forks() -> None:
    """Say that this is a run of tests: others that use this package, as the benchmarks do, execute all programs."""
    global _allowed
    _allowed = amount(True, False)


def can_fork(name: str) -> bool:
    """Return whether a start of a program here may be a fork."""
    if not _allowed or name not in MODULES:
        return False
    with _lock:
        return _server(name)[1] == _surroundings()


def _umask() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1], 8) for line in lines if line.startswith("Umask:"))


def fork(
    name: str,
    words: list[str],
    descriptors: Mapping[int, int],
    *,
    session: bool = False,
    variables: Mapping[str, str] | None = None,
    wrappers: Mapping[str, Sequence[str]] | None = None,
    replaced: Mapping[str, str] | None = None,
) -> Forked:
    """Start a program, with the words of its command line from its path on; descriptors: by their number in it.

    With `session` it begins a session of its own; `variables` are added to the environment. `wrappers` are words
    before the command of a program that it executes, and `replaced` has another path for it, both by its name: that one
    is executed in truth.
    """
    reader, writer = os.pipe()
    request = {
        "words": words,
        "numbers": list(descriptors),
        "environment": {**os.environ, **(variables or {})},
        "directory": os.getcwd(),
        "umask": _umask(),
        "session": session,
        "wrappers": {name: list(words) for name, words in (wrappers or {}).items() if words},
        "replaced": dict(replaced or {}),
    }
    try:
        with _lock:
            server, _ = _server(name)
            socket.send_fds(server, [json.dumps(request).encode()], [*descriptors.values(), writer])
            data, (pidfd,), _, _ = socket.recv_fds(server, 100, 1)
    finally:
        os.close(writer)
    os.set_inheritable(pidfd, False)
    return Forked(int(data), pidfd, reader)


def fork_piped(
    name: str, words: list[str], *, session: bool = False, variables: Mapping[str, str] | None = None
) -> Forked:
    """Start a program with pipes to its stdin, and from its stdout and stderr; the rest as of fork()."""
    pipes = [os.pipe() for _ in range(3)]
    its, ours = (pipes[0][0], pipes[1][1], pipes[2][1]), (pipes[0][1], pipes[1][0], pipes[2][0])
    try:
        process = fork(name, words, dict(enumerate(its)), session=session, variables=variables)
    finally:
        for descriptor in its:
            os.close(descriptor)
    process.stdin, process.stdout, process.stderr = (
        os.fdopen(descriptor, mode) for descriptor, mode in zip(ours, ("wb", "rb", "rb"), strict=True)
    )
    return process


def run_program(name: str, *words: str | bytes, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Run a program to its end, with bytes on its stdin; return its exit code and what it printed."""
    path = str(BIN / name)
    if len(given) > select.PIPE_BUF or not can_fork(name):
        return subprocess.run([sys.executable, path, *words], input=given, capture_output=True, timeout=_SECONDS)
    process = fork_piped(name, [path, *map(os.fsdecode, words)])
    assert process.stdin is not None
    process.stdin.write(given)  # A pipe has room for it.
    said, errors = process.communicate()
    return subprocess.CompletedProcess(words, process.wait(), said, errors)
