"""The process that makes one delivery: it runs a function and says how it went, in exit code and text.

The parent reads the text, and the forward if there is one, from a pipe (queue_local.result) and the exit
code from wait: 0 success, 100 permanent, anything else temporary. The process always ends here; whatever goes wrong in
it is Temporary. It has a session of its own, in which its programs run, and queue-local's ignored signals count
for none of them.
"""

import os
import signal
from collections.abc import Callable
from typing import NoReturn

from queue_base.durable import write_all
from queue_base.errors import TEMPORARY, Failure, complain
from queue_local.program import Interrupted
from queue_local.result import Outcome, pack_result
from queue_wire.format_error import FormatError

# Where a delivery finds its descriptors.
MESSAGE = 0
_NULL = 1
_REPORT = 3


def run_child(work: Callable[[int], Outcome], message: int, report: int, seconds: int) -> NoReturn:
    """Call `work(message descriptor)`, report what it returns or raises, and end the process.

    After `seconds`, or at TERM, whatever it does is interrupted, cleans up after itself and is Temporary.
    """
    code = TEMPORARY
    try:
        code, data = _run(work, message, report, seconds)
        _take_no_more_signals()
        write_all(_REPORT, data)
    finally:
        # Nothing of the parent's (its loop, buffers, exit handlers) may run in here.
        os._exit(code)


def _run(work: Callable[[int], Outcome], message: int, report: int, seconds: int) -> tuple[int, bytes]:
    """Return exit code and result; whatever `work` raises has both."""
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
    """Return whether queue-local has sent TERM already, and drop one that was sent to queue-local's whole group.

    TERM is blocked from before the fork, and this process was in that group until setsid. queue-local itself ignores
    such a signal and lets its deliveries finish.
    """
    found = signal.sigtimedwait({signal.SIGTERM}, 0)
    return found is not None and found.si_pid == os.getppid()


def _take_signals(seconds: int) -> None:
    """Undo what queue-local has set, for this process and those that it runs; its own limit is an alarm."""
    for number in signal.SIGINT, signal.SIGHUP:
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, _told_to_end)
    signal.signal(signal.SIGALRM, _timeout)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    signal.alarm(seconds)


def _arrange(message: int, report: int) -> None:
    """Put the message on 0, nothing on 1, the report pipe on 3, and close the rest.

    A delivery that hangs must hold neither the job pipe nor the report pipe of queue-local open.
    """
    spare = os.open("/dev/null", os.O_WRONLY)
    # Above the fixed numbers first, so that none is overwritten before it has been moved.
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
    """Let nothing break off what is left to do, which is to clean up and to report; queue-local sees that it ends."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, signal.SIG_IGN)


def _timeout(number: int, frame: object) -> None:
    _take_no_more_signals()
    raise Interrupted("Timeout on delivery")


def _told_to_end(number: int, frame: object) -> None:
    _take_no_more_signals()
    raise Interrupted("Delivery process was told to end")
