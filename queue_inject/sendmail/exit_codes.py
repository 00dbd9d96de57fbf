"""The exit codes of sendmail, from sysexits.h, and its one line on stderr for each failure.

Every problem that may pass is 75, whichever file has it: callers of sendmail (Postfix's pipe(8), a .qmail file) try
again on 75, and bounce mail on the codes for a file (72, 73) or a configuration (78). 67 and 68 are never used: whether
a user or host exists is found out at delivery.
"""

from queue_base.errors import NO_MEMORY, READ, TOO_LONG, Failure, Permanent, QueueTrouble, Usage, complain, explain
from queue_inject.main import explain_format
from queue_wire.format_error import FormatError

PROGRAM = "sendmail"
USAGE = 64
DATA = 65
UNAVAILABLE = 69
SOFTWARE = 70
SYSTEM = 71
INPUT = 74
TEMPORARY = 75
NO_PERMISSION = 77


class NoPermission(Permanent):
    """The user may not do that."""


def exit_code(error: BaseException) -> int:
    """Return the exit code for a failure."""
    if isinstance(error, QueueTrouble):
        if error.exit_code == Permanent.exit_code:
            # A filter in place of queue-enqueue has refused the message. Postfix's sendmail exits with the same code.
            return DATA if error.code == TOO_LONG else UNAVAILABLE
        return {NO_MEMORY: SYSTEM, READ: INPUT}.get(error.code, TEMPORARY)
    if isinstance(error, Permanent):
        return USAGE if isinstance(error, Usage) else NO_PERMISSION if isinstance(error, NoPermission) else DATA
    if isinstance(error, FormatError):
        return DATA
    if isinstance(error, MemoryError):
        return SYSTEM
    return TEMPORARY if isinstance(error, Failure | KeyboardInterrupt) else SOFTWARE


def explain_exit(error: BaseException) -> int:
    """Write one line about a failure to stderr; return the exit code. A bug is preceded by its traceback."""
    if isinstance(error, FormatError):
        complain(PROGRAM, f"fatal: {explain_format(error)}")
    else:
        explain(PROGRAM, error)
    return exit_code(error)
