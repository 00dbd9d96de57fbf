"""The deliveries in flight: one process each, one pipe each, a time limit each.

`start` forks; `prepare` and `run` are the loop's pair: they wait for the pipes, and turn each process
that has ended into a verdict. A process whose time is up ends by itself; if it cannot, it is killed.
"""

import os
import select
import signal
import time
from collections.abc import Callable

from queue_base.errors import PERMANENT, Temporary, reason
from queue_base.pipes import PeerLost, read_available
from queue_local.child import run_child
from queue_wire import report as verdict
from queue_wire.job import Job
from queue_wire.report import MESSAGE_SCOPE, Report

# How long after its time a process may clean up before it is killed.
GRACE = 30.0
_LETTERS = {0: verdict.SUCCESS, PERMANENT: verdict.PERMANENT}


class _Delivery:
    """A process in flight: the job's number, its pid, our end of its pipe, when to kill it, what it said."""

    __slots__ = ("kill_at", "number", "pid", "pipe", "text")

    def __init__(self, number: int, pid: int, pipe: int, kill_at: float) -> None:
        self.number = number
        self.pid = pid
        self.pipe = pipe
        self.kill_at = kill_at
        self.text = b""


class Deliveries:
    """At most `limit` processes."""

    def __init__(self, limit: int, grace: float = GRACE) -> None:
        self.limit = limit
        self._grace = grace
        self._running: dict[int, _Delivery] = {}

    def __len__(self) -> int:
        return len(self._running)

    @property
    def room(self) -> int:
        """How many more can be started now."""
        return self.limit - len(self._running)

    def start(self, job: Job, work: Callable[[int], str], message: int, seconds: int) -> None:
        """Fork a process for the job. Raises Temporary. `message` stays the caller's to close."""
        try:
            pipe, writer = os.pipe()
        except OSError as error:
            raise Temporary(f"Unable to make a pipe for a delivery: {reason(error)}. (#4.3.0)") from error
        try:
            pid = os.fork()
            if not pid:
                run_child(work, message, writer, seconds)
        except OSError as error:
            os.close(pipe)
            raise Temporary(f"Unable to fork: {reason(error)}. (#4.3.0)") from error
        finally:
            os.close(writer)
        os.set_blocking(pipe, False)
        self._running[pipe] = _Delivery(job.number, pid, pipe, time.monotonic() + seconds + self._grace)

    def prepare(self, poll: select.poll) -> float | None:
        """Register what to wait for; return the seconds until a process has to be killed, None for never."""
        for pipe in self._running:
            poll.register(pipe, select.POLLIN)
        times = [delivery.kill_at for delivery in self._running.values()]
        return max(0.0, min(times) - time.monotonic()) if times else None

    def run(self, ready: set[int]) -> list[Report]:
        """Read from the ready pipes, kill what is over its time; return the reports of what has ended."""
        reports = []
        for pipe in ready & self._running.keys():
            delivery = self._running[pipe]
            try:
                delivery.text += read_available(pipe) or b""
            except PeerLost:
                reports.append(self._finish(delivery))
        now = time.monotonic()
        for delivery in self._running.values():
            if now >= delivery.kill_at:
                os.kill(delivery.pid, signal.SIGKILL)
                # Its pipe ends with it. A process that hangs in the kernel keeps its place until then.
                delivery.kill_at = now + self._grace
        return reports

    def _finish(self, delivery: _Delivery) -> Report:
        # The pipe is at its end, so the process is past its last line: this waits for no work of its.
        code = os.waitstatus_to_exitcode(os.waitpid(delivery.pid, 0)[1])
        os.close(delivery.pipe)
        del self._running[delivery.pipe]
        letter, text = _LETTERS.get(code, verdict.TEMPORARY), delivery.text
        if code < 0:
            text = b"Delivery process ended by signal %d. (#4.3.0)\n" % -code
        elif not text:
            text = b"Delivery process ended without a word, exit code %d. (#4.3.0)\n" % code
        return Report(delivery.number, MESSAGE_SCOPE, [(letter, text)])
