"""Makes directories, files and FIFOs where they are missing, whole or not at all, and durably.

Each is made as NAME.new, gets its owner and mode, and is then renamed: what has the name is right,
also after a crash, and what was there before is never changed. Raises Permanent for a path that is
something else, Temporary for a system call that failed, naming the path.
"""

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from queue_base.accounts import Owner
from queue_base.durable import Commit
from queue_base.errors import Permanent, Temporary, reason


class Maker:
    """Makes things for one owner; `made` lists the paths. Nothing is safe before `commit.sync()`."""

    def __init__(self, owner: Owner, commit: Commit | None = None) -> None:
        self.owner = owner
        self.commit = commit or Commit()
        self.made: list[str] = []

    def directory(self, path: str, mode: int, buckets: int = 0) -> None:
        """Make a directory, with subdirectories 0 to buckets-1 of the same mode."""
        if is_there(path, stat.S_ISDIR, "directory"):
            for number in range(buckets):
                self.directory(f"{path}/{number}", mode)
            return
        with naming("make", path):
            new = path + ".new"
            _remove_empty(new)
            os.mkdir(new, 0o700)
            for number in range(buckets):
                os.mkdir(f"{new}/{number}", 0o700)
                self.give(f"{new}/{number}", mode)
            self.give(new, mode)
            self.commit.rename(new, path)
        for name in [path, *(f"{path}/{number}" for number in range(buckets))]:
            self.commit.contents(name)
        self.made.append(path)

    def file(self, path: str, data: bytes, mode: int) -> None:
        """Make a file of `data`; one that is there stays as it is."""
        if not is_there(path, stat.S_ISREG, "file"):
            self.replace(path, data, mode)

    def replace(self, path: str, data: bytes, mode: int) -> None:
        """Make a file of `data`, in place of what had the name."""
        with naming("write", path):
            new = path + ".new"
            self.commit.unlink(new)
            self.commit.create(new, data, 0o600)
            self.give(new, mode)
            # The name must never be safe before the contents are.
            self.commit.sync()
            self.commit.rename(new, path)
        self.made.append(path)

    def fifo(self, path: str, mode: int) -> None:
        """Make a FIFO."""
        if is_there(path, stat.S_ISFIFO, "FIFO"):
            return
        with naming("make", path):
            new = path + ".new"
            self.commit.unlink(new)
            os.mkfifo(new, 0o600)
            self.give(new, mode)
            self.commit.rename(new, path)
        self.made.append(path)

    def give(self, path: str, mode: int) -> None:
        """Set owner and mode of what was just made. Raises OSError."""
        # By descriptor, because whoever owns the directory could put a link in its place meanwhile.
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.fchown(handle, self.owner.uid, self.owner.gid)
            # After chown, which may clear the set-group-id bit.
            os.fchmod(handle, mode)
        finally:
            os.close(handle)


@contextmanager
def naming(verb: str, path: str) -> Iterator[None]:
    """Turn an OSError inside into Temporary, `unable to VERB PATH: REASON`."""
    try:
        yield
    except OSError as error:
        raise Temporary(f"unable to {verb} {path}: {reason(error)}") from error


def is_there(path: str, right_kind: Callable[[int], bool], kind: str) -> bool:
    """Return whether a path is there. Raises Permanent where it is not of the right kind, Temporary."""
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        if os.path.lexists(path):
            raise Permanent(f"unable to make {kind} {path}: a broken symbolic link is in its place") from None
        return False
    except OSError as error:
        raise Temporary(f"unable to look at {path}: {reason(error)}") from error
    if not right_kind(found.st_mode):
        raise Permanent(f"unable to make {kind} {path}: something that is no {kind} is in its place; move it away")
    return True


def _remove_empty(path: str) -> None:
    # What a crash left is empty directories; whatever else it is, rmdir refuses.
    if os.path.lexists(path):
        for name in os.listdir(path):
            os.rmdir(f"{path}/{name}")
        os.rmdir(path)
