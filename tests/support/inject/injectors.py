"""Runs queue-enqueue, queue-inject, sendmail and queue-pickup, also as other users, and reads what they queue."""

import glob
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from queue_base.home import Home
from queue_base.queue.layout import Presence, open_layout
from queue_wire.files.envelope import Envelope, unpack_todo
from support.processes.suite import program, wait_until
from support.queues.home import make_home

SECONDS = 60.0
# Accounts without passwd entries. A test run of another user than root uses that user's account.
ROOT = os.geteuid() == 0
OWNER = 12345 if ROOT else os.geteuid()
USER = 12346 if ROOT else os.geteuid()

# Changes the user after all imports: that user may not be able to read the tests.
_AS_USER = """
import ctypes, os, sys
import queue_base.accounts as accounts, queue_inject.drop, queue_inject.enqueue, queue_inject.hand_in, queue_inject.main
import queue_inject.sendmail.mailq, queue_inject.sendmail.main, queue_inject.writers
uid = int(sys.argv[1])
if os.geteuid() == 0:
    os.setgroups([]), os.setgid(uid), os.setuid(uid)
else:
    queue_inject.writers.queue_owner = lambda home: accounts.Owner(0, 0)
os._exit(sys.modules[sys.argv[2]].main(sys.argv[2:]))
"""


class Outcome(NamedTuple):
    """How a process ended. A failure must have one line on stderr, a success none."""

    code: int
    output: bytes
    error: bytes


class Queued(NamedTuple):
    """A message in the queue, without its first Received: line, which is `received`."""

    number: int
    received: bytes
    message: bytes
    envelope: Envelope


def as_user(uid: int, module: str) -> list[str]:
    """Return the command that runs the module of a program as another user."""
    return [sys.executable, "-c", _AS_USER, str(uid), module]


def file_limit(size: int) -> Callable[[], None]:
    """Return a preexec_fn with which a write beyond `size` bytes of a file fails, as on a full disk."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def run(command: list[str], message: bytes = b"", preexec: Callable[[], None] | None = None, **more: str) -> Outcome:
    """Run a program with a message on its stdin; `more` is added to its environment."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("QMAIL", "MAIL", "NAME"))}
    done = subprocess.run(
        command,
        input=message,
        capture_output=True,
        check=False,
        timeout=SECONDS,
        env={**environment, "USER": "ann", **more},
        preexec_fn=preexec,
    )
    return _checked(Outcome(done.returncode, done.stdout, done.stderr))


def inject(home: Home, *arguments: str, message: bytes = b"", **more: str) -> Outcome:
    """Run queue-inject."""
    return run([*program("queue-inject"), "--home", home.path, *arguments], message, None, **more)


def sendmail(home: Home, *arguments: str, message: bytes = b"", **more: str) -> Outcome:
    """Run sendmail."""
    return run([*program("sendmail"), "--home", home.path, *arguments], message, None, **more)


def enqueue(
    home: Home,
    message: bytes = b"",
    envelope: bytes = b"Fa@example.org\0Tb@example.net\0\0",
    preexec: Callable[[], None] | None = None,
    command: list[str] | None = None,
) -> Outcome:
    """Run queue-enqueue, its message and envelope in files."""
    with tempfile.TemporaryFile() as text, tempfile.TemporaryFile() as addresses:
        for file, data in ((text, message), (addresses, envelope)):
            file.write(data)
            file.seek(0)
        done = subprocess.run(
            [*(command or program("queue-enqueue")), "--home", home.path],
            stdin=text,
            stdout=addresses,
            stderr=subprocess.PIPE,
            check=False,
            timeout=SECONDS,
            preexec_fn=preexec,
        )
    return _checked(Outcome(done.returncode, b"", done.stderr))


def _checked(outcome: Outcome) -> Outcome:
    lines = [line for line in outcome.error.splitlines() if b": warning: " not in line]
    assert len(lines) == (outcome.code != 0) and outcome.error[-1:] in (b"", b"\n"), outcome
    return outcome


def queued(home: Home) -> list[Queued]:
    """Return the messages in S4, oldest name first."""
    layout = open_layout(home.queue)
    found = []
    for directory in layout.directories("todo"):
        for name in os.listdir(directory):
            received, _, message = Path(layout.mess(int(name))).read_bytes().partition(b"\n")
            envelope = unpack_todo(Path(layout.todo(int(name))).read_bytes())
            found.append(Queued(int(name), received, message, envelope))
    return sorted(found)


def only(home: Home) -> Queued:
    """Return the one message that is in the queue."""
    (message,) = queued(home)
    return message


def states(home: Home) -> Counter[int | None]:
    """Return the number of messages in each state; None is any state that no crash may leave."""
    layout = open_layout(home.queue)
    numbers = {
        int(name)
        for kind in ("mess", "intd", "todo", "info", "local", "remote")
        for directory in layout.directories(kind)
        for name in os.listdir(directory)
    }
    return Counter(Presence(layout, number).state() for number in numbers)


def is_empty(home: Home) -> bool:
    """Return whether the queue has no message, and no name in pid/."""
    return not states(home) and not os.listdir(home.queue + "/pid")


def has_begun(home: Home) -> bool:
    """Return whether an injector has begun a message: its file has no name until it is complete."""
    begun = f"{os.path.realpath(home.queue)}/pid/#"
    for link in glob.iglob("/proc/[0-9]*/fd/*"):
        try:
            if os.readlink(link).startswith(begun):
                return True
        except OSError:
            continue  # The process or its file is gone, or not ours to look at.
    return False


def wrong_inodes(home: Home) -> list[str]:
    """Return the paths in mess/ whose name is not their inode number."""
    found = [path for path in Path(home.queue, "mess").glob("*/*") if int(path.name) != path.stat().st_ino]
    return [str(path) for path in found]


@contextmanager
def shared_home(owner: int = OWNER) -> Iterator[Home]:
    """Yield a home that every user can reach, with queue/ owned by `owner` and maildrop/ open for all."""
    top = Path(tempfile.mkdtemp(prefix="queue-suite-"))
    try:
        top.chmod(0o755)
        home = make_home(top / "home")
        if ROOT:
            for directory, _, files in os.walk(home.queue):
                os.chown(directory, owner, owner)
                for name in files:
                    os.chown(f"{directory}/{name}", owner, owner)
        os.chmod(home.queue + "/maildrop", 0o3733)
        yield home
    finally:
        shutil.rmtree(top)


class PickupDaemon:
    """A running queue-pickup; `log` has the lines that it sent to queue-send."""

    def __init__(self, home: Home, preexec: Callable[[], None] | None = None, scan_every: float | None = None) -> None:
        """`scan_every` is the number of seconds between scans, or None for the default."""
        script = "import sys, queue_inject.pickup.collector as c, queue_inject.pickup.main as p; "
        # Groups do not depend on how slow the machine is.
        script += "import queue_inject.pickup.failed_files as f, queue_base.queue.sightings as s; "
        # A test does not wait for the second search.
        script += "s.SEEN_SECONDS = 0.0; "
        script += "f.RETRY_SECONDS = p.RETRY_SECONDS = p.LOOK_SECONDS = 0.1; c.GROUP_SECONDS = 3600.0; "
        if scan_every is not None:
            script += f"p.SCAN_SECONDS = {scan_every}; "
        script += "sys.exit(p.main(sys.argv))"
        self.process = subprocess.Popen(
            [sys.executable, "-c", script, "--home", home.path, *(["--queue", home.name] if home.name else [])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=preexec,
        )
        assert self.process.stdin and self.process.stdout and self.process.stderr
        self._stdin, self._stdout, self._stderr = self.process.stdin, self.process.stdout, self.process.stderr
        os.set_blocking(self._stdout.fileno(), False)
        self.log = b""

    def __enter__(self) -> "PickupDaemon":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.process.kill()
        self.process.wait(SECONDS)
        for stream in (self._stdin, self._stdout, self._stderr):
            stream.close()

    def said(self, text: bytes) -> bool:
        """Return whether it has sent a line with this text."""
        while data := self._stdout.read(65536):
            self.log += data
        return text in self.log

    def wait_for(self, text: bytes) -> None:
        """Wait until it has sent a line with this text, which is shortly after the event."""
        wait_until(lambda: self.said(text), SECONDS, f"a line with {text!r}")

    def end(self) -> tuple[int, bytes]:
        """Close its descriptor 0; return its exit code and its stderr. Then `log` is complete."""
        self._stdin.close()
        error = self._stderr.read()
        code = self.process.wait(SECONDS)
        self.said(b"")
        return code, error
