"""control/remoteprogram: a program with qmail-remote's contract delivers instead of queue-remote.

    /path/program [argument ...]               all mail
    nexthop:/path/program [argument ...]       mail for that nexthop, or of that sender's domain
    nexthop:                                   mail for that nexthop is delivered by queue-remote

Keys are those of queue_wire.control.choices. Words are separated by spaces; there is no shell. The program gets host,
sender and recipients after its own words, the message on fd 0, and writes its reports (qmail-remote(8)) to fd 1; it
must exit 0. It runs in its own session, in the home, with QUEUE_HOME set. If it cannot be started, crashes, exits with
another code (qmail-rspawn would bounce the mail then), reports nothing, or exceeds its time, the mail is deferred with
an alert and its session is killed.

Mail for a domain that begins with `-` fails: no host name does, and the program could take it for an option.
"""

import asyncio
import contextlib
import errno
import itertools
import os
import re
import signal
import subprocess
import time
from collections.abc import Sequence
from typing import IO

from queue_base.errors import complain, reason
from queue_base.home import Home
from queue_remote.job_parts import PartOutcome
from queue_remote.message.file import Message
from queue_remote.report_text import NO_RESOURCES, Verdict, program_failed
from queue_remote.route.unroutable import no_host
from queue_smtp.reply import TEXT_MAX, clean
from queue_wire.format_error import FormatError
from queue_wire.pipes.report import HOST_SCOPE, MESSAGE_SCOPE, PERMANENT, SUCCESS, TEMPORARY

# The same alert is logged once in this time.
ALERT_SECONDS = 60.0
# Far more than the reports on a thousand recipients.
OUTPUT_MAX = 256 * 1024
# Bytes of stderr that are kept for the alert.
ERRORS_MAX = 300
# Bytes read after the program has exited: twice what a pipe holds. A process that it left behind may write for ever.
LAST_MAX = 2 * 65536
# From TERM to KILL, for a program that exceeds its time.
GRACE_SECONDS = 5.0

_SHORTAGE = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN}
_RANK = {SUCCESS: 1, TEMPORARY: 0, PERMANENT: -1}
_REFUSED = {b"h": PERMANENT, b"s": TEMPORARY}
# The records that count; a program may write very many others.
_RECIPIENT = re.compile(rb"(?:\A|(?<=\0))([rhs])([^\0]*)\0")
_MESSAGE = re.compile(rb"(?:\A|(?<=\0))([KZD])([^\0]*)\0")
_UNCERTAIN = b"The program said that it was done, and nothing about this recipient. (#4.3.0)\n"
# A status about the network or the route (RFC 3463 section 3.5), as qmail-remote writes it.
_HOST_TROUBLE = re.compile(rb"\(#4\.4\.[0-9]+\)")


class Programs:
    """Runs programs for the daemon, as many at once as there are jobs."""

    def __init__(self, home: Home, daemon: str) -> None:
        self._home = home
        self._daemon = daemon
        self._running: set[ProgramRun] = set()
        # Alerts, and when they were logged.
        self._alerts: dict[str, float] = {}

    async def deliver(
        self, words: tuple[bytes, ...], arguments: list[bytes], message: Message, seconds: float
    ) -> PartOutcome:
        """Run the program with host, sender and recipients; return the outcome. The caller closes the message."""
        host, _, *recipients = arguments
        if host.startswith(b"-"):
            return PartOutcome(MESSAGE_SCOPE, [(PERMANENT, no_host(host))] * len(recipients))
        try:
            run = ProgramRun(self._start([*words, *arguments], message), asyncio.get_running_loop())
        except OSError as error:
            if error.errno in _SHORTAGE:
                return PartOutcome(MESSAGE_SCOPE, [(TEMPORARY, NO_RESOURCES)] * len(recipients))
            return self._fail(words, len(recipients), reason(error))
        except ValueError as error:
            return self._fail(words, len(recipients), str(error))
        self._running.add(run)
        try:
            await run.wait(seconds)
        finally:
            self._running.discard(run)
            run.end()
        fault = run.fault()
        if fault is None:
            try:
                return unpack_reports(bytes(run.output), len(recipients))
            except FormatError as error:
                fault = str(error)
        return self._fail(words, len(recipients), fault, bytes(run.errors))

    def kill(self) -> None:
        """Kill all programs that run."""
        for run in self._running:
            run.kill(signal.SIGKILL)

    def _start(self, command: list[bytes], message: Message) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command,
            stdin=message.fileno(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self._home.path,
            env={**os.environ, "QUEUE_HOME": self._home.path},
            start_new_session=True,
            bufsize=0,
        )

    def _fail(self, words: tuple[bytes, ...], recipients: int, why: str, errors: bytes = b"") -> PartOutcome:
        """Defer the mail, and log an alert unless the same was logged lately. `errors` is shown in the alert only."""
        what = f"{os.fsdecode(words[0])}: {why}"
        now = time.monotonic()
        if self._alerts.get(what, -ALERT_SECONDS) <= now - ALERT_SECONDS:
            self._alerts = {text: logged for text, logged in self._alerts.items() if logged > now - ALERT_SECONDS}
            self._alerts[what] = now
            text = errors.decode("utf-8", "replace")
            heard = "".join([char if char.isprintable() else " " for char in text]).strip()
            said = f"; it said: {heard}" if heard else ""
            complain(self._daemon, f"alert: unable to deliver by {what}; mail for it is deferred{said}")
        return PartOutcome(MESSAGE_SCOPE, [(TEMPORARY, program_failed(what))] * recipients)


class ProgramRun:
    """A running program; `output` and `errors` are what was read so far from its stdout and stderr."""

    def __init__(self, process: subprocess.Popen[bytes], loop: asyncio.AbstractEventLoop) -> None:
        """Watch a program on the event loop. If that fails, kills the program and raises OSError."""
        assert process.stdout is not None and process.stderr is not None
        self.output = bytearray()
        self.errors = bytearray()
        self._process = process
        self._loop = loop
        self._late = self._too_long = False
        self._ended: asyncio.Future[None] = loop.create_future()
        self._pipes: dict[IO[bytes], tuple[bytearray, int]] = {
            process.stdout: (self.output, OUTPUT_MAX + 1),
            process.stderr: (self.errors, ERRORS_MAX),
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
        loop.add_reader(self._pidfd, self._on_exit)

    async def wait(self, seconds: float) -> None:
        """Wait until the program has exited; after `seconds` it gets TERM, then KILL."""
        timer = self._loop.call_later(seconds, self._on_timeout)
        last = self._loop.call_later(seconds + GRACE_SECONDS, self.kill, signal.SIGKILL)
        try:
            await self._ended
        finally:
            timer.cancel()
            last.cancel()

    def fault(self) -> str | None:
        """Return why its reports are not used, None if they are."""
        code = self._process.returncode
        if self._late:
            return "it took too long"
        if self._too_long:
            return f"it said more than {OUTPUT_MAX} bytes"
        if code is not None and code < 0:
            return f"it was killed by signal {-code}"
        return f"it exited {code}" if code else None

    def kill(self, number: int) -> None:
        """Send a signal to the program's process group, which it leads: until it is reaped nobody else has its number.
        """
        if self._process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    def end(self) -> None:
        """Kill its process group if it runs, and close the pipes."""
        self.kill(signal.SIGKILL)
        self._process.wait()
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        for pipe in list(self._pipes):
            self._close(pipe)

    def _on_exit(self) -> None:
        self._loop.remove_reader(self._pidfd)
        self.kill(signal.SIGKILL)  # What it has left running.
        self._process.poll()
        # Its last output is still in the pipes; a child of its own may keep them open for ever.
        for pipe in list(self._pipes):
            left = LAST_MAX
            while left > 0 and pipe in self._pipes and (count := self._read(pipe)):
                left -= count
        if not self._ended.done():
            self._ended.set_result(None)

    def _on_timeout(self) -> None:
        self._late = True
        self.kill(signal.SIGTERM)

    def _read(self, pipe: IO[bytes]) -> int:
        """Read from a pipe, and keep as much as is wanted; return the number of bytes read, 0 if there were none."""
        kept, most = self._pipes[pipe]
        try:
            data = os.read(pipe.fileno(), 65536)
        except BlockingIOError:
            return 0
        except OSError:
            data = b""
        if not data:
            self._close(pipe)
            return 0
        kept += data[: most - len(kept)]
        if len(self.output) > OUTPUT_MAX:
            self._too_long = True
            self.kill(signal.SIGKILL)
            return 0
        return len(data)

    def _close(self, pipe: IO[bytes]) -> None:
        del self._pipes[pipe]
        self._loop.remove_reader(pipe.fileno())
        pipe.close()


def unpack_reports(data: bytes, count: int) -> PartOutcome:
    """Return the outcome for `count` recipients. Raises FormatError if there is no report on the message.

    Reports are a letter, text and a NUL (qmail-remote(8)), and are read as qmail-rspawn does:

        r  h  s    for each recipient in order: accepted, failed, deferred
        K  Z  D    then for the message: accepted, deferred, failed

    Everything after the first report on the message is ignored. Records with other letters are ignored. A program may
    report on the message alone, for all recipients. The scope is the nexthop's if the message is deferred without a
    report on any recipient, with a status 4.4.x: qmail-remote could not connect, or lost the connection.
    """
    message = _MESSAGE.search(data)
    if message is None:
        raise FormatError("no report on the message" if data else "no output")
    found = itertools.islice(_RECIPIENT.finditer(data, 0, message.start()), count)
    recipients = [(record[1], clean(record[2][:TEXT_MAX])) for record in found]
    letter, text = message[1], clean(message[2][:TEXT_MAX])
    host = letter == TEMPORARY and not recipients and _HOST_TROUBLE.search(text)
    return PartOutcome(HOST_SCOPE if host else MESSAGE_SCOPE, _complete(recipients, (letter, text), count))


def _complete(recipients: Sequence[Verdict], message: Verdict, count: int) -> list[Verdict]:
    """Return the verdicts on all recipients, from the reports on some of them and on the message."""
    found: list[Verdict] = []
    for letter, text in recipients:
        verdict = _REFUSED.get(letter, message[0])
        # As in qmail-rspawn: the text on the message is appended unless it is better than the recipient's.
        found.append((verdict, text + message[1] if _RANK[message[0]] <= _RANK[verdict] else text))
    rest = (TEMPORARY, _UNCERTAIN) if recipients and message[0] == SUCCESS else message
    return found + [rest] * (count - len(found))
