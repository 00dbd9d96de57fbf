"""Failures, and the exit codes that `main` turns them into: 100 permanent or usage, 111 temporary.

A failure's text reads `unable to VERB OBJECT: REASON; what happens next`, in one line. Anything that
is not a Failure is a bug: it keeps its traceback.
"""

import os

PERMANENT = 100
TEMPORARY = 111


class Failure(Exception):
    """Something that a program cannot go on from; `exit_code` is what `main` returns for it."""

    exit_code = TEMPORARY


class Temporary(Failure):
    """Trouble that may pass: a full disk, a file that may not be read now."""


class Permanent(Failure):
    """Trouble that stays until a person changes something."""

    exit_code = PERMANENT


class Usage(Permanent):
    """The command line is wrong."""


def reason(error: OSError) -> str:
    """Return why a system call failed, as strerror says it, in lower case."""
    if error.errno is None:
        return str(error)
    return os.strerror(error.errno).lower()


def complain(program: str, text: str) -> None:
    """Write one line on stderr, `program: text`; a text that would be several lines becomes one."""
    line = f"{program}: {text}".replace("\n", "/")
    try:
        os.write(2, line.encode("utf-8", "backslashreplace") + b"\n")
    except OSError:
        pass  # Nobody reads our stderr; the exit code still tells.
