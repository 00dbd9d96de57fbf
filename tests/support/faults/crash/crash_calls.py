"""What each traced system call does to the model file system (support.faults.crash.crash_disk)."""

import os

from support.faults.crash.crash_disk import Disk, Inode, Opened, Unsupported
from support.faults.strace import Call


class Replay(Disk):
    """A Disk that is told of calls, in the order in which they ended.

    A method that is named after a call returns whether more or other disks are possible after it. Syncs
    only make disks impossible, so nothing has to be looked at again after one.
    """

    def __init__(self, root: str) -> None:
        super().__init__(root)
        # What a sync that has begun and not ended will make safe: marks of names, and of contents.
        self._begun: dict[int, tuple[dict[str, int], dict[int, int]]] = {}

    def told(self, call: Call) -> bytes:
        """Return what the call wrote to descriptor 1, where that is not a file of ours."""
        if call.began or call.name != "write" or call.descriptor(0)[0] != 1:
            return b""
        return b"" if self.inside(call.descriptor(0)[1]) is not None else call.data(1)[: int(call.result)]

    def apply(self, call: Call) -> bool:
        """Do what the call did; return whether more or other disks are possible now. Raises Unsupported."""
        if call.began:
            if call.name in ("fsync", "fdatasync", "syncfs", "sync"):
                self._begun[call.pid] = self._everything()
            return False
        handler = getattr(self, f"_do_{call.name}", None)
        if handler is not None:
            return bool(handler(call))
        if any(self.inside(path) is not None for path in self._touched(call)):
            raise Unsupported(call.shown())
        return False


    def _touched(self, call: Call) -> list[str]:
        found = [call.descriptor(index)[1] for index in range(len(call.arguments))]
        strings = [index for index, text in enumerate(call.arguments) if text.startswith('"')]
        return found + [os.path.join(self.current.get(call.pid, ""), call.path(index)) for index in strings]

    def _do_openat(self, call: Call) -> bool:
        number, path = call.opened()
        table = self.opened.setdefault(call.pid, {})
        table.pop(number, None)
        inside = self.inside(path)
        flags = call.arguments[2].split("|")
        if call.arguments[0].startswith("AT_FDCWD"):
            self.current[call.pid] = call.descriptor(0)[1]
        if inside is None or inside in self.directories:
            return False
        inode = None if "O_TMPFILE" in flags else self.now(inside)
        changed = False
        if inode is not None and inode.special:
            return False
        if inode is None:
            if "O_CREAT" not in flags and "O_TMPFILE" not in flags:
                raise Unsupported(call.shown())
            inode = self.new(0)
            changed = "O_TMPFILE" not in flags and self.set(inside, inode)
        elif "O_TRUNC" in flags:
            inode.cut(0)
            changed = True
        table[number] = Opened(inode, "O_APPEND" in flags)
        return changed

    def _do_close(self, call: Call) -> bool:
        self.opened.get(call.pid, {}).pop(call.descriptor(0)[0], None)
        return False

    def _do_dup(self, call: Call) -> bool:
        table = self.opened.setdefault(call.pid, {})
        opened = table.get(call.descriptor(0)[0])
        table.pop(call.opened()[0], None)
        if opened is not None:
            table[call.opened()[0]] = opened
        return False

    _do_dup2 = _do_dup3 = _do_dup

    def _do_fcntl(self, call: Call) -> bool:
        return self._do_dup(call) if call.arguments[1].startswith("F_DUPFD") else False

    def _do_clone(self, call: Call) -> bool:
        if call.result == "?":
            return False  # Its caller was killed meanwhile.
        child = int(call.result.split()[0])
        table = self.opened.setdefault(call.pid, {})
        # A thread has its process's descriptors, a child process copies of them.
        self.opened[child] = table if "CLONE_FILES" in " ".join(call.arguments) else dict(table)
        self.current[child] = self.current.get(call.pid, "")
        return False

    _do_clone3 = _do_fork = _do_vfork = _do_clone

    def _do_execve(self, call: Call) -> bool:
        self.opened.pop(call.pid, None)
        return False

    def _do_chdir(self, call: Call) -> bool:
        self.current[call.pid] = os.path.join(self.current.get(call.pid, ""), call.path(0))
        return False

    def _do_fchdir(self, call: Call) -> bool:
        self.current[call.pid] = call.descriptor(0)[1]
        return False

    def _do_lseek(self, call: Call) -> bool:
        # "?": killed in the call, so it never returned, and nobody uses the offset.
        if call.result != "?" and (opened := self.open_file(call)):
            opened.offset = int(call.result)
        return False

    def _do_fstat(self, call: Call, index: int = 0) -> bool:
        if (opened := self.open_file(call, index)) and not opened.inode.number:
            opened.inode.number = call.inode()
        return False

    def _do_newfstatat(self, call: Call) -> bool:
        if call.arguments[1] == '""':
            return self._do_fstat(call)
        path = self.at(call, 0)
        inode = self.now(path) if path else None
        if inode is not None and not inode.number:
            inode.number = call.inode()
        return False

    _do_statx = _do_newfstatat

    def _do_write(self, call: Call) -> bool:
        opened = self.open_file(call)
        if opened is None:
            return False
        opened.write(_written(call))
        return True

    def _do_pwrite64(self, call: Call) -> bool:
        opened = self.open_file(call)
        if opened is None:
            return False
        opened.inode.write(_written(call), int(call.arguments[3]))
        return True

    def _do_ftruncate(self, call: Call) -> bool:
        opened = self.open_file(call)
        if opened is None:
            return False
        opened.inode.cut(int(call.arguments[1]))
        return True

    def _do_fallocate(self, call: Call) -> bool:
        """It adds no contents: the file was made as long before."""
        opened = self.open_file(call)
        if opened is not None and len(opened.inode.contents.newest) < int(call.arguments[2]) + int(call.arguments[3]):
            raise Unsupported(call.shown())
        return False

    def _do_link(self, call: Call, old: int = -1, new: int = -2) -> bool:
        target = self.at(call, new)
        if target is None:
            return False
        source = self.at(call, old)
        inode = self.now(source) if source is not None else self._nameless(call, old)
        if inode is None:
            raise Unsupported(call.shown())
        return self.set(target, inode)

    def _nameless(self, call: Call, index: int) -> Inode | None:
        """Return the inode of the source `/proc/self/fd/N`, which is how a file without a name gets one."""
        directory, _, number = (call.path(index + 1) if index >= 0 else "").rpartition("/")
        if directory != "/proc/self/fd" or "AT_SYMLINK_FOLLOW" not in call.arguments[4]:
            return None
        opened = self.opened.get(call.pid, {}).get(int(number))
        return opened.inode if opened else None

    def _do_linkat(self, call: Call) -> bool:
        return self._do_link(call, 0, 2)

    def _do_unlink(self, call: Call, index: int = -1) -> bool:
        path = self.at(call, index)
        return path is not None and self.set(path, None)

    _do_rmdir = _do_unlink

    def _do_unlinkat(self, call: Call) -> bool:
        return self._do_unlink(call, 0)

    def _do_rename(self, call: Call, old: int = -1, new: int = -2) -> bool:
        source, target = self.at(call, old), self.at(call, new)
        if source is None and target is None:
            return False
        inode = self.now(source) if source is not None else None
        if source is None or target is None or inode is None or source in self.directories:
            raise Unsupported(call.shown())
        return self.set(target, inode) and self.set(source, None)

    def _do_renameat(self, call: Call) -> bool:
        return self._do_rename(call, 0, 2)

    _do_renameat2 = _do_renameat

    def _do_mkdir(self, call: Call, index: int = -1) -> bool:
        path = self.at(call, index)
        if path is None:
            return False
        self.directories.add(path)
        return self.set(path, self.new(0))

    def _do_mkdirat(self, call: Call) -> bool:
        return self._do_mkdir(call, 0)

    def _everything(self) -> tuple[dict[str, int], dict[int, int]]:
        return (
            {path: history.position() for path, history in self.names.items()},
            {key: inode.contents.position() for key, inode in self.inodes.items()},
        )

    def _safe(self, pid: int, paths: list[str], inodes: list[Inode]) -> bool:
        """Forget what was before the newest value that the sync saw when it began."""
        names, contents = self._begun.pop(pid) if pid in self._begun else self._everything()
        for path in paths:
            if path in names:
                self.names[path].safe_up_to(names[path])
        for inode in inodes:
            if inode.key in contents:
                inode.contents.safe_up_to(contents[inode.key])
        return False

    def _do_fsync(self, call: Call) -> bool:
        inside = self.inside(call.descriptor(0)[1])
        if inside is not None and inside in self.directories:
            return self._safe(call.pid, [path for path in self.names if os.path.dirname(path) == inside], [])
        opened = self.open_file(call)
        return self._safe(call.pid, [], [opened.inode] if opened else [])

    _do_fdatasync = _do_fsync

    def _do_sync_file_range(self, call: Call) -> bool:
        """Nothing is safe after it: what it writes may still be in the disk's own memory, and no size is written."""
        return False

    def _do_syncfs(self, call: Call) -> bool:
        if self.inside(call.descriptor(0)[1]) is None:
            return False
        return self._do_sync(call)

    def _do_sync(self, call: Call) -> bool:
        return self._safe(call.pid, list(self.names), list(self.inodes.values()))


def _written(call: Call) -> bytes:
    """Return what a call wrote. One whose caller was killed meanwhile, so that nobody saw its result, wrote all."""
    data = call.data(1)
    return data if call.result == "?" else data[: int(call.result)]
