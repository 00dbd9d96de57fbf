"""Process 1 of a container: reaps whatever ends there, and passes signals on.

The kernel makes process 1 the parent of each process whose own parent has ended, as that of a delivery's program may.
Whoever starts a daemon as process 1 gets it as a child of a small process that does nothing else, so that no daemon has
to know the children of others from its own. When the daemon has ended, its exit code is that of process 1, which waits
a little for the daemons that end after it: with process 1 the kernel kills them.
"""

import os
import signal
import time

from queue_base.daemon.inherited_sockets import PID

FIRST = 1
LAST_WAIT = 8.0  # Seconds; 10 seconds after its TERM, docker kills the container.
_PASSED_ON = frozenset(
    (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
)


def leave_process_one() -> None:
    """If this is process 1, return in a child, whose init this process is until its end; else return at once."""
    if os.getpid() != FIRST:
        return
    # Of process 1 the kernel drops a signal without a handler, unless it is blocked.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    child = os.fork()
    if child == 0:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if os.environ.get(PID) == str(FIRST):
            os.environ[PID] = str(os.getpid())  # The sockets that process 1 was given are ours.
        return
    # It must not keep the sockets, or the supervisor's descriptor, of what it has started.
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os._exit(_attend(child))


def _attend(child: int) -> int:
    """Reap until a child and, for LAST_WAIT, all others have ended; return the child's exit code."""
    code: int | None = None
    until = float("inf")
    while True:
        try:
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == child:
                    found = os.waitstatus_to_exitcode(ended[1])
                    # As a shell says it.
                    code = found if found >= 0 else 128 - found
                    until = time.monotonic() + LAST_WAIT
        except ChildProcessError:
            return 111 if code is None else code
        if code is not None and time.monotonic() >= until:
            return code
        wait = 3600.0 if code is None else max(0.0, until - time.monotonic())
        taken = signal.sigtimedwait(_PASSED_ON | {signal.SIGCHLD}, wait)
        if taken is None or taken.si_signo == signal.SIGCHLD:
            continue
        if code is not None:
            return code
        os.kill(child, taken.si_signo)
