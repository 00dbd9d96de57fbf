"""The deliveries in flight: one process each, one pipe each, a time limit each.

`start` forks; `prepare` and `run` are the loop's pair: they wait for the pipes, and turn each process
that has ended into its end. A process whose time is up ends by itself; if it cannot, its whole session is killed.
`finish` sets a time for all of them, at which they are told to end.
"""

import math
import os
import select
import signal
import time
from collections.abc import Callable
from typing import NamedTuple

from queue_base.errors import PERMANENT, Temporary, reason
from queue_base.pipes import PeerLost, read_available
from queue_local.child import run_child
from queue_local.program import Interrupted
from queue_local.result import RESULT_MAX, Forward, Outcome, unpack_result
from queue_local.session import end_session
from queue_wire import report as verdict
from queue_wire.format_error import FormatError
from queue_wire.job import Job

# How long after its time a process may clean up before it is killed.
GRACE = 30.0
# The same for one that was told to end: queue-send waits for it, and its supervisor for queue-send.
LAST_GRACE = 10.0
_LETTERS = {0: verdict.SUCCESS, PERMANENT: verdict.PERMANENT}


class Ended(NamedTuple):
    """How a delivery ended: its job, a letter and text for the report, and the forward that is still to be made."""

    job: Job
    letter: bytes
    text: bytes
    forward: Forward | None


class _Delivery:
    """A process in flight: its job, its pid, our end of its pipe, when to kill it, what it said.

    `told`: it was told to end.
    """

    __slots__ = ("data", "job", "kill_at", "pid", "pipe", "told")

    def __init__(self, job: Job, pid: int, pipe: int, kill_at: float) -> None:
        self.job = job
        self.pid = pid
        self.pipe = pipe
        self.kill_at = kill_at
        self.told = False
        self.data = bytearray()

    def tell_to_end(self, grace: float) -> None:
        """Have it end its program and clean up, also where it is stopped; it is killed after `grace` seconds."""
        self.told = True
        self.kill_at = min(self.kill_at, time.monotonic() + grace)
        # It is not reaped yet, so that its number is nobody else's.
        os.kill(self.pid, signal.SIGTERM)
        os.kill(self.pid, signal.SIGCONT)


class Deliveries:
    """At most `limit` processes."""

    def __init__(self, limit: int, grace: float = GRACE) -> None:
        self.limit = limit
        self._grace = grace
        self._running: dict[int, _Delivery] = {}
        self._finish_at = math.inf

    def __len__(self) -> int:
        return len(self._running)

    @property
    def room(self) -> int:
        """How many more can be started now."""
        return self.limit - len(self._running)

    def start(self, job: Job, work: Callable[[int], Outcome], message: int, seconds: int) -> None:
        """Fork a process for the job. Raises Temporary. `message` stays the caller's to close."""
        try:
            pipe, writer = os.pipe()
        except OSError as error:
            raise Temporary(f"Unable to make a pipe for a delivery: {reason(error)}. (#4.3.0)") from error
        # It ignores TERM until it has its handlers, as we do; one that comes before that must wait for them.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        try:
            pid = os.fork()
            if not pid:
                run_child(work, message, writer, seconds)
        except OSError as error:
            os.close(pipe)
            raise Temporary(f"Unable to fork: {reason(error)}. (#4.3.0)") from error
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            os.close(writer)
        os.set_blocking(pipe, False)
        self._running[pipe] = _Delivery(job, pid, pipe, time.monotonic() + seconds + self._grace)

    def finish(self, seconds: float) -> None:
        """Have what runs after so many seconds told to end, and what is started after that at once."""
        self._finish_at = time.monotonic() + seconds

    def prepare(self, poll: select.poll) -> float | None:
        """Register what to wait for; return the seconds until a process has to be ended, None for never."""
        for pipe in self._running:
            poll.register(pipe, select.POLLIN)
        times = [min(each.kill_at, math.inf if each.told else self._finish_at) for each in self._running.values()]
        return max(0.0, min(times) - time.monotonic()) if times else None

    def run(self, ready: set[int]) -> list[Ended]:
        """Read from the ready pipes, end what is over its time; return what has ended."""
        ended = []
        for pipe in ready & self._running.keys():
            delivery = self._running[pipe]
            try:
                delivery.data += read_available(pipe) or b""
            except PeerLost:
                ended.append(self._reap(delivery))
                continue
            if len(delivery.data) > 2 * RESULT_MAX:
                # No delivery of ours says so much.
                delivery.data.clear()
                delivery.kill_at = 0.0
        now = time.monotonic()
        for delivery in self._running.values():
            if now >= self._finish_at and not delivery.told:
                delivery.tell_to_end(min(self._grace, LAST_GRACE))
            if now >= delivery.kill_at:
                end_session(delivery.pid)
                # Its pipe ends with it. A process that hangs in the kernel keeps its place until then.
                delivery.kill_at = now + self._grace
        return ended

    def _reap(self, delivery: _Delivery) -> Ended:
        # The pipe is at its end, so the process is past its last line: this waits for no work of its.
        found = os.waitid(os.P_PID, delivery.pid, os.WEXITED | os.WNOWAIT)
        if found is not None and (found.si_code != os.CLD_EXITED or found.si_status == Interrupted.exit_code):
            # Before it is reaped, as its number is the session's. Its program must not outlive it.
            end_session(delivery.pid)
        code = os.waitstatus_to_exitcode(os.waitpid(delivery.pid, 0)[1])
        os.close(delivery.pipe)
        del self._running[delivery.pipe]
        return _end(delivery.job, code, bytes(delivery.data))


def _end(job: Job, code: int, data: bytes) -> Ended:
    """Return what an exit code and the bytes on the pipe say; what cannot be understood is a deferral."""
    if code < 0:
        return Ended(job, verdict.TEMPORARY, b"Delivery process ended by signal %d. (#4.3.0)\n" % -code, None)
    if not data:
        text = b"Delivery process ended without a word, exit code %d. (#4.3.0)\n" % code
        return Ended(job, verdict.TEMPORARY, text, None)
    try:
        text, forward = unpack_result(data)
    except FormatError:
        return Ended(job, verdict.TEMPORARY, b"Delivery process said what cannot be understood. (#4.3.5)\n", None)
    return Ended(job, _LETTERS.get(code, verdict.TEMPORARY), text, None if code else forward)
