"""Writes log lines on a descriptor that other processes may share: whole lines, a pipe-full at most at once.

Lines of processes that write to the same pipe do not mix (pipe(7): PIPE_BUF). If nobody reads, it waits, as all that
log to a supervisor do; if nobody can read any more, the lines are lost.
"""

import os
import select
import stat
import syslog

from queue_base.errors import complain

PROGRAM = "queue-smtpd"


class LogWriter:
    """Writes on a descriptor; with None to syslog."""

    descriptor: int | None = None

    def __init__(self, descriptor: int | None) -> None:
        self.descriptor = descriptor
        if descriptor is None:
            syslog.openlog(PROGRAM, syslog.LOG_PID, syslog.LOG_MAIL)

    def write(self, lines: list[bytes]) -> None:
        """Write lines, each without its newline."""
        if self.descriptor is None:
            for line in lines:
                syslog.syslog(line.decode("ascii", "replace"))
            return
        block = b""
        for line in lines:
            if len(block) + len(line) >= select.PIPE_BUF:
                self._put(block)
                block = b""
            block += line + b"\n"
        self._put(block)

    def _put(self, block: bytes) -> None:
        assert self.descriptor is not None
        while block:
            try:
                block = block[os.write(self.descriptor, block) :]
            except BlockingIOError:
                # Whoever made the pipe has made it non-blocking.
                select.select([], [self.descriptor], [])
            except OSError:
                return

    def complain(self, text: str) -> None:
        """Say what is wrong with the program itself."""
        if self.descriptor is None:
            syslog.syslog(syslog.LOG_ERR, text.replace("\n", "/"))
        else:
            complain(PROGRAM, text)


def log_beside(connection: int) -> LogWriter:
    """Return the log of a process with one connection: stderr, but syslog if inetd has made stderr the connection."""
    try:
        theirs, ours = os.fstat(connection), os.fstat(2)
    except OSError:
        return LogWriter(None)
    same = stat.S_ISSOCK(ours.st_mode) and (theirs.st_dev, theirs.st_ino) == (ours.st_dev, ours.st_ino)
    return LogWriter(None if same else 2)
