"""Failures, and the exit codes that `main` turns them into: 1 nothing found, 100 permanent or usage, 111 temporary.

queue-enqueue, and what acts as queue-enqueue, uses qmail-queue's own exit codes (qmail-queue(8)) instead: QueueTrouble
carries one, and `explain` chooses one for any exception.

The text of a failure reads `unable to VERB OBJECT: REASON; what happens next`, in one line. An exception that is not
a Failure is a bug, and keeps its traceback.
"""

import os
import sys

from queue_wire.format_error import AddressTooLong, FormatError

NOT_FOUND = 1
PERMANENT = 100
TEMPORARY = 111
# qmail-queue(8): 11 to 40 are permanent, all others temporary. 31 is not used: no message is refused for its content.
TOO_LONG = 11
NO_MEMORY = 51
TIMEOUT = 52
WRITE = 53
READ = 54
CONFIG = 55
HOME_TROUBLE = 61
QUEUE_TROUBLE = 62
PID_TROUBLE = 63
MESS_TROUBLE = 64
INTD_TROUBLE = 65
TODO_TROUBLE = 66
REFUSED = 71
BUG = 81
BAD_ENVELOPE = 91
NO_PROGRAM = 120
# An older qmail's code for an address that is too long.
_OLD_TOO_LONG = 115
# netqmail's texts for these codes (qmail.c); what has none of its own is a permanent or a temporary problem.
_TEXTS = {
    TOO_LONG: "envelope address too long for qq (#5.1.3)",
    31: "mail server permanently rejected message (#5.3.0)",
    NO_MEMORY: "qq out of memory (#4.3.0)",
    TIMEOUT: "qq timeout (#4.3.0)",
    WRITE: "qq write error or disk full (#4.3.0)",
    READ: "qq read error (#4.3.0)",
    CONFIG: "qq unable to read configuration (#4.3.0)",
    56: "qq trouble making network connection (#4.3.0)",
    HOME_TROUBLE: "qq trouble in home directory (#4.3.0)",
    **dict.fromkeys(range(QUEUE_TROUBLE, TODO_TROUBLE + 1), "qq trouble creating files in queue (#4.3.0)"),
    REFUSED: "mail server temporarily rejected message (#4.3.0)",
    72: "connection to mail server timed out (#4.4.1)",
    73: "connection to mail server rejected (#4.4.1)",
    74: "communication with mail server failed (#4.4.2)",
    BUG: "qq internal bug (#4.3.0)",
    BAD_ENVELOPE: "qq internal bug (#4.3.0)",
    NO_PROGRAM: "unable to exec qq (#4.3.0)",
}


def known_code(code: int) -> int:
    """Return an exit code of a program in the place of qmail-queue as today's qmail has it."""
    return TOO_LONG if code == _OLD_TOO_LONG else code


def explain_code(code: int) -> str:
    """Return qmail's text for an exit code of qmail-queue other than 0."""
    other = "qq permanent problem (#5.3.0)" if is_permanent(code) else "qq temporary problem (#4.3.0)"
    return _TEXTS.get(code, other)


def is_permanent(code: int) -> bool:
    """Return whether an exit code of qmail-queue says that the message never can be queued."""
    return 11 <= code <= 40


class Failure(Exception):
    """A failure that ends the program, or the operation. `main` returns `exit_code`."""

    exit_code = TEMPORARY


class Temporary(Failure):
    """A failure that may go away: a full disk, a file that cannot be read now."""


class Permanent(Failure):
    """A failure that remains until a person changes something."""

    exit_code = PERMANENT


class NotFound(Failure):
    """What a person has named is not there: `unable to find OBJECT: REASON`."""

    exit_code = NOT_FOUND


class Usage(Permanent):
    """The command line is wrong."""


class QueueTrouble(Failure):
    """A message could not be put in the queue; `code` is qmail-queue's exit code for it."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.exit_code = PERMANENT if 11 <= code <= 40 else TEMPORARY


def reason(error: OSError) -> str:
    """Return the text of strerror for a failed system call, in lower case."""
    if error.errno is None:
        return str(error)
    return os.strerror(error.errno).lower()


def why_refused(error: OSError) -> str:
    """Return `reason` for a path of a queue; where access to it is denied, also who has it."""
    return reason(error) + ("; root or its owner may" if isinstance(error, PermissionError) else "")


def complain(program: str, text: str) -> None:
    """Write one line on stderr, `program: text`. Newlines in the text become slashes."""
    line = f"{program}: {text}".replace("\n", "/")
    try:
        os.write(2, line.encode("utf-8", "backslashreplace") + b"\n")
    except OSError:
        pass  # stderr is closed; the exit code still reports the failure.


def explain(program: str, error: BaseException) -> int:
    """Write one line on stderr that says why a message was not queued; return qmail-queue's exit code for it."""
    if isinstance(error, Failure):
        code, text = (error.code if isinstance(error, QueueTrouble) else CONFIG), str(error)
    elif isinstance(error, FormatError):
        code = TOO_LONG if isinstance(error, AddressTooLong) else BAD_ENVELOPE
        text = f"unable to use the envelope: {error}; nothing was queued"
    elif isinstance(error, MemoryError):
        code, text = NO_MEMORY, "unable to take the message: out of memory; nothing was queued"
    elif isinstance(error, KeyboardInterrupt):
        code, text = READ, "unable to take the message: interrupted"
    else:
        sys.excepthook(type(error), error, error.__traceback__)
        code, text = BUG, "unable to take the message: this is a bug; please report it with the lines above"
    complain(program, f"fatal: {text}")
    return code
