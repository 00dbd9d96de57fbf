"""Sets aside what is in maildrop/ and cannot be mail: a rename to corrupt/maildrop/, for a person to look at.

The owner of a sticky directory may rename everything in it, whoever owns that, but a directory of somebody else's to
another place. Of those the empty ones are removed; the others stay, like mount points and what root has made
immutable. They are counted and passed by.
"""

import errno
import os
import time

from queue_base.errors import reason
from queue_wire.format_error import quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from queue_inject.pickup.bounded import BoundedLines

NAME = "corrupt/maildrop"
_MODE = 0o2700


class Aside:
    """`lines` is told of what was set aside."""

    def __init__(self, queue: str, directory: str, lines: "BoundedLines") -> None:
        self._place = f"{queue}/{NAME}"
        self._directory = directory
        self._lines = lines
        self._stuck = 0
        self._stuck_said = 0
        self._example = ""

    def put(self, name: str, uid: int | None, why: str) -> None:
        """Set one name aside; `uid` is whose it is, None where nobody knows."""
        shown = f"{self._directory}/{shown_name(name)} of uid {'unknown' if uid is None else uid}"
        # With the time and a random part, so that nothing that was set aside before is replaced.
        new = f"{'unknown' if uid is None else uid}.{time.time_ns()}.{os.urandom(8).hex()}"
        try:
            outcome = self._move(f"{self._directory}/{name}", new)
        except FileNotFoundError:
            return
        except OSError as error:
            self._stuck += 1
            self._example = f"{shown}: {why}: {reason(error)}"
            return
        self._lines.tell(f"unable to take {shown}: {why}; {outcome}", uid)

    def begin(self) -> None:
        """A scan begins: those that cannot be moved are counted anew."""
        self._stuck = 0

    def end(self) -> None:
        """A scan has ended: say how many cannot be moved, where they have become more."""
        if self._stuck > self._stuck_said:
            number = f"{self._stuck} names in {self._directory} that are no mail"
            self._lines.tell(f"unable to set aside {number}, such as {self._example}; they are passed by")
        self._stuck_said = self._stuck

    def _move(self, old: str, new: str) -> str:
        """Move a name, or remove an empty directory; return what was done. Raises OSError."""
        for _ in range(2):
            try:
                os.rename(old, f"{self._place}/{new}")
                return f"it is set aside as {NAME}/{new}"
            except FileNotFoundError:
                # One of the two is not there.
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


def shown_name(name: str) -> str:
    """Return a file's name as a log line may have it."""
    return quoted(os.fsencode(name))[1:].replace("'", "")
