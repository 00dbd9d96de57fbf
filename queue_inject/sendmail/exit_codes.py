"""sendmail's exit codes, those of sysexits.h, and its one line on stderr for each failure.

All trouble that may pass is 75, whichever file has it: what calls sendmail (Postfix's pipe(8), a .qmail file)
tries again on 75, and gives mail back to its sender on the codes for a file (72, 73) or a configuration (78).
67 and 68 are never used: who exists is found out at delivery.
"""

from queue_base.draft import NO_MEMORY, READ, TOO_LONG, QueueTrouble, explain
from queue_base.errors import Failure, Permanent, Usage, complain
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
    """This user may not do that."""


def exit_code(error: BaseException) -> int:
    """Return the exit code for a failure."""
    if isinstance(error, QueueTrouble):
        if error.exit_code == Permanent.exit_code:
            # A filter in queue-enqueue's place refuses it for good; Postfix's sendmail has the same code then.
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
    """Say on stderr, in one line, what went wrong; return the exit code. A bug has its traceback above the line."""
    if isinstance(error, FormatError):
        complain(PROGRAM, f"fatal: {explain_format(error)}")
    else:
        explain(PROGRAM, error)
    return exit_code(error)
