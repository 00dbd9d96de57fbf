"""Asks a checkpassword program (cr.yp.to/checkpwd/interface.html) whether a password is right.

The program of control/checkpassword gets `USER NUL PASSWORD NUL NUL` on descriptor 3, in place of a time stamp nothing.
It runs the program that its arguments name if the password is right, such as `/bin/true`. Exit code 0: right; 1: wrong;
anything else, or no exit in time, is a temporary failure. No shell is involved. The program runs as the account of
the server, with PATH alone in its environment, in a process group of its own, which is killed when its time is over.
"""

import os
import select
import signal
import time

from queue_base.daemon.program_group import FileAction, signal_group, start_group
from queue_base.errors import Temporary, reason

SECONDS = 30.0
_RIGHT, _WRONG = 0, 1
_DESCRIPTOR = 3


def ask_program(words: list[bytes], user: bytes, password: bytes, seconds: float = SECONDS) -> bool:
    """Return whether the password is right. Raises Temporary, which shows neither user nor password."""
    shown = os.fsdecode(words[0])
    try:
        pid = _start(words, b"%s\0%s\0\0" % (user, password))
    except OSError as error:
        raise Temporary(f"unable to run {shown}: {reason(error)}") from error
    code = _wait(pid, time.monotonic() + seconds)
    if code is None:
        raise Temporary(f"unable to check a password: {shown} did not end in {seconds:g} seconds")
    if code not in (_RIGHT, _WRONG):
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        raise Temporary(f"unable to check a password: {shown} ended with {how}")
    return code == _RIGHT


def _start(words: list[bytes], secret: bytes) -> int:
    reader, writer = os.pipe2(os.O_CLOEXEC)
    try:
        # It is less than a pipe holds, so this does not wait.
        os.set_blocking(writer, False)
        os.write(writer, secret)
    finally:
        os.close(writer)
    try:
        null = os.devnull
        actions: list[FileAction] = [
            (os.POSIX_SPAWN_DUP2, reader, _DESCRIPTOR),
            (os.POSIX_SPAWN_OPEN, 0, null, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, null, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_OPEN, 2, null, os.O_WRONLY, 0),
        ]
        return start_group(words, {b"PATH": os.fsencode(os.environ.get("PATH", os.defpath))}, actions)
    finally:
        os.close(reader)


def _wait(pid: int, end: float) -> int | None:
    """Return the exit code, or the negative number of a signal; None if it was killed because it took too long."""
    handle = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        ended = bool(poll.poll(max(0.0, end - time.monotonic()) * 1000))
        # What the program has started goes with it.
        signal_group(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
    finally:
        os.close(handle)
    return os.waitstatus_to_exitcode(status) if ended else None
