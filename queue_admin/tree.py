"""queue/ or alias/ while root changes owners in it: a directory that stays open, and what is below it.

Whoever owns the directory may change what is in it at any moment, so nothing below it is named by its path again once
it has been looked at (queue_base.safe_open). Raises Permanent for a link in the place of a directory, Temporary.
"""

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from queue_base.durable import sync_filesystem
from queue_base.errors import Permanent, Temporary, reason
from queue_base.safe_open import READ_DIRECTORY, UnsafePath, open_below


@contextmanager
def naming(verb: str, path: str) -> Iterator[None]:
    """Turn an OSError inside into Temporary, `unable to VERB PATH: REASON`; Permanent for a link."""
    try:
        yield
    except UnsafePath as error:
        raise Permanent(f"unable to {verb} {path}: {reason(error)}; put what belongs there in its place") from error
    except OSError as error:
        raise Temporary(f"unable to {verb} {path}: {reason(error)}") from error


class Tree:
    """An open directory. Use it as a context manager."""

    def __init__(self, path: str, follow: bool = False) -> None:
        """Open it; a link in its place is refused, or with `follow` trusted."""
        self.path = path
        parent, name = os.path.split(path)
        with naming("open", path):
            if follow:
                self.handle = os.open(path, READ_DIRECTORY | os.O_CLOEXEC)
            else:
                self.handle = open_below(parent or ".", name, READ_DIRECTORY)
        # One descriptor of each file system, open before anything changes there: an error of writing that comes
        # later is told to it, whoever else asks for it.
        self._systems = {os.fstat(self.handle).st_dev: self.handle}

    def __enter__(self) -> "Tree":
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self._systems.values():
            os.close(handle)

    @contextmanager
    def directory(self, name: str) -> Iterator[int]:
        """Open a directory below, to be read and changed. Raises OSError, UnsafePath."""
        handle = open_below(self.handle, name, READ_DIRECTORY)
        try:
            device = os.fstat(handle).st_dev
            if device not in self._systems:
                self._systems[device] = os.dup(handle)
            yield handle
        finally:
            os.close(handle)

    @contextmanager
    def parent(self, name: str) -> Iterator[tuple[int, str]]:
        """Open the directory that a name below is in; yield its descriptor and the last part of the name."""
        above, _, last = name.rpartition("/")
        if above:
            with self.directory(above) as handle:
                yield handle, last
        else:
            yield self.handle, last

    def list(self, name: str) -> list[str]:
        """Return the sorted names in a directory below, none where it is not there."""
        with naming("read", f"{self.path}/{name}"):
            try:
                with self.directory(name) as handle:
                    return sorted(os.listdir(handle))
            except FileNotFoundError:
                return []

    def has(self, name: str, right_kind: Callable[[int], bool]) -> bool:
        """Return whether a name below is there, itself of the right kind and not a link to it."""
        with naming("look at", f"{self.path}/{name}"):
            try:
                with self.parent(name) as (handle, last):
                    return right_kind(os.stat(last, dir_fd=handle, follow_symlinks=False).st_mode)
            except (FileNotFoundError, NotADirectoryError):
                return False

    def is_directory(self, name: str) -> bool:
        """Return whether a name below is a directory's."""
        return self.has(name, stat.S_ISDIR)

    def unlink(self, name: str) -> bool:
        """Remove a name below; return False where it was not there. Raises OSError."""
        try:
            with self.parent(name) as (handle, last):
                os.unlink(last, dir_fd=handle)
        except FileNotFoundError:
            return False
        return True

    def rmdir(self, name: str) -> None:
        """Remove an empty directory below. Raises OSError."""
        with self.parent(name) as (handle, last):
            os.rmdir(last, dir_fd=handle)

    def sync(self) -> None:
        """Make everything safe that was changed so far."""
        with naming("sync", self.path):
            for handle in self._systems.values():
                sync_filesystem(handle)
