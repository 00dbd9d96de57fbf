"""A model file system that keeps, for each name and each file, what is safe and what came after it."""

import copy
import os
from pathlib import Path
from typing import Generic, Self, TypeVar

from support.faults.strace import Call

Value = TypeVar("Value")

# Versions of one file between two syncs that are tried besides the first and the last.
_BETWEEN = 3
# Because of the boot id nothing in this file counts after a power cut. So it has only its newest contents.
KILL_ONLY = "marks"


class Unsupported(Exception):
    """A call that changes files in a way that this model does not know."""


class History(Generic[Value]):
    """What one thing has been since its last sync: `values`, the safe one first, the newest last."""

    def __init__(self, value: Value) -> None:
        self.values = [value]
        self._dropped = 0

    @property
    def newest(self) -> Value:
        return self.values[-1]

    def position(self) -> int:
        """Return a mark for the newest value, that stays right when others sync."""
        return self._dropped + len(self.values)

    def safe_up_to(self, position: int) -> None:
        """Make the value at the mark, or a newer one that is safe already, the safe one."""
        number = max(0, position - self._dropped - 1)
        del self.values[:number]
        self._dropped += number


class Inode:
    """A file or directory and its contents; `number` is the real inode's, or 0 while that is not known.

    A special file (a FIFO) has no contents that could be lost. Of one that is `kill_only` the newest count.
    """

    def __init__(self, key: int, number: int, content: bytes, special: bool = False) -> None:
        self.key = key
        self.number = number
        self.special = special
        self.kill_only = False
        self.contents = History(content)

    def options(self) -> list[bytes]:
        """Return the contents that a power cut may leave, the safe one first, without repeats."""
        if self.kill_only:
            return [self.contents.newest]
        safe, newest = self.contents.values[0], self.contents.newest
        found = [safe, *self.contents.values[1:-1][-_BETWEEN:]]
        if len(newest) > len(safe):
            found += [newest[: (len(safe) + len(newest)) // 2], newest[: len(safe)] + bytes(len(newest) - len(safe))]
        return list(dict.fromkeys([*found, newest]))

    def write(self, data: bytes, offset: int) -> None:
        """Add a version with `data` at `offset`."""
        old = self.contents.newest.ljust(offset, b"\0")
        self.contents.values.append(old[:offset] + data + old[offset + len(data) :])

    def cut(self, length: int) -> None:
        """Add a version that is `length` bytes long."""
        self.contents.values.append(self.contents.newest[:length].ljust(length, b"\0"))


class Opened:
    """An open file: its inode, its offset, and whether it appends."""

    def __init__(self, inode: Inode, append: bool) -> None:
        self.inode = inode
        self.offset = 0
        self.append = append

    def write(self, data: bytes) -> None:
        if self.append:
            self.offset = len(self.inode.contents.newest)
        self.inode.write(data, self.offset)
        self.offset += len(data)


class Disk:
    """Files below `root`; `names` maps a path relative to the root to what it has stood for."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.names: dict[str, History[Inode | None]] = {}
        self.directories: set[str] = {""}
        self.inodes: dict[int, Inode] = {}
        self.opened: dict[int, dict[int, Opened]] = {}
        self.current: dict[int, str] = {}

    @classmethod
    def of_directory(cls, root: Path) -> Self:
        """Return the model of a real directory, all of it safe."""
        disk = cls(str(root))
        for top, directories, files in os.walk(root):
            for name in [*directories, *files]:
                path = Path(top, name)
                found = path.lstat()
                special = not path.is_file()
                inode = disk.new(found.st_ino, b"" if special else path.read_bytes(), special)
                inode.kill_only = name == KILL_ONLY
                disk.names[str(path.relative_to(root))] = History(inode)
                if path.is_dir():
                    disk.directories.add(str(path.relative_to(root)))
        return disk

    def copy(self) -> Self:
        return copy.deepcopy(self)

    def name_options(self, path: str) -> list[Inode | None]:
        """Return what the name may stand for after a power cut, the safe value first, without repeats."""
        values = self.names[path].values
        return [values[-1]] if os.path.basename(path) == KILL_ONLY else list(dict.fromkeys(values))

    def inside(self, path: str) -> str | None:
        """Return an absolute path relative to the root, None where it is elsewhere."""
        path = os.path.normpath(path)
        if path == self.root:
            return ""
        return path[len(self.root) + 1 :] if path.startswith(self.root + "/") else None

    def at(self, call: Call, index: int) -> str | None:
        """Return the path of arguments (directory descriptor, path), or of the path alone where index < 0."""
        if index < 0:
            return self.inside(os.path.join(self.current.get(call.pid, ""), call.path(-index - 1)))
        return self.inside(os.path.join(call.descriptor(index)[1], call.path(index + 1)))

    def now(self, path: str) -> Inode | None:
        return self.names[path].newest if path in self.names else None

    def set(self, path: str, inode: Inode | None) -> bool:
        if path not in self.names:
            self.names[path] = History[Inode | None](None)
        self.names[path].values.append(inode)
        if inode is not None and os.path.basename(path) == KILL_ONLY:
            inode.kill_only = True
        return True

    def new(self, number: int, content: bytes = b"", special: bool = False) -> Inode:
        inode = Inode(len(self.inodes), number, content, special)
        self.inodes[inode.key] = inode
        return inode

    def open_file(self, call: Call, index: int = 0) -> Opened | None:
        number, path = call.descriptor(index)
        inside = self.inside(path)
        if inside is None:
            return None
        opened = self.opened.get(call.pid, {}).get(number)
        if opened is None:
            inode = self.now(inside)
            if inode is None or inode.special or inside in self.directories:
                return None
            opened = self.opened.setdefault(call.pid, {})[number] = Opened(inode, append=True)
        return opened
