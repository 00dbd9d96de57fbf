"""queue-local's side of the forwards: the forwarder's pipes, what it has to do, and a time limit for each.

The forwarder is forked at the start, and again for the next forward after it has died; what it had is deferred. One
whose answer is late hangs, as the disk may: it is killed, and until it is gone all forwards are deferred at once.
`prepare` and `run` are the loop's pair.
"""

import math
import os
import select
import signal
import time

from queue_base.errors import complain, reason
from queue_base.home import Home
from queue_base.pipes import OutPipe, PeerLost, read_available
from queue_local.deliveries import Ended
from queue_local.forward import Answer, Request, pack_request, unpack_answer
from queue_local.forwarder import run_forwarder
from queue_wire import report as verdict
from queue_wire.format_error import FormatError
from queue_wire.framing import NetstringReader
from queue_wire.report import MESSAGE_SCOPE, Report

_ANSWER_MOST = 1 << 16


class _Process:
    """A forwarder that runs: its pid and our ends of its pipes. Raises OSError."""

    def __init__(self, home: Home) -> None:
        requests, to_it = os.pipe()
        try:
            from_it, answers = os.pipe()
        except OSError:
            os.close(requests)
            os.close(to_it)
            raise
        try:
            self.pid = os.fork()
            if not self.pid:
                run_forwarder(home, requests, answers)
        except OSError:
            os.close(to_it)
            os.close(from_it)
            raise
        finally:
            os.close(requests)
            os.close(answers)
        os.set_blocking(from_it, False)
        self.requests, self.answers = OutPipe(to_it), from_it
        self.reader = NetstringReader(_ANSWER_MOST)
        self.killed = False

    def kill(self) -> None:
        self.killed = True
        os.kill(self.pid, signal.SIGKILL)

    def let_go(self) -> None:
        """Close our ends; it ends when it has done what it has read."""
        os.close(self.requests.descriptor)
        os.close(self.answers)

    def reap(self) -> int:
        """Return the exit code of one that has closed its end."""
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


class Forwards:
    """The forwards that are not yet answered, by job number."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._pending: dict[int, tuple[Ended, float]] = {}
        self._process: _Process | None = None
        self._finish_at = math.inf
        self._start()

    def __len__(self) -> int:
        return len(self._pending)

    def take(self, ended: Ended, seconds: float) -> Report | None:
        """Return the report of a delivery that ended; None where its forward is made first, within `seconds`."""
        if ended.forward is None:
            return _report(ended, ended.letter, ended.text)
        if self._process is not None and self._process.killed:
            return _deferral(ended, "the disk, or the forwarder, hangs")
        why = self._start()
        if self._process is None:
            return _deferral(ended, why)
        try:
            self._process.requests.put(pack_request(Request(ended.job.number, ended.job.path, ended.forward)))
        except FormatError as error:
            return _deferral(ended, str(error))
        # Its recipients are on their way; only the text is needed now.
        late = min(time.monotonic() + seconds, self._finish_at)
        self._pending[ended.job.number] = ended._replace(forward=None), late
        return None

    def finish(self, seconds: float) -> None:
        """Give no forward more than so many seconds from now."""
        self._finish_at = time.monotonic() + seconds
        self._pending = {number: (ended, min(late, self._finish_at)) for number, (ended, late) in self._pending.items()}

    def prepare(self, poll: select.poll) -> float | None:
        """Register what to wait for; return the seconds until a forward is late, None for never."""
        if self._process is not None:
            poll.register(self._process.answers, select.POLLIN)
            if self._process.requests.held:
                poll.register(self._process.requests.descriptor, select.POLLOUT)
        times = [late for _, late in self._pending.values()]
        return max(0.0, min(times) - time.monotonic()) if times else None

    def run(self, ready: set[int]) -> list[Report]:
        """Send requests, read answers, look at the time; return the reports of what is decided."""
        reports: list[Report] = []
        process = self._process
        if process is not None:
            try:
                if not process.killed:
                    process.requests.flush()
                if process.answers in ready:
                    process.reader.feed(read_available(process.answers) or b"")
                    while (payload := process.reader.next()) is not None:
                        reports += self._answered(unpack_answer(payload))
            except FormatError as error:
                complain("queue-local", f"alert: unable to understand the forwarder: {error}; its mail is deferred")
                process.kill()
                reports += self._lost(process)
            except PeerLost:
                reports += self._lost(process)
        return reports + self._look_at_time()

    def close(self) -> None:
        """End the forwarder; it has nothing left to do, or nobody hears of it."""
        if self._process is not None:
            self._process.let_go()
        self._process = None

    def _start(self) -> str:
        """Fork a forwarder if there is none; return why there is none then."""
        if self._process is None:
            try:
                self._process = _Process(self._home)
            except OSError as error:
                return f"unable to start the forwarder: {reason(error)}"
        return ""

    def _answered(self, answer: Answer) -> list[Report]:
        if answer.number not in self._pending:
            return []  # It was late.
        ended, _ = self._pending.pop(answer.number)
        return [_report(ended, answer.letter, (ended.text if answer.letter == verdict.SUCCESS else b"") + answer.text)]

    def _lost(self, process: _Process) -> list[Report]:
        self._process = None
        process.let_go()
        code = process.reap()
        why = f"the forwarder ended by signal {-code}" if code < 0 else f"the forwarder ended with code {code}"
        complain("queue-local", f"alert: {why}; its mail is deferred, and the next one has a new forwarder")
        reports = [_deferral(ended, why) for ended, _ in self._pending.values()]
        self._pending.clear()
        return reports

    def _look_at_time(self) -> list[Report]:
        now = time.monotonic()
        late = [number for number, (_, until) in self._pending.items() if now >= until]
        if late and self._process is not None and not self._process.killed:
            complain("queue-local", f"alert: {len(late)} forwards took too long; the forwarder is killed")
            self._process.kill()
        return [_deferral(self._pending.pop(number)[0], "it took too long") for number in late]


def _report(ended: Ended, letter: bytes, text: bytes) -> Report:
    return Report(ended.job.number, MESSAGE_SCOPE, [(letter, text)])


def _deferral(ended: Ended, why: str) -> Report:
    text = f"Unable to forward message: {why}. (#4.3.0)\n"
    return _report(ended, verdict.TEMPORARY, text.encode("utf-8", "surrogateescape"))
