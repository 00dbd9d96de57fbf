"""queue-local as a real process on pipes, and a test's end of those pipes."""

import os
import resource
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from queue_base.home import Home
from queue_wire.pipes.framing import NetstringReader
from queue_wire.pipes.job import Job, pack_job
from queue_wire.pipes.report import LogLine, PartialReport, Ready, Report, SettingsReport, SlowJob, unpack_report
from support.processes.forked import Forked, can_fork, fork_piped

ROOT = Path(__file__).parents[3]
SECONDS = 60.0


class LocalDaemon:
    """A running queue-local. Every wait has a deadline, after which it fails the test."""

    def __init__(self, home: Home, *, wrapper: tuple[str, ...] = (), file_size: int | None = None) -> None:
        def limit() -> None:
            if file_size is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (file_size, file_size))

        self.process: subprocess.Popen[bytes] | Forked
        variables = {"QUEUE_HOME": home.path}
        if not wrapper and file_size is None and can_fork("queue-local"):
            words = [str(ROOT / "bin/queue-local")]
            self.process = fork_piped("queue-local", words, session=True, variables=variables)
        else:
            # Behind ours is what test_accounts.py says.
            search = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
            self.process = subprocess.Popen(
                [*wrapper, sys.executable, str(ROOT / "bin/queue-local")],
                env={**os.environ, **variables, "PYTHONPATH": search},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                preexec_fn=limit,
            )
        assert self.process.stdin and self.process.stdout and self.process.stderr
        self.stdin, self.stdout, self.stderr = self.process.stdin, self.process.stdout, self.process.stderr
        self._reader = NetstringReader()

    def __enter__(self) -> "LocalDaemon":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        # The recipient checker as well, which may just be making its socket in a directory that the test removes.
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(SECONDS)
        for stream in (self.stdout, self.stderr):
            stream.close()
        try:
            self.stdin.close()
        except BrokenPipeError:
            pass  # The test wrote to a process that it then killed.

    def write(self, data: bytes) -> None:
        """Write bytes to the daemon's fd 0."""
        self.stdin.write(data)
        self.stdin.flush()

    def send(self, number: int, message: bytes, recipient: bytes, sender: bytes = b"from@remote.example") -> None:
        """Send a job for one recipient."""
        self.write(pack_job(Job(number, message, sender, recipient, [recipient])))

    def next(self) -> Report | Ready | SettingsReport | LogLine | SlowJob | PartialReport:
        """Return the next report."""
        deadline = time.monotonic() + SECONDS
        while (payload := self._reader.next()) is None:
            ready, _, _ = select.select([self.stdout], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, "no report within the deadline"
            data = os.read(self.stdout.fileno(), 65536)
            assert data, f"queue-local has closed its reports: {self.stderr.read()!r}"
            self._reader.feed(data)
        return unpack_report(payload)

    def ready(self) -> int:
        """Return the number of jobs in the greeting."""
        greeting = self.next()
        assert isinstance(greeting, Ready)
        return greeting.jobs

    def report(self) -> Report:
        """Return the next report, which is no greeting."""
        report = self.next()
        assert isinstance(report, Report)
        return report

    def verdict(self, number: int, message: bytes, recipient: bytes, sender: bytes = b"a@b") -> tuple[bytes, bytes]:
        """Send a job; return its letter and text."""
        self.send(number, message, recipient, sender)
        report = self.report()
        assert (report.number, report.scope, len(report.verdicts)) == (number, b"m", 1)
        return report.verdicts[0]

    def end(self) -> tuple[int, bytes]:
        """Close fd 0; return the exit code and stderr."""
        self.stdin.close()
        return self.wait()

    def wait(self) -> tuple[int, bytes]:
        """Wait for the daemon and its children; return the exit code and stderr, which they all hold open."""
        os.set_blocking(self.stderr.fileno(), False)
        deadline, text = time.monotonic() + SECONDS, b""
        while True:
            ready, _, _ = select.select([self.stderr], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"queue-local did not end within the deadline: {text!r}"
            data = os.read(self.stderr.fileno(), 65536)
            if not data:
                return self.process.wait(SECONDS), text
            text += data
