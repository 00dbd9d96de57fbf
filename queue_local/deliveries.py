"""The deliveries in flight: one process each, one pipe each, a time limit each.

`Deliveries.start` forks a process, which runs a function and reports its outcome (`run_child`): text and forward on a
pipe (queue_local.result), and an exit code: 0 success, 100 permanent, everything else temporary. `prepare` and `run`
are the loop's pair: they wait for the pipes and return the deliveries that have ended. A process whose time is over
ends itself; if it does not, it is killed. `finish` sets a time at which all of them are told to end.

Each process has a session of its own, in which its programs run. Whatever goes wrong in it is Temporary. If it did not
end by itself, its session is killed. A session may have tens of thousands of processes, so a process of its own does
that, and the loop goes on meanwhile.
"""

import math
import os
import select
import signal
import time
from collections.abc import Callable
from typing import NamedTuple, NoReturn

from queue_base.daemon.pipes import PeerLost, read_available
from queue_base.durable import write_all
from queue_base.errors import PERMANENT, TEMPORARY, Failure, Temporary, complain, reason
from queue_local.result import FORWARD_MAX, Outcome, pack_result, unpack_result
from queue_local.shell_command import Interrupted
from queue_wire.format_error import FormatError
from queue_wire.pipes import report as verdict
from queue_wire.pipes.job import Job

# Seconds after the timeout in which a process may clean up before it is killed.
GRACE = 30.0
# The same for a process that was told to end: queue-send waits for it, and the supervisor for queue-send.
LAST_GRACE = 10.0
_LETTERS = {0: verdict.SUCCESS, PERMANENT: verdict.PERMANENT}
# The descriptors of a delivery.
MESSAGE = 0
_NULL = 1
_PIECE = 1 << 16
_REPORT = 3
# How often /proc is searched for processes that were forked while the session was being killed.
_PASSES = 5


class Ended(NamedTuple):
    """How a delivery ended: its job, letter and text of the report, and the forward that is still to be queued.

    The forward is packed, and in pieces.
    """

    job: Job
    letter: bytes
    text: bytes
    forward: list[bytes] | None


class _DeliveryProcess:
    """The process of a delivery in flight: job, pid, our end of its pipe, when to kill it, and what it wrote.

    `is_ending` is true after it was told to end. `killer` is the pid of the process that kills its session.
    """

    __slots__ = ("data", "is_ending", "job", "kill_at", "killer", "pid", "pipe", "size")

    def __init__(self, job: Job, pid: int, pipe: int, kill_at: float) -> None:
        self.job = job
        self.pid = pid
        self.pipe = pipe
        self.kill_at = kill_at
        self.is_ending = False
        self.data: list[bytes] = []
        self.size = 0
        self.killer = 0

    def take(self, data: bytes) -> None:
        """Add what it wrote, as pieces that are neither large nor many."""
        self.size += len(data)
        if self.data and len(self.data[-1]) + len(data) <= _PIECE:
            data = self.data.pop() + data
        self.data.append(data)

    def tell_to_end(self, grace: float) -> None:
        """Tell it to end its program and clean up, even if it is stopped; it is killed after `grace` seconds."""
        self.is_ending = True
        self.kill_at = min(self.kill_at, time.monotonic() + grace)
        # It is not reaped yet, so its pid is not reused.
        os.kill(self.pid, signal.SIGTERM)
        os.kill(self.pid, signal.SIGCONT)


class Deliveries:
    """The deliveries in flight, at most `limit`."""

    def __init__(self, limit: int, grace: float = GRACE) -> None:
        self.limit = limit
        self._grace = grace
        self._running: dict[int, _DeliveryProcess] = {}
        # Those whose sessions are being killed, by the pidfds of the processes that do it.
        self._killed: dict[int, _DeliveryProcess] = {}
        self._finish_at = math.inf

    def __len__(self) -> int:
        return len(self._running) + len(self._killed)

    @property
    def room(self) -> int:
        """The number of deliveries that can be started now."""
        return self.limit - len(self)

    def start(self, job: Job, work: Callable[[int], Outcome], message: int, seconds: int) -> None:
        """Fork a process for the job, which calls `work`. The caller closes `message`. Raises Temporary."""
        try:
            pipe, writer = os.pipe()
        except OSError as error:
            raise Temporary(f"Unable to make a pipe for a delivery: {reason(error)}. (#4.3.0)") from error
        # The child ignores TERM, as queue-local does, until it has installed its handlers. Block TERM until then.
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
        self._running[pipe] = _DeliveryProcess(job, pid, pipe, time.monotonic() + seconds + self._grace)

    def finish(self, seconds: float) -> None:
        """Tell deliveries to end after so many seconds, and those that are started later at once."""
        self._finish_at = time.monotonic() + seconds

    def prepare(self, poll: select.poll) -> float | None:
        """Register the pipes; return the seconds until a process has to be ended, None for never."""
        for descriptor in (*self._running, *self._killed):
            poll.register(descriptor, select.POLLIN)
        times = [min(each.kill_at, math.inf if each.is_ending else self._finish_at) for each in self._running.values()]
        return max(0.0, min(times) - time.monotonic()) if times else None

    def run(self, ready: set[int]) -> list[Ended]:
        """Read from ready pipes, end processes whose time is over; return the deliveries that have ended."""
        ended = []
        for pidfd in ready & self._killed.keys():
            delivery = self._killed.pop(pidfd)
            os.close(pidfd)
            os.waitpid(delivery.killer, 0)
            ended.append(_reap(delivery))
        for pipe in ready & self._running.keys():
            delivery = self._running[pipe]
            try:
                delivery.take(read_available(pipe) or b"")
            except PeerLost:
                del self._running[pipe]
                os.close(pipe)
                if not (_is_interrupted(delivery) and self._kill_session(delivery)):
                    ended.append(_reap(delivery))
                continue
            if delivery.size > 2 * FORWARD_MAX:
                # No delivery writes so much.
                delivery.data, delivery.size = [], 0
                delivery.kill_at = 0.0
        now = time.monotonic()
        for delivery in self._running.values():
            if now >= self._finish_at and not delivery.is_ending:
                delivery.tell_to_end(min(self._grace, LAST_GRACE))
            if now >= delivery.kill_at:
                os.kill(delivery.pid, signal.SIGKILL)
                # Its pipe closes when it dies, and its session is killed then. A process that hangs in the kernel keeps
                # its place until then.
                delivery.kill_at = now + self._grace
        return ended

    def _kill_session(self, delivery: _DeliveryProcess) -> bool:
        """Have its session killed by another process; return False if that is done, since there can be no process."""
        try:
            killer = os.fork()
            if not killer:
                _run_killer(delivery.pid)
        except OSError:
            end_session(delivery.pid)
            return False
        delivery.killer = killer
        try:
            self._killed[os.pidfd_open(killer)] = delivery
        except OSError:
            os.waitpid(killer, 0)
            return False
        return True


def _is_interrupted(delivery: _DeliveryProcess) -> bool:
    """Return whether it did not end by itself: its program must not outlive it."""
    # The pipe is closed, so the process is exiting: this does not wait for its work.
    found = os.waitid(os.P_PID, delivery.pid, os.WEXITED | os.WNOWAIT)
    return found is not None and (found.si_code != os.CLD_EXITED or found.si_status == Interrupted.exit_code)


def _reap(delivery: _DeliveryProcess) -> Ended:
    """Return the end of a delivery. Until now its pid has identified its session."""
    code = os.waitstatus_to_exitcode(os.waitpid(delivery.pid, 0)[1])
    return _end(delivery.job, code, delivery.data if delivery.size else [])


def _run_killer(leader: int) -> NoReturn:
    """Kill a session, in a process of its own."""
    try:
        # Nothing of queue-local's may stay open here.
        os.closerange(0, os.sysconf("SC_OPEN_MAX"))
        end_session(leader)
    finally:
        os._exit(0)


def _end(job: Job, code: int, data: list[bytes]) -> Ended:
    """Return the result that an exit code and the bytes on the pipe mean; if they cannot be parsed, a deferral."""
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


def run_child(work: Callable[[int], Outcome], message: int, report: int, seconds: int) -> NoReturn:
    """Call `work(message descriptor)` in the child, report what it returns or raises, and end the process.

    After `seconds`, or at TERM, the work is interrupted, cleans up and is Temporary.
    """
    code = TEMPORARY
    try:
        code, data = _run(work, message, report, seconds)
        _take_no_more_signals()
        write_all(_REPORT, data)
    finally:
        # Nothing of the parent (its loop, buffers, exit handlers) may run in the child.
        os._exit(code)


def _run(work: Callable[[int], Outcome], message: int, report: int, seconds: int) -> tuple[int, bytes]:
    """Return the exit code and the result of `work`, whatever it raises."""
    try:
        os.setsid()
        told = _told_before()
        _arrange(message, report)
        _take_signals(seconds)
        if told:
            os.kill(os.getpid(), signal.SIGTERM)
        outcome = work(MESSAGE)
        return 0, pack_result(_encode(outcome.text), outcome.forward)
    except Failure as error:
        return error.exit_code, pack_result(_encode(str(error)))
    except FormatError as error:
        return TEMPORARY, pack_result(_encode(f"Unable to forward message: {error}. (#4.3.0)"))
    except BaseException as error:
        complain("queue-local", f"alert: internal error in a delivery: {error!r}; it is deferred")
        return TEMPORARY, pack_result(_encode(f"Internal error: {type(error).__name__}: {error}. (#4.3.0)"))


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _told_before() -> bool:
    """Return whether queue-local has sent TERM already; discard a TERM that was sent to queue-local's process group.

    TERM has been blocked since before the fork, and this process was in that group until setsid. queue-local ignores
    such a signal and lets its deliveries finish.
    """
    found = signal.sigtimedwait({signal.SIGTERM}, 0)
    return found is not None and found.si_pid == os.getppid()


def _take_signals(seconds: int) -> None:
    """Undo queue-local's signal settings for this process and its programs; set an alarm as the time limit."""
    for number in signal.SIGINT, signal.SIGHUP:
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, _told_to_end)
    signal.signal(signal.SIGALRM, _timeout)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    signal.alarm(seconds)


def _arrange(message: int, report: int) -> None:
    """Put the message on 0, /dev/null on 1, the report pipe on 3, and close all others.

    A delivery that hangs must not keep the job pipe or the report pipe of queue-local open.
    """
    spare = os.open("/dev/null", os.O_WRONLY)
    # First move them above the fixed numbers, so that none is overwritten.
    message, report, spare = (_above(handle) for handle in (message, report, spare))
    os.dup2(message, MESSAGE)
    os.dup2(spare, _NULL)
    os.dup2(report, _REPORT, inheritable=False)
    os.closerange(_REPORT + 1, os.sysconf("SC_OPEN_MAX"))


def _above(handle: int) -> int:
    while handle <= _REPORT:
        handle = os.dup(handle)
    return handle


def _take_no_more_signals() -> None:
    """Ignore signals during clean-up and report. If they take too long, queue-local kills the session."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, signal.SIG_IGN)


def _timeout(number: int, frame: object) -> None:
    _take_no_more_signals()
    raise Interrupted("Timeout on delivery")


def _told_to_end(number: int, frame: object) -> None:
    _take_no_more_signals()
    raise Interrupted("Delivery process was told to end")


def end_session(leader: int) -> None:
    """Kill every process of the session, the leader first, so that it does not go on without its program.

    The leader must not have been reaped: until then its number is not reused for another session. A process that has
    made a session of its own is not found, and lives on.
    """
    _kill(leader, leader)
    for _ in range(_PASSES):
        # The leader is a zombie now, until queue-local reaps it.
        found = [pid for pid in _pids() if pid != leader and _session(pid) == leader and _kill(pid, leader)]
        if not found:
            break


def _pids() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def _session(pid: int) -> int | None:
    """Return the session of a process, None if the process does not exist."""
    try:
        return os.getsid(pid)
    except OSError:
        return None


def _kill(pid: int, session: int) -> bool:
    """Kill a process if it belongs to the session; return whether it was alive."""
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        # Check again: with the pidfd open, the pid cannot be reused.
        if os.getsid(pid) == session:
            signal.pidfd_send_signal(handle, signal.SIGKILL)
            return True
    except OSError:
        pass
    finally:
        os.close(handle)
    return False
