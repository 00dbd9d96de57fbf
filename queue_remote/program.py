"""control/remoteprogram: a program with qmail-remote's contract delivers in our place.

    /path/program [argument ...]               all mail
    nexthop:/path/program [argument ...]       that nexthop's; keys are queue_wire.choices', by sender's domain as well
    nexthop:                                   not that nexthop's: we deliver it

Words are divided by spaces; no shell sees them. The program gets, after its own words, host, sender and recipients;
the message is its fd 0, reports go to its fd 1 (queue_wire.remote_reports), and it exits 0. It runs in a session of
its own, in the home, with QUEUE_HOME set. One that cannot be started, crashes, exits with another code (qmail-rspawn
would bounce then), reports nothing, or takes too long defers the mail, with an alert, and its session is killed.
"""

import asyncio
import contextlib
import errno
import os
import signal
import subprocess
import time
from typing import IO

from queue_base.errors import complain, reason
from queue_base.home import Home
from queue_remote.message import Message
from queue_wire.errors import FormatError, quoted
from queue_wire.job import Job
from queue_wire.remote_reports import unpack_reports
from queue_wire.report import MESSAGE_SCOPE, TEMPORARY, Report
from queue_wire.smtp_text import NO_RESOURCES, program_failed

# Far above what the reports on a thousand recipients take.
OUTPUT_MOST = 256 * 1024
# What is kept of stderr, for the alert.
ERRORS_MOST = 300
# From TERM to KILL, for a program over its time.
GRACE_SECONDS = 5.0
# The same alert is said again after this.
ALERT_SECONDS = 60.0
_SHORTAGE = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN}


def unpack_program(text: bytes) -> tuple[bytes, ...]:
    """Return the program's words, none for our own delivery. Raises FormatError."""
    words = tuple(text.split())
    if words and not words[0].startswith(b"/"):
        raise FormatError(f"not the whole path of a program: {quoted(text)}")
    return words


class Programs:
    """Runs programs for a daemon, as many at once as there are jobs."""

    def __init__(self, home: Home, daemon: str) -> None:
        self._home = home
        self._daemon = daemon
        self._running: set[_Run] = set()
        self._said: dict[str, float] = {}

    async def deliver(self, words: tuple[bytes, ...], job: Job, message: Message, seconds: float) -> Report:
        """Run the program for a job; return its report. The caller closes the message."""
        try:
            run = _Run(self._start(words, job, message), asyncio.get_running_loop())
        except OSError as error:
            if error.errno in _SHORTAGE:
                return _deferred(job, NO_RESOURCES)
            return self._failed(words, job, reason(error))
        except ValueError as error:
            return self._failed(words, job, str(error))
        self._running.add(run)
        try:
            await run.wait(seconds)
        finally:
            self._running.discard(run)
            run.end()
        fault = run.fault()
        if fault is None:
            try:
                return Report(job.number, *unpack_reports(bytes(run.output), len(job.recipients)))
            except FormatError as error:
                fault = str(error)
        if run.errors:
            fault += f"; it said {quoted(bytes(run.errors))}"
        return self._failed(words, job, fault)

    def kill(self) -> None:
        """Nobody is left to report to: end all that run."""
        for run in self._running:
            run.kill(signal.SIGKILL)

    def _start(self, words: tuple[bytes, ...], job: Job, message: Message) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*words, job.nexthop, job.sender, *job.recipients],
            stdin=message.fileno(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self._home.path,
            env={**os.environ, "QUEUE_HOME": self._home.path},
            start_new_session=True,
            bufsize=0,
        )

    def _failed(self, words: tuple[bytes, ...], job: Job, why: str) -> Report:
        """Defer, and tell a person, but not for each message."""
        what = f"{os.fsdecode(words[0])}: {why}"
        now = time.monotonic()
        if self._said.get(what, -ALERT_SECONDS) <= now - ALERT_SECONDS:
            self._said = {text: said for text, said in self._said.items() if said > now - ALERT_SECONDS}
            self._said[what] = now
            complain(self._daemon, f"alert: unable to deliver by {what}; mail for it is deferred")
        return _deferred(job, program_failed(what))


class _Run:
    """One program that runs; `output` and `errors` are what it has said so far."""

    def __init__(self, process: subprocess.Popen[bytes], loop: asyncio.AbstractEventLoop) -> None:
        """Watch a program. Raises OSError; then it is gone."""
        assert process.stdout is not None and process.stderr is not None
        self.output = bytearray()
        self.errors = bytearray()
        self._process = process
        self._loop = loop
        self._late = self._flooding = False
        self._ended: asyncio.Future[None] = loop.create_future()
        self._pipes: dict[IO[bytes], tuple[bytearray, int]] = {
            process.stdout: (self.output, OUTPUT_MOST + 1),
            process.stderr: (self.errors, ERRORS_MOST),
        }
        try:
            self._pidfd = os.pidfd_open(process.pid)
        except OSError:
            self.kill(signal.SIGKILL)
            process.wait()
            process.stdout.close()
            process.stderr.close()
            raise
        for pipe in self._pipes:
            os.set_blocking(pipe.fileno(), False)
            loop.add_reader(pipe.fileno(), self._read, pipe)
        loop.add_reader(self._pidfd, self._exited)

    async def wait(self, seconds: float) -> None:
        """Wait until the program has exited, by itself or because its time is over."""
        timer = self._loop.call_later(seconds, self._overdue)
        last = self._loop.call_later(seconds + GRACE_SECONDS, self.kill, signal.SIGKILL)
        try:
            await self._ended
        finally:
            timer.cancel()
            last.cancel()

    def fault(self) -> str | None:
        """Return why its reports do not count, None where they do."""
        code = self._process.returncode
        if self._late:
            return "it took too long"
        if self._flooding:
            return f"it said more than {OUTPUT_MOST} bytes"
        if code is not None and code < 0:
            return f"it was killed by signal {-code}"
        return f"it exited {code}" if code else None

    def kill(self, number: int) -> None:
        """Send a signal to the program's whole session."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    def end(self) -> None:
        """Let go of it, and of what it may have left behind."""
        self.kill(signal.SIGKILL)
        self._process.wait()
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        for pipe in list(self._pipes):
            self._close(pipe)

    def _exited(self) -> None:
        self._loop.remove_reader(self._pidfd)
        self._process.poll()
        # What it said last is still in the pipes; a child of its own may keep them open for ever.
        for pipe in list(self._pipes):
            while pipe in self._pipes and self._read(pipe):
                pass
        if not self._ended.done():
            self._ended.set_result(None)

    def _overdue(self) -> None:
        self._late = True
        self.kill(signal.SIGTERM)

    def _read(self, pipe: IO[bytes]) -> bool:
        """Keep what there is to read, as far as it is wanted; return whether there may be more."""
        kept, most = self._pipes[pipe]
        try:
            data = os.read(pipe.fileno(), 65536)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self._close(pipe)
            return False
        kept += data[: most - len(kept)]
        if len(self.output) > OUTPUT_MOST:
            self._flooding = True
            self.kill(signal.SIGKILL)
            return False
        return True

    def _close(self, pipe: IO[bytes]) -> None:
        del self._pipes[pipe]
        self._loop.remove_reader(pipe.fileno())
        pipe.close()


def _deferred(job: Job, text: bytes) -> Report:
    return Report(job.number, MESSAGE_SCOPE, [(TEMPORARY, text)] * len(job.recipients))
