"""The process that makes one delivery: it runs a function and says how it went, in exit code and text.

The parent reads the text from a pipe and the exit code from wait: 0 success, 100 permanent, 111
temporary. The process always ends here; whatever goes wrong in it is Temporary.
"""

import os
import signal
from collections.abc import Callable
from typing import NoReturn

from queue_base.errors import PERMANENT, TEMPORARY, Failure, Permanent, Temporary, complain

# Where a delivery finds its descriptors.
MESSAGE = 0
_NULL = 1
_REPORT = 3
# qmail-lspawn's truncreport: a report is for a log line and a bounce, not for a novel.
TEXT_MAX = 3000


def run_child(work: Callable[[int], str], message: int, report: int, seconds: int) -> NoReturn:
    """Call `work(message descriptor)`, report what it returns or raises, and end the process.

    After `seconds` whatever it does is interrupted, cleans up after itself and is Temporary.
    """
    code = TEMPORARY
    try:
        code, text = _outcome(work, message, report, seconds)
        signal.alarm(0)
        os.write(_REPORT, text.encode("utf-8", "surrogateescape")[:TEXT_MAX].rstrip(b"\n") + b"\n")
    finally:
        # Nothing of the parent's (its loop, buffers, exit handlers) may run in here.
        os._exit(code)


def _outcome(work: Callable[[int], str], message: int, report: int, seconds: int) -> tuple[int, str]:
    """Return exit code and text; whatever `work` raises has one."""
    try:
        _arrange(message, report)
        signal.signal(signal.SIGALRM, _timeout)
        signal.alarm(seconds)
        return 0, work(MESSAGE)
    except Permanent as error:
        return PERMANENT, str(error)
    except Failure as error:
        return TEMPORARY, str(error)
    except BaseException as error:
        complain("queue-local", f"alert: internal error in a delivery: {error!r}; it is deferred")
        return TEMPORARY, f"Internal error: {type(error).__name__}: {error}. (#4.3.0)"


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


def _timeout(number: int, frame: object) -> None:
    raise Temporary("Timeout on delivery. (#4.3.0)")
