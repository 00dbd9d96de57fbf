"""Removes files from maildrop/ whose messages are safe in the queue; those that cannot be removed are remembered."""

import errno
import stat

from queue_base.durable import Commit
from queue_base.errors import reason

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from queue_inject.pickup.untrusted import Directory

# Beyond this number nothing more is to be taken.
MOST = 1000


class Queued:
    """Names with their inode numbers. `opened` returns maildrop/, opened, or raises OSError."""

    def __init__(self, path: str, opened: "Callable[[], Directory]") -> None:
        self._path = path
        self._opened = opened
        self._names: dict[str, int] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def __len__(self) -> int:
        return len(self._names)

    def add(self, name: str, inode: int) -> None:
        """A file is in the queue."""
        self._names[name] = inode

    def remove(self) -> list[str]:
        """Remove the files; return what went wrong."""
        troubles = []
        before = len(self._names)
        commit = Commit()
        for name, inode in list(self._names.items()):
            try:
                # Nothing that its owner put there meanwhile is removed, nor does it keep others from being removed.
                if self._is_still(name, inode):
                    commit.unlink(f"{self._path}/{name}")
            except OSError as error:
                if not self._is_another(name, inode):
                    troubles.append(f"unable to remove {self._path}/{name}: {reason(error)}")
                    continue
            del self._names[name]
        try:
            # A power cut may not bring back many messages that are queued already.
            if len(self._names) < before:
                commit.sync()
        except OSError as error:
            troubles.append(f"unable to sync {self._path}: {reason(error)}")
        return troubles

    def _is_still(self, name: str, inode: int) -> bool:
        """Return whether a name is that of the file that was taken. Raises OSError where nobody knows."""
        try:
            found = self._opened().look(name)
        except FileNotFoundError:
            return False
        except OSError as error:
            if error.errno == errno.EXDEV:
                return False  # A mount point.
            raise
        return found.st_ino == inode and stat.S_ISREG(found.st_mode)

    def _is_another(self, name: str, inode: int) -> bool:
        """Return whether a name is certainly not that of the file any more: forgotten, it would be queued again."""
        try:
            return not self._is_still(name, inode)
        except OSError:
            return False
