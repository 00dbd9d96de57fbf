"""Sets aside files in maildrop/ that cannot be mail: renames them to corrupt/maildrop/, for a person to look at.

The owner of a sticky directory may rename everything in it, whoever owns it, except that a directory of another user
cannot be moved to another directory. Of those, empty ones are removed. The others stay, as do mount points and files
that root has made immutable; they are counted and ignored.
"""

import errno
import os
import time

from queue_base.daemon.log_limit import LimitedLog
from queue_base.errors import reason
from queue_wire.format_error import quoted

NAME = "corrupt/maildrop"
_MODE = 0o2700


class CorruptMail:
    """Sets files aside, and logs each."""

    def __init__(self, queue: str, maildrop: str, log: LimitedLog) -> None:
        self._place = f"{queue}/{NAME}"
        self._maildrop = maildrop
        self._log = log
        self._stuck = 0
        self._stuck_logged = 0
        self._example = ""

    def set_aside(self, name: str, uid: int | None, why: str) -> None:
        """Set one file aside. `uid` is its owner, or None if that is unknown."""
        shown = f"{self._maildrop}/{format_name(name)} of uid {'unknown' if uid is None else uid}"
        # The time and the random part make sure that no file that was set aside before is replaced.
        new = f"{'unknown' if uid is None else uid}.{time.time_ns()}.{os.urandom(8).hex()}"
        try:
            outcome = self._move(f"{self._maildrop}/{name}", new)
        except FileNotFoundError:
            return
        except OSError as error:
            self._stuck += 1
            self._example = f"{shown}: {why}: {reason(error)}"
            return
        self._log.add(f"unable to take {shown}: {why}; {outcome}", uid)

    def begin_scan(self) -> None:
        """A scan begins, which counts the files that cannot be moved from zero."""
        self._stuck = 0

    def end_scan(self) -> None:
        """A scan has ended: log the number of files that cannot be moved, if it has grown."""
        if self._stuck > self._stuck_logged:
            number = f"{self._stuck} names in {self._maildrop} that are no mail"
            self._log.add(f"unable to set aside {number}, such as {self._example}; they are passed by")
        self._stuck_logged = self._stuck

    def _move(self, old: str, new: str) -> str:
        """Move a file, or remove an empty directory; return what was done. Raises OSError."""
        for _ in range(2):
            try:
                os.rename(old, f"{self._place}/{new}")
                return f"it is set aside as {NAME}/{new}"
            except FileNotFoundError:
                # Either the file or corrupt/maildrop/ is missing.
                os.lstat(old)
                os.mkdir(self._place, _MODE)
            except OSError as error:
                if error.errno not in (errno.EACCES, errno.EPERM):
                    raise
                break
        try:
            os.rmdir(old)
        except NotADirectoryError as error:
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM)) from error
        return "it was empty and is removed"


def format_name(name: str) -> str:
    """Return a file's name in the form for log lines."""
    return quoted(os.fsencode(name))[1:].replace("'", "")
