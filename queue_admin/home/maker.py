"""Makes missing directories, files and FIFOs, atomically and durably.

Each is made as NAME.new, gets its owner and mode, and is renamed, so that after a crash NAME is complete or missing.
Existing files are not changed. Below a tree, which another account may write, no link is followed, and on the way to
other paths only those that root, or the caller, has made. Only what was made here is given away, never something that
was put in its place. Raises Permanent if a path is of another kind,
Temporary if a system call fails; both name the path.
"""

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from queue_admin.home.tree import Tree, unable_to
from queue_base.accounts import Owner
from queue_base.durable import Commit, write_all
from queue_base.errors import Permanent, Temporary, why_refused
from queue_base.safe_open import READ_DIRECTORY, open_below, open_given

_REPLACED = "something else was put in its place meanwhile"


class Maker:
    """Makes files and directories for one owner; `made` lists the paths.

    Without a tree the caller makes the result durable by `commit.sync()`. With a tree all paths are below it, and the
    caller syncs the tree.
    """

    def __init__(self, owner: Owner, commit: Commit | None = None, tree: Tree | None = None) -> None:
        self.owner = owner
        self.commit = commit or Commit()
        self.made: list[str] = []
        self._tree = tree

    def directory(self, path: str, mode: int, buckets: int = 0) -> None:
        """Make a directory, with subdirectories 0 to buckets-1 of the same mode."""
        with unable_to("make", path), self._parent(path) as (parent, name):
            there = self._is_there(parent, name, path, stat.S_ISDIR, "directory")
            if not there:
                _remove_empty(parent, f"{name}.new")
                self._make_directory(parent, f"{name}.new", mode, buckets, path)
                os.rename(f"{name}.new", name, src_dir_fd=parent, dst_dir_fd=parent)
                self.made.append(path)
            # Also if it is there: its maker may have been killed before it was durable. But a mount point is not of our
            # making, and what is above it may be the read-only root of a container.
            if os.stat(name, dir_fd=parent, follow_symlinks=False).st_dev == os.fstat(parent).st_dev:
                self._record(parent, path)
        if there:
            for number in range(buckets):
                self.directory(f"{path}/{number}", mode)

    def _make_directory(self, parent: int, name: str, mode: int, buckets: int, path: str) -> None:
        os.mkdir(name, 0o700, dir_fd=parent)
        handle = open_below(parent, name, READ_DIRECTORY)
        try:
            if os.listdir(handle):
                raise OSError(_REPLACED)
            for number in range(buckets):
                self._make_directory(handle, str(number), mode, 0, f"{path}/{number}")
            self._give(handle, mode, stat.S_ISDIR)
            self._record(handle, f"{path}/")
        finally:
            os.close(handle)

    def file(self, path: str, data: bytes, mode: int) -> None:
        """Make a file with `data`, unless it exists."""
        with unable_to("write", path), self._parent(path) as (parent, name):
            there = self._is_there(parent, name, path, stat.S_ISREG, "file")
        if not there:
            self.replace(path, data, mode)

    def replace(self, path: str, data: bytes, mode: int) -> None:
        """Make a file with `data`, replacing an existing one."""
        with unable_to("write", path), self._parent(path) as (parent, name):
            new = f"{name}.new"
            _unlink(parent, new)
            handle = open_below(parent, new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                write_all(handle, data)
                self._give(handle, mode, stat.S_ISREG)
                # The contents must be durable before the name is.
                os.fsync(handle)
            finally:
                os.close(handle)
            os.rename(new, name, src_dir_fd=parent, dst_dir_fd=parent)
            self._record(parent, path)
        self.made.append(path)

    def fifo(self, path: str, mode: int) -> None:
        """Make a FIFO, unless it exists."""
        with unable_to("make", path), self._parent(path) as (parent, name):
            if self._is_there(parent, name, path, stat.S_ISFIFO, "FIFO"):
                return
            new = f"{name}.new"
            _unlink(parent, new)
            os.mkfifo(new, 0o600, dir_fd=parent)
            handle = open_below(parent, new)
            try:
                self._give(handle, mode, stat.S_ISFIFO)
            finally:
                os.close(handle)
            os.rename(new, name, src_dir_fd=parent, dst_dir_fd=parent)
            self._record(parent, path)
        self.made.append(path)

    @contextmanager
    def _parent(self, path: str) -> Iterator[tuple[int, str]]:
        """Open the directory that contains a path; yield it and the last part of the path. Raises OSError."""
        if self._tree is not None:
            with self._tree.parent(os.path.relpath(path, self._tree.path)) as found:
                yield found
            return
        parent, name = os.path.split(path)
        handle = open_given(parent or ".", READ_DIRECTORY)
        try:
            yield handle, name
        finally:
            os.close(handle)

    def _is_there(self, parent: int, name: str, path: str, right_kind: Callable[[int], bool], kind: str) -> bool:
        if self._tree is None:
            return is_there(path, right_kind, kind)
        try:
            found = os.stat(name, dir_fd=parent, follow_symlinks=False)
        except FileNotFoundError:
            return False
        _refuse_another_kind(found.st_mode, path, right_kind, kind)
        return True

    def rename(self, old: str, path: str) -> None:
        """Rename what was made here, in its directory."""
        with unable_to("make", path), self._parent(path) as (parent, name):
            os.rename(os.path.basename(old), name, src_dir_fd=parent, dst_dir_fd=parent)
            self._record(parent, path)

    def _record(self, parent: int, path: str) -> None:
        """Have the directory of a path synced, which is open: by now its own path may lead elsewhere."""
        if self._tree is None:
            self.commit.contents(os.path.dirname(path), os.dup(parent))

    def _give(self, handle: int, mode: int, kind: Callable[[int], bool]) -> None:
        """Set owner and mode of a file that was just made. Raises OSError."""
        found = os.fstat(handle)
        # The owner of the directory could have replaced it with a hard link to another user's file, or a directory.
        fresh = found.st_uid == os.geteuid() and (stat.S_ISDIR(found.st_mode) or found.st_nlink == 1)
        if not (kind(found.st_mode) and fresh):
            raise OSError(_REPLACED)
        os.fchown(handle, self.owner.uid, self.owner.gid)
        # chmod follows chown, which may clear the set-group-id bit.
        os.fchmod(handle, mode)


def is_there(path: str, right_kind: Callable[[int], bool], kind: str) -> bool:
    """Return whether a path exists. Raises Permanent if it is not of the right kind, Temporary."""
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        if os.path.lexists(path):
            raise Permanent(f"unable to make {kind} {path}: a broken symbolic link is in its place") from None
        return False
    except OSError as error:
        raise Temporary(f"unable to look at {path}: {why_refused(error)}") from error
    _refuse_another_kind(found.st_mode, path, right_kind, kind)
    return True


def _refuse_another_kind(mode: int, path: str, right_kind: Callable[[int], bool], kind: str) -> None:
    if right_kind(mode):
        return
    what = "a symbolic link" if stat.S_ISLNK(mode) else f"something that is no {kind}"
    raise Permanent(f"unable to make {kind} {path}: {what} is in its place; move it away")


def _unlink(parent: int, name: str) -> None:
    try:
        os.unlink(name, dir_fd=parent)
    except FileNotFoundError:
        pass


def _remove_empty(parent: int, name: str) -> None:
    # A crash can leave only empty directories. rmdir refuses anything else.
    try:
        handle = open_below(parent, name, READ_DIRECTORY)
    except FileNotFoundError:
        return
    try:
        for number in os.listdir(handle):
            os.rmdir(number, dir_fd=handle)
    finally:
        os.close(handle)
    os.rmdir(name, dir_fd=parent)
