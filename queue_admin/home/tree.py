"""Access to queue/ or alias/ by root that its owner cannot divert.

The owner of the directory may replace anything in it at any moment, so everything below is reached through descriptors,
without following links (queue_base.safe_open). Raises Permanent if a link is in the place of a directory, Temporary.
"""

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from queue_base.durable import sync_filesystem
from queue_base.errors import Permanent, Temporary, reason, why_refused
from queue_base.safe_open import READ_DIRECTORY, UnsafePath, open_below, open_given


@contextmanager
def unable_to(verb: str, path: str) -> Iterator[None]:
    """Turn an OSError into Temporary, `unable to VERB PATH: REASON`; into Permanent if a link caused it."""
    try:
        yield
    except UnsafePath as error:
        raise Permanent(f"unable to {verb} {path}: {reason(error)}; put the right file or directory there") from error
    except OSError as error:
        raise Temporary(f"unable to {verb} {path}: {why_refused(error)}") from error


class Tree:
    """An open directory. Use it as a context manager."""

    def __init__(self, path: str, follow: bool = False) -> None:
        """Open it. A link in its place is refused, with `follow` only one that another account may have put there."""
        self.path = path
        parent, name = os.path.split(path)
        with unable_to("open", path):
            if follow:
                self.handle = open_given(path, READ_DIRECTORY)
            else:
                self.handle = open_below(parent or ".", name, READ_DIRECTORY)
        # One descriptor of each file system, opened before anything changes there: the kernel reports a later write
        # error once to every descriptor that is open by then.
        self._systems = {os.fstat(self.handle).st_dev: self.handle}

    def __enter__(self) -> "Tree":
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self._systems.values():
            os.close(handle)

    @contextmanager
    def directory(self, name: str) -> Iterator[int]:
        """Open a directory below. Raises OSError, UnsafePath."""
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
        """Open the directory that contains a name; yield its descriptor and the last part of the name."""
        above, _, last = name.rpartition("/")
        if above:
            with self.directory(above) as handle:
                yield handle, last
        else:
            yield self.handle, last

    def list(self, name: str) -> list[str]:
        """Return the sorted names in a directory below; none if it does not exist."""
        with unable_to("read", f"{self.path}/{name}"):
            try:
                with self.directory(name) as handle:
                    return sorted(os.listdir(handle))
            except FileNotFoundError:
                return []

    def has(self, name: str, right_kind: Callable[[int], bool]) -> bool:
        """Return whether a name below exists and is of the right kind; a link is not followed."""
        with unable_to("look at", f"{self.path}/{name}"):
            try:
                with self.parent(name) as (handle, last):
                    return right_kind(os.stat(last, dir_fd=handle, follow_symlinks=False).st_mode)
            except (FileNotFoundError, NotADirectoryError):
                return False

    def is_directory(self, name: str) -> bool:
        """Return whether a name below is a directory."""
        return self.has(name, stat.S_ISDIR)

    def unlink(self, name: str) -> bool:
        """Remove a name below; return False if it did not exist. Raises OSError."""
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
        """Make all changes so far durable."""
        with unable_to("sync", self.path):
            for handle in self._systems.values():
                sync_filesystem(handle)
