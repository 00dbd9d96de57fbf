"""maildirmake: makes a maildir (maildir(5)), as qmail's program of that name does.

The maildir is complete and safe on the disk when it exits 0: queue-local syncs what it delivers into new/, but not the
names above it. If a step fails, what was made is removed again.
"""

import os
import sys

from queue_base.durable import sync_path
from queue_base.errors import TEMPORARY, Failure, Temporary, Usage, complain, reason
from queue_base.home import take_help

PROGRAM = "maildirmake"
_USAGE = "usage: maildirmake DIR"
_HELP = f"""{_USAGE}
Makes the maildir DIR, with the directories tmp, new and cur in it, for the user that runs it alone (mode 0700).
Exit code 0: made; 100: wrong usage; 111: it cannot be made, or something of that name exists.
"""
_MODE = 0o700


def make_maildir(path: str) -> None:
    """Make the maildir. Raises Temporary if any of it exists or cannot be made; then nothing of it is left."""
    made: list[str] = []
    at = path
    try:
        for at in (path, *(os.path.join(path, name) for name in ("tmp", "new", "cur"))):
            os.mkdir(at, _MODE)
            made.append(at)
        for at in (path, os.path.dirname(path.rstrip("/")) or ("/" if path.startswith("/") else ".")):
            sync_path(at)
    except OSError as error:
        for directory in reversed(made):
            os.rmdir(directory)
        raise Temporary(f"unable to mkdir {at}: {reason(error)}") from error


def main(argv: list[str]) -> int:
    """Make the maildir that the argument names; return the exit code: 0, 100 or 111."""
    os.umask(0o077)
    try:
        if take_help(argv[1:], _HELP):
            return 0
        if len(argv) != 2 or not argv[1]:
            raise Usage(f"it makes one directory; {_USAGE}")
        if argv[1].startswith("-"):
            raise Usage(f"{argv[1]} is not an option; for a directory of that name: maildirmake ./{argv[1]}")
        make_maildir(argv[1])
    except Failure as error:
        complain(PROGRAM, f"fatal: {error}")
        return error.exit_code
    except OSError as error:
        complain(PROGRAM, f"fatal: unable to make a maildir: {reason(error)}")
        return TEMPORARY
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        return TEMPORARY
    return 0
