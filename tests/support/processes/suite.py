"""The whole suite as real processes: queue-start on a home, its log as it comes, and its end."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from queue_base.home import Home
from support.processes import forked
from support.processes.forked import Forked, can_fork, fork

BIN = forked.BIN
DEADLINE = 60.0
LAST = 10.0  # Seconds that stop() gives to the daemons after queue-send has ended.


def program(name: str, programs: Path = BIN) -> list[str]:
    """Return the words that run a program, by default of this checkout, under this interpreter."""
    return [sys.executable, str(programs / name)]


def wait_until(what: Callable[[], object], deadline: float = DEADLINE, why: str = "the event") -> None:
    """Return once `what()` is true; fail after `deadline` seconds. Polls, for events that no descriptor tells."""
    end = time.monotonic() + deadline
    while not what():
        assert time.monotonic() < end, f"waited {deadline} s in vain for {why}"
        threading.Event().wait(0.01)


class Suite:
    """A running suite. Use it as a context manager: it is stopped with TERM, and killed if that takes too long.

    `wrapper` are words before the command, which must exec it, and `send_wrapper` such words before that of queue-send,
    or of queue-start where it is no fork. `on_line` is called with each line of the log as it comes, in a thread of its
    own. `log` is a descriptor to which the log goes instead; none of it is known here. `inherited` are descriptors that
    it gets under their numbers. It is a fork where that shows the same (support.processes.forked), and with `executed`
    never; daemons that are others in `programs` are executed. `options` are further ones of queue-start.
    """

    def __init__(
        self,
        home: Home,
        *,
        user: int | None = None,
        wrapper: tuple[str, ...] = (),
        send_wrapper: tuple[str, ...] = (),
        programs: Path = BIN,
        on_line: Callable[[str], None] | None = None,
        log: int = subprocess.PIPE,
        inherited: tuple[int, ...] = (),
        executed: bool = False,
        options: tuple[str, ...] = (),
    ) -> None:
        self.home = home
        self._on_line = on_line
        self.lines: list[str] = []
        self._killed = False
        self._more = threading.Condition()
        replaced = daemons_replaced(programs)
        plain = user is None and not wrapper and not inherited and not options and replaced is not None
        self.process: subprocess.Popen[bytes] | Forked
        if plain and not executed and can_fork("queue-start"):
            wrappers = {"queue-send": send_wrapper}
            self.process = _fork(home, log, wrappers, replaced or {})
        else:
            self.process = subprocess.Popen(
                [*(wrapper or send_wrapper), *program("queue-start", programs), "--home", home.path, *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                user=user,
                start_new_session=True,
                pass_fds=inherited,
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> "Suite":
        self.wait_for(r"status: local 0/\d+ remote 0/\d+")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is not None:
            # After a failure queue-send might wait in vain for what the test has stopped or keeps in flight.
            self.kill()
        self.stop()

    def _read(self) -> None:
        for data in self.process.stdout or ():
            line = data.decode("utf-8", "replace").rstrip("\n")
            if self._on_line is not None:
                self._on_line(line)
            with self._more:
                self.lines.append(line)
                self._more.notify_all()
        with self._more:
            self._more.notify_all()

    def count(self, pattern: str) -> int:
        """Return how many log lines so far match."""
        with self._more:
            return sum(1 for line in self.lines if re.search(pattern, line))

    def wait_for(self, pattern: str, times: int = 1, deadline: float = DEADLINE) -> str:
        """Return the log line that is the `times`-th match; fail with the log after `deadline` seconds."""
        end = time.monotonic() + deadline
        with self._more:
            while True:
                found = [line for line in self.lines if re.search(pattern, line)]
                if len(found) >= times:
                    return found[times - 1]
                left = end - time.monotonic()
                tail = "\n".join(self.lines[-40:])
                assert left > 0, f"no line {times} like {pattern!r} in {deadline} s; the log ends:\n{tail}"
                self._more.wait(min(left, 0.5))
                ended = not self._reader.is_alive() and len(found) == self._matches(pattern)
                assert not ended, f"the suite ended before a line like {pattern!r}:\n{tail}"

    def _matches(self, pattern: str) -> int:
        return sum(1 for line in self.lines if re.search(pattern, line))

    def signal(self, number: signal.Signals) -> None:
        """Signal the supervised process, queue-send."""
        self.process.send_signal(number)

    def daemon(self, name: str) -> int:
        """Return the pid of a daemon that queue-start made."""
        return self.daemons(name)[0]

    def daemons(self, name: str, count: int = 1) -> list[int]:
        """Return the pids of all daemons of one program that queue-start made, once there are so many of them.

        queue-start is ready when it has made the processes. Each then executes its program.
        """
        found: list[int] = []

        def all_run() -> bool:
            assert self.process.poll() is None, f"the suite ended before {count} of {name} ran"
            found[:] = self.found(name)
            return len(found) >= count

        wait_until(all_run, why=f"{count} of {name} under {self.process.pid}")
        return found

    def found(self, name: str) -> list[int]:
        """Return the pids of the daemons of one program that run at this moment.

        queue-ondemand and its queue-remote are children of a queue-start, which starts them again.
        """
        guards = [pid for pid in _children(self.process.pid, "queue-start") if pid != self.process.pid]
        return [pid for parent in (self.process.pid, *guards) for pid in _children(parent, name)]

    def stop(self, deadline: float = DEADLINE) -> int:
        """TERM, wait, and return the exit code; kill the whole session if it does not end.

        queue-clean goes on without queue-send, up to the end of what it was asked for; the log ends with the last of
        them.
        """
        if self.process.poll() is None:
            self.process.terminate()
        try:
            code = self.process.wait(deadline)
            self._reader.join(LAST)
            return code
        finally:
            self.kill()
            self._reader.join(5)
            if self.process.stdout is not None:
                self.process.stdout.close()

    def kill(self) -> None:
        """SIGKILL everything that queue-start started. Only once: later another suite may have the number of its group.
        """
        if not self._killed:
            self._killed = True
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                self.process.kill()  # It may not have begun its session yet.
        self.process.wait(30)


def _children(of: int, name: str) -> list[int]:
    """Return the children of a process that run a program."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, IndexError, ValueError):
                continue
            if parent == of and any(word.endswith(b"/" + name.encode()) for word in words):
                found.append(int(entry.name))
    return found


def daemons_replaced(programs: Path) -> dict[str, str] | None:
    """Return the paths of the daemons that are others than in BIN, by name; None if anything else is another."""
    if programs == BIN:
        return {}
    found = {}
    for ours in BIN.iterdir():
        path = programs / ours.name
        if not path.exists() or path.read_bytes() != ours.read_bytes():
            if ours.name not in forked.DAEMONS:
                return None
            found[ours.name] = str(path)
    return found or None


def _fork(
    home: Home, log: int, wrappers: dict[str, tuple[str, ...]], replaced: dict[str, str]
) -> Forked:
    """Start a suite as a fork, with its log on a descriptor, or on a pipe."""
    reader, writer = os.pipe() if log == subprocess.PIPE else (-1, os.dup(log))
    nothing = os.open(os.devnull, os.O_RDWR)
    words = [str(BIN / "queue-start"), "--home", home.path]
    numbers = {0: nothing, 1: writer, 2: writer}
    try:
        process = fork("queue-start", words, numbers, session=True, wrappers=wrappers, replaced=replaced)
    finally:
        os.close(nothing)
        os.close(writer)
    if reader >= 0:
        process.stdout = os.fdopen(reader, "rb")
    return process


def inject(home: Home, sender: str, recipients: list[str], message: bytes) -> subprocess.CompletedProcess[bytes]:
    """Run queue-inject -a with a sender and recipients; return its end."""
    return subprocess.run(
        [*program("queue-inject"), "--home", home.path, "-a", "-f", sender, *recipients],
        input=message,
        capture_output=True,
        check=False,
        timeout=60,
    )


def enqueue(home: Home, sender: bytes, recipients: list[bytes], message: bytes) -> subprocess.CompletedProcess[bytes]:
    """Run queue-enqueue, message on fd 0 and envelope on fd 1; return its end. `home` may be that of one queue."""
    envelope = b"F%s\0" % sender + b"".join(b"T%s\0" % recipient for recipient in recipients) + b"\0"
    reader, writer = os.pipe()
    feeder = threading.Thread(target=_feed, args=(writer, envelope))
    feeder.start()
    try:
        return subprocess.run(
            [*program("queue-enqueue"), "--home", home.path, *(["--queue", home.name] if home.name else [])],
            input=message,
            stdout=reader,
            stderr=subprocess.PIPE,
            check=False,
            timeout=120,
        )
    finally:
        os.close(reader)
        feeder.join(10)


def _feed(writer: int, data: bytes) -> None:
    with os.fdopen(writer, "wb") as pipe:
        try:
            pipe.write(data)
        except BrokenPipeError:
            return  # It refused before it had read everything.
