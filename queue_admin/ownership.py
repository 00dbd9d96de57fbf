"""Gives directories and files to an owner, with a mode; nothing else about them changes but ctime.

Every change is by descriptor and never through a symbolic link, because accounts that may be less
trusted than root own these directories. What is neither a directory nor a regular file stays as it
is and is counted in `left`. Nothing is safe before `commit.sync()`.
"""

import errno
import os
import stat

from queue_admin.make import naming
from queue_base.accounts import Owner
from queue_base.durable import Commit

# What open(2) says about a symbolic link, a socket, and a name that is gone.
_NOT_OURS = (errno.ELOOP, errno.ENXIO, errno.ENOENT)


class Giver:
    """Changes owners and modes; `changed` counts what was changed, `left` lists what was passed by."""

    def __init__(self, commit: Commit) -> None:
        self.commit = commit
        self.changed = 0
        self.left: list[str] = []

    def tree(self, top: str, owner: Owner, directory_mode: int, file_mode: int | None, bucketed: bool) -> None:
        """Give a directory and its files; where bucketed, its numbered directories and theirs too. Raises Temporary."""
        self.one(top, owner, directory_mode)
        if file_mode is None:
            return
        with naming("read", top), os.scandir(top) as entries:
            for entry in entries:
                if bucketed and entry.name.isdigit() and entry.is_dir(follow_symlinks=False):
                    self.tree(entry.path, owner, directory_mode, file_mode, False)
                elif entry.is_file(follow_symlinks=False):
                    self._entry(entry, owner, file_mode)
                else:
                    self.left.append(entry.path)

    def _entry(self, entry: os.DirEntry[str], owner: Owner, mode: int) -> None:
        try:
            found = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            return
        if not _is_right(found, owner, mode):
            self.one(entry.path, owner, mode)

    def one(self, path: str, owner: Owner, mode: int) -> None:
        """Give one directory, file or FIFO. Raises Temporary."""
        with naming("change owner or mode of", path):
            try:
                handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            except OSError as error:
                if error.errno not in _NOT_OURS:
                    raise
                self.left.append(path)
                return
            try:
                self._change(path, handle, owner, mode)
            finally:
                os.close(handle)

    def _change(self, path: str, handle: int, owner: Owner, mode: int) -> None:
        found = os.fstat(handle)
        if _is_right(found, owner, mode):
            return
        os.fchown(handle, owner.uid, owner.gid)
        # After chown, which may clear the set-group-id bit.
        os.fchmod(handle, mode)
        self.changed += 1
        # fsync of a FIFO is an error; the sync of its directory is all there is.
        if stat.S_ISFIFO(found.st_mode):
            self.commit.contents(os.path.dirname(path))
        else:
            self.commit.contents(path, os.dup(handle))


def _is_right(found: os.stat_result, owner: Owner, mode: int) -> bool:
    return (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (owner.uid, owner.gid, mode)
