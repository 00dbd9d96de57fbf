"""A daemon on pipes, as queue-send sees it: its fd 0 to write to, its fd 1 to read from, and its end."""

import os
import resource
import select
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from queue_base.home import Home
from queue_wire.pipes.notice import NoticeReader
from support.processes.forked import BIN, Forked, can_fork, fork_piped
from support.processes.suite import program

SECONDS = 60.0


def read_soon(descriptor: int, deadline: float) -> bytes:
    """Return what can be read before the deadline (monotonic seconds), empty at the end of file; fail after it."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    assert poll.poll(max(0.0, deadline - time.monotonic()) * 1000), "nothing to read within the deadline"
    return os.read(descriptor, 65536)


def is_readable(descriptor: int) -> bool:
    """Return whether there is something to read, or an end, at this moment."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))


def limit_files(pid: int, size: int) -> None:
    """Let a process write no more than `size` bytes into a file (RLIMIT_FSIZE); -1 takes the limit away."""
    most = resource.RLIM_INFINITY
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (most if size < 0 else size, most))


class Piped:
    """A running daemon. It is killed at the end of the `with` block if it still runs."""

    def __init__(
        self, name: str, home: Home, *options: str, wrapper: tuple[str, ...] = (), programs: Path = BIN
    ) -> None:
        self.process: subprocess.Popen[bytes] | Forked
        if not wrapper and programs == BIN and can_fork(name):
            self.process = fork_piped(name, [str(BIN / name), "--home", home.path, *options])
        else:
            self.process = subprocess.Popen(
                [*wrapper, *program(name, programs), "--home", home.path, *options],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        assert self.process.stdin and self.process.stdout and self.process.stderr
        self.stdin, self.stdout, self.stderr = self.process.stdin, self.process.stdout, self.process.stderr
        self._rest = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.process.kill()
        self.process.wait(SECONDS)
        for stream in (self.stdin, self.stdout, self.stderr):
            try:
                stream.close()
            except BrokenPipeError:
                pass  # The test wrote to a process that had ended.

    def write(self, data: bytes) -> None:
        """Write bytes to the daemon's fd 0."""
        self.stdin.write(data)
        self.stdin.flush()

    def record(self, deadline: float = SECONDS) -> bytes:
        """Return the next record, NUL-terminated or a netstring, without its framing."""
        end = time.monotonic() + deadline
        reader = NoticeReader()
        at = 0
        while True:
            while at < len(self._rest):
                at += 1
                records = reader.feed(self._rest[at - 1 : at])
                if records:
                    self._rest = self._rest[at:]
                    return records[0]
            data = read_soon(self.stdout.fileno(), end)
            assert data, f"the daemon has closed its output after {self._rest!r}"
            self._rest += data

    def more(self, deadline: float = SECONDS) -> bool:
        """Return whether there is another record before the end of the output; wait until that is known."""
        end = time.monotonic() + deadline
        while not NoticeReader().feed(self._rest):
            data = read_soon(self.stdout.fileno(), end)
            if not data:
                return False
            self._rest += data
        return True

    def take(self, count: int) -> bytes:
        """Return the next `count` bytes."""
        end = time.monotonic() + SECONDS
        while len(self._rest) < count:
            data = read_soon(self.stdout.fileno(), end)
            assert data, f"the daemon has closed its output after {self._rest!r}"
            self._rest += data
        found, self._rest = self._rest[:count], self._rest[count:]
        return found

    @property
    def silent(self) -> bool:
        """Whether it has said nothing that was not read."""
        return not self._rest and not is_readable(self.stdout.fileno())

    def complaint(self) -> bytes:
        """Return the next piece of stderr."""
        return read_soon(self.stderr.fileno(), time.monotonic() + SECONDS)

    def end(self) -> int:
        """Close fd 0; return the exit code."""
        self.stdin.close()
        return self.process.wait(SECONDS)
