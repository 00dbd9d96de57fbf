"""control/remoteprogram: a program with qmail-remote's contract delivers in our place.

    /path/program [argument ...]               all mail
    nexthop:/path/program [argument ...]       that nexthop's; keys are choices.py's, by sender's domain as well
    nexthop:                                   not that nexthop's: we deliver it

Words are divided by spaces; no shell sees them. The program gets, after its own words, host, sender and recipients;
the message is its fd 0, reports go to its fd 1 (queue_remote.remote_reports), and it exits 0. It runs in a session of
its own, in the home, with QUEUE_HOME set. One that cannot be started, crashes, exits with another code (qmail-rspawn
would bounce then), reports nothing, or takes too long defers the mail, with an alert, and its session is killed.
Mail for a domain that begins with `-`, as no host does, fails: whoever wrote the address gives no program its options.
"""

import asyncio
import errno
import os
import signal
import subprocess
import time

from queue_base.errors import complain, reason
from queue_base.home import Home
from queue_remote.message.file import Message
from queue_remote.program_run import Run
from queue_remote.remote_reports import unpack_reports
from queue_remote.route.text import no_host
from queue_smtp.text import NO_RESOURCES, program_failed
from queue_wire.format_error import FormatError, quoted
from queue_wire.job import Job
from queue_wire.report import MESSAGE_SCOPE, PERMANENT, TEMPORARY, Report

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
        self._running: set[Run] = set()
        self._said: dict[str, float] = {}

    async def deliver(self, words: tuple[bytes, ...], job: Job, message: Message, seconds: float) -> Report:
        """Run the program for a job; return its report. The caller closes the message."""
        if job.nexthop.startswith(b"-"):
            return Report(job.number, MESSAGE_SCOPE, [(PERMANENT, no_host(job.nexthop))] * len(job.recipients))
        try:
            run = Run(self._start(words, job, message), asyncio.get_running_loop())
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
        return self._failed(words, job, fault, bytes(run.errors))

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

    def _failed(self, words: tuple[bytes, ...], job: Job, why: str, errors: bytes = b"") -> Report:
        """Defer, and tell a person, but not for each message. What it said on stderr is for that person only."""
        what = f"{os.fsdecode(words[0])}: {why}"
        now = time.monotonic()
        if self._said.get(what, -ALERT_SECONDS) <= now - ALERT_SECONDS:
            self._said = {text: said for text, said in self._said.items() if said > now - ALERT_SECONDS}
            self._said[what] = now
            heard = "".join([char if char.isprintable() else " " for char in errors.decode("utf-8", "replace")]).strip()
            said = f"; it said: {heard}" if heard else ""
            complain(self._daemon, f"alert: unable to deliver by {what}; mail for it is deferred{said}")
        return _deferred(job, program_failed(what))


def _deferred(job: Job, text: bytes) -> Report:
    return Report(job.number, MESSAGE_SCOPE, [(TEMPORARY, text)] * len(job.recipients))
