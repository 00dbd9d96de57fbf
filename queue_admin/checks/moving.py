"""Moves files of messages so that no crash and no power cut loses one, a group at a time.

rename(2) from one directory to another may lose a file in a power cut: both directories change, and neither is safe
before its sync. So a file gets its new name by link(2), and loses the old one when the new one is safe.

A message keeps its old mess/ name until all its other old names are durably gone. So an old mess/ name says that a move
was not finished, and the next run begins it again: what has both names has the same inode number under both.

    links to all new names    sync    old names but mess/ removed    sync    old names in mess/ removed    sync
"""

import errno
import os
import stat

from queue_admin.checks.message_paths import KINDS, MARKS, is_ours, is_regular, look_at
from queue_admin.home.modes import UNPLACED
from queue_base.durable import Commit, read_file
from queue_base.queue.layout import FILE_MODE

# Messages that share their syncs. The directories of a message's new names are any of the queue's, and each is synced
# once for all that it got: with few messages, each would cost three syncs.
GROUP = 10_000
HELD_MAX = 16_384  # Descriptors, which are one for each of these directories.
DIRECTORY_MODE = 0o2700


class Mover:
    """Moves messages or single files; `aside` takes what stands in the way. Methods raise OSError."""

    def __init__(self, aside: "SetAside") -> None:
        self._aside = aside
        self._commit = Commit(HELD_MAX)
        self._old: list[str] = []
        self._old_mess: list[str] = []

    def move_message(self, old: dict[str, str], new: dict[str, str], message: int) -> None:
        """Move all files of a message, whose old number is `message`."""
        before, there = look_at(old["mess"]), look_at(new["mess"])
        if before is None:
            return
        if there is not None and not os.path.samestat(before, there):
            raise OSError(errno.EEXIST, os.strerror(errno.EEXIST), new["mess"])
        has_begun = there is not None
        for kind in KINDS:
            source, target = look_at(old[kind]), look_at(new[kind])
            if target is not None and (source is None or not os.path.samestat(source, target)):
                if has_begun:
                    # The message is there already, complete. This is another one's file.
                    if source is not None:
                        self._aside.put({kind: old[kind]}, message, "another file has its place")
                    continue
                # It belongs to no message: mess/ has none of this number.
                self._aside.put({kind: new[kind]}, _number(new[kind]), "its message has lost its text")
                self._aside.flush()
                target = None
            if source is None:
                continue
            if not is_ours(source):
                self._aside.put({kind: old[kind]}, message, "it is not a regular file of the queue's owner")
                continue
            if target is None:
                self._commit.link(old[kind], new[kind])
            self._old.append(old[kind])
        if not has_begun:
            self._commit.link(old["mess"], new["mess"])
        else:
            self._commit.removed(new["mess"])  # The run that made the name may not have synced it.
        self._old_mess.append(old["mess"])
        if len(self._old_mess) >= GROUP or self._commit.is_full:
            self.flush()

    def move_file(self, kind: str, old: str, new: str) -> None:
        """Move one file of a message into its directory."""
        source, target = look_at(old), look_at(new)
        if source is None:
            return
        if target is not None and not os.path.samestat(source, target):
            self._aside.put({kind: old}, _number(new), f"{new} is another file")
            return
        if target is None:
            self._commit.link(old, new)
        else:
            self._commit.removed(new)
        self._old.append(old)
        if len(self._old) >= GROUP or self._commit.is_full:
            self.flush()

    def flush(self) -> None:
        """Finish what was begun, durably."""
        self._commit.sync()
        for names in (self._old, self._old_mess):
            for path in names:
                self._commit.unlink(path)
                if self._commit.is_full:
                    self._commit.sync()
            self._commit.sync()
            names.clear()
        self._aside.flush()


class SetAside:
    """Moves what belongs to no message to corrupt/unplaced/NUMBER/KIND, with the reason in NUMBER/reason.

    NUMBER gets `.1`, `.2` … if there is such a file already. Marks are removed instead. `count` counts the files.
    """

    def __init__(self, queue: str) -> None:
        self._top = f"{queue}/{UNPLACED}"
        self._commit = Commit()
        self._old: list[str] = []
        self.count = 0

    def put(self, paths: dict[str, str], message: int | str, why: str) -> None:
        """Set files {kind: path} aside. Nothing is removed before `flush`, but marks. Raises OSError."""
        kept: dict[str, str] = {}
        for kind, path in paths.items():
            found = look_at(path)
            if found is None:
                continue
            if kind in MARKS and not stat.S_ISDIR(found.st_mode):
                self._commit.unlink(path)
            else:
                kept[kind] = path
        if not kept:
            return
        place = self._place(message, kept, why)
        for kind, path in kept.items():
            self.count += 1
            new = f"{place}/{kind}"
            if not is_ours(look_at(path)):
                # It is no mail, and a directory, or a file of another account, cannot get a second name.
                self._commit.rename(path, new)
                continue
            if look_at(new) is None:
                self._commit.link(path, new)
            else:
                self._commit.removed(new)  # The run that made the name may not have synced it.
            self._old.append(path)
        if len(self._old) >= GROUP or self._commit.is_full:
            self.flush()

    def also(self, path: str, kind: str, message: int | str, why: str) -> None:
        """Give a file a second name there, safe after `flush`; the first one stays. Raises OSError."""
        new = f"{self._place(message, {kind: path}, why)}/{kind}"
        if look_at(new) is None:
            self._commit.link(path, new)
            self.count += 1

    def keep(self, contents: dict[str, bytes], message: int | str, why: str) -> None:
        """Make files {kind: contents} there, safe after `flush`; none if there are the same already. Raises OSError."""
        place, tries = f"{self._top}/{message}", 0
        while look_at(place) is not None:
            if all(_holds(f"{place}/{kind}", data) for kind, data in contents.items()):
                self._commit.directory(place, DIRECTORY_MODE)
                for kind in contents:
                    self._commit.written(f"{place}/{kind}")
                return
            tries += 1
            place = f"{self._top}/{message}.{tries}"
        self._commit.directory(place, DIRECTORY_MODE)
        for kind, data in (("reason", f"{why}\n".encode("utf-8", "backslashreplace")), *contents.items()):
            self._commit.create(f"{place}/{kind}", data, FILE_MODE)
        self.count += len(contents)

    def _place(self, message: int | str, paths: dict[str, str], why: str) -> str:
        """Return the directory for files: the first one that has none of them, or these themselves."""
        place, tries = f"{self._top}/{message}", 0
        while any(not self._is_free(f"{place}/{kind}", path) for kind, path in paths.items()):
            tries += 1
            place = f"{self._top}/{message}.{tries}"
        self._commit.directory(place, DIRECTORY_MODE)
        if look_at(f"{place}/reason") is None:
            self._commit.create(f"{place}/reason", f"{why}\n".encode("utf-8", "backslashreplace"), FILE_MODE)
        return place

    @staticmethod
    def _is_free(new: str, path: str) -> bool:
        there, found = look_at(new), look_at(path)
        return there is None or (found is not None and os.path.samestat(there, found))

    def flush(self) -> None:
        """Finish, durably."""
        self._commit.sync()
        for path in self._old:
            self._commit.unlink(path)
            if self._commit.is_full:
                self._commit.sync()
        self._commit.sync()
        self._old.clear()


def _holds(path: str, data: bytes) -> bool:
    try:
        return is_regular(look_at(path)) and read_file(path) == data
    except OSError:
        return False


def _number(path: str) -> str:
    return os.path.basename(path)
