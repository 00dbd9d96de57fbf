"""Changes the owner and mode of directories and files in a queue.

These directories belong to accounts that are less trusted than root, so each change is made through a descriptor that
was opened without following a link (queue_base.safe_open). Two kinds of files are not changed and are listed in `left`
with the reason: anything that is neither a directory nor a regular file, and a file with several names whose owner
neither has nor will have the queue. Such a name may be a hard link to any user's file, since link(2) requires no
permission on the file if the kernel's protected_hardlinks is off. Changes are durable after the tree's sync.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterable

from queue_admin.home.modes import ONDEMAND, ONDEMAND_MODES
from queue_admin.home.tree import Tree, unable_to
from queue_admin.progress import Progress
from queue_base.accounts import Owner
from queue_base.queue.layout import FILE_MODE
from queue_base.safe_open import READ_DIRECTORY, UnsafePath, open_below

# What open(2) returns for a socket, and for a name that is gone.
_NOT_OURS = (errno.ENXIO, errno.ENOENT, errno.ENOTDIR)
NO_FILE = "neither a file nor a directory of a queue"


def known_uids(tree: Tree, owner: Owner) -> frozenset[int]:
    """Return whose files may have several names: the present and the next owner of queue/.

    After an interrupted run these include the owners of the first and the last directory that a run changes. Raises
    Permanent, Temporary.
    """
    found = {os.fstat(tree.handle).st_uid}
    for kind in ("pid", "mess"):
        with unable_to("look at", f"{tree.path}/{kind}"):
            try:
                with tree.directory(kind) as handle:
                    found.add(os.fstat(handle).st_uid)
            except FileNotFoundError:
                continue
    return frozenset(found | {owner.uid})


def check_directories(tree: Tree, kinds: Iterable[str]) -> None:
    """Raise Permanent if one of queue/'s directories is something else."""
    for kind in kinds:
        with unable_to("use", f"{tree.path}/{kind}"):
            try:
                with tree.directory(kind):
                    pass
            except FileNotFoundError:
                continue


class OwnerChanger:
    """Changes owners and modes below `tree`; `known` are the uids whose files may have several names.

    `changed` counts the changes. `left` has what was left as it is: {path: reason}.
    """

    def __init__(self, tree: Tree, known: frozenset[int], progress: Progress | None = None) -> None:
        """`progress` counts what is looked at."""
        self._tree = tree
        self._known = known
        self._progress = progress
        self.changed = 0
        self.left: dict[str, str] = {}

    def directory(
        self, name: str, owner: Owner, directory_mode: int, file_mode: int | None, bucketed: bool, kept: int = 0
    ) -> None:
        """Change a directory and its files; if it is bucketed, also its numbered directories and their files.

        Of the modes of files the bits `kept` stay. Raises Permanent if it is a link, Temporary.
        """
        path = f"{self._tree.path}/{name}"
        with unable_to("change owner or mode in", path), self._tree.directory(name) as handle:
            self._directory(path, handle, owner, directory_mode, file_mode, bucketed, kept)

    def _directory(
        self, path: str, handle: int, owner: Owner, directory_mode: int, file_mode: int | None, bucketed: bool,
        kept: int,
    ) -> None:  # fmt: skip
        self._change(handle, owner, directory_mode)
        if file_mode is None:
            return
        with os.scandir(handle) as entries:
            for entry in entries:
                if self._progress is not None:
                    self._progress.step()
                if bucketed and entry.name.isdigit() and entry.is_dir(follow_symlinks=False):
                    below = self._open(path, handle, entry.name, READ_DIRECTORY)
                    if below is not None:
                        try:
                            name = f"{path}/{entry.name}"
                            self._directory(name, below, owner, directory_mode, file_mode, False, kept)
                        finally:
                            os.close(below)
                elif entry.is_file(follow_symlinks=False):
                    if not self._is_right_already(entry, owner, file_mode, kept):
                        self._file(path, handle, entry.name, owner, file_mode, stat.S_ISREG, kept)
                else:
                    self.left[f"{path}/{entry.name}"] = NO_FILE

    def _is_right_already(self, entry: os.DirEntry[str], owner: Owner, mode: int, kept: int) -> bool:
        # Saves opening most files in a second run.
        try:
            found = entry.stat(follow_symlinks=False)
            return _is_right(found, owner, mode | found.st_mode & kept)
        except FileNotFoundError:
            return True

    def one(self, name: str, owner: Owner, mode: int, kind: Callable[[int], bool] = stat.S_ISREG) -> None:
        """Change one file or FIFO below the tree. Raises Temporary."""
        path = f"{self._tree.path}/{name}"
        with unable_to("change owner or mode of", path), self._tree.parent(name) as (handle, last):
            self._file(os.path.dirname(path), handle, last, owner, mode, kind)

    def top(self, owner: Owner, mode: int) -> None:
        """Change the tree's own directory. Raises Temporary."""
        with unable_to("change owner or mode of", self._tree.path):
            self._change(self._tree.handle, owner, mode)

    def _file(
        self, path: str, directory: int, name: str, owner: Owner, mode: int, kind: Callable[[int], bool], kept: int = 0
    ) -> None:
        handle = self._open(path, directory, name, os.O_RDONLY)
        if handle is None:
            return
        try:
            found = os.fstat(handle)
            if not kind(found.st_mode):
                self.left[f"{path}/{name}"] = NO_FILE
            elif found.st_nlink > 1 and found.st_uid not in self._known:
                self.left[f"{path}/{name}"] = f"it has {found.st_nlink} names, and belongs to uid {found.st_uid}"
            else:
                self._change(handle, owner, mode | found.st_mode & kept)
        finally:
            os.close(handle)

    def _open(self, path: str, directory: int, name: str, flags: int) -> int | None:
        """Return a descriptor, or None if the name is gone or is no file or directory by now."""
        try:
            return open_below(directory, name, flags)
        except UnsafePath:
            self.left[f"{path}/{name}"] = NO_FILE
        except OSError as error:
            if error.errno not in _NOT_OURS:
                raise
            if error.errno != errno.ENOENT:
                self.left[f"{path}/{name}"] = NO_FILE
        return None

    def _change(self, handle: int, owner: Owner, mode: int) -> None:
        if _is_right(os.fstat(handle), owner, mode):
            return
        os.fchown(handle, owner.uid, owner.gid)
        # chmod follows chown, which may clear the set-group-id bit.
        os.fchmod(handle, mode)
        self.changed += 1


def _is_right(found: os.stat_result, owner: Owner, mode: int) -> bool:
    return (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (owner.uid, owner.gid, mode)


def change_stored(tree: Tree, changer: OwnerChanger, owner: Owner) -> None:
    """Change what is stored for on-demand domains. Raises Permanent, Temporary."""
    if not tree.is_directory(ONDEMAND):
        return
    mode = ONDEMAND_MODES[""]
    changer.directory(ONDEMAND, owner, mode, None, False)
    for domain in (f"{ONDEMAND}/{name}" for name in tree.list(ONDEMAND)):
        if not tree.is_directory(domain):
            continue
        changer.directory(domain, owner, mode, None, False)
        for name in tree.list(domain):
            if tree.is_directory(f"{domain}/{name}"):
                changer.directory(f"{domain}/{name}", owner, mode, ONDEMAND_MODES.get(name, FILE_MODE), False)
            else:
                changer.one(f"{domain}/{name}", owner, FILE_MODE)
