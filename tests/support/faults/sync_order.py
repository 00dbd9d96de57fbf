"""Whether each sync of a trace went by a descriptor that could tell of every failed write (support.faults.strace)."""

import os
from pathlib import Path

from support.faults.crash.crash_calls import Replay
from support.faults.crash.crash_disk import Inode
from support.faults.strace import Call, read_trace


class SyncOrder(Replay):
    """Follows a process; `wrong` says which syncs went by a descriptor that was opened after what they are to sync.

        order = SyncOrder.of_directory(root)        # before the process
        order.load(trace)
    """

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.wrong: list[str] = []
        self.synced: list[str] = []
        self._moment = 0
        # By inode, and by directory: when they were first changed since their last sync.
        self._written: dict[int, int] = {}
        self._changed: dict[str, int] = {}
        # By descriptor, of the process whose table it is: when it was opened.
        self._born: dict[tuple[int, int], int] = {}

    def load(self, trace: Path) -> None:
        """Take the calls in a file that strace wrote."""
        for call in read_trace(trace):
            self._take(call)

    def _take(self, call: Call) -> None:
        self._moment += 1
        if call.name in ("sync", "syncfs"):
            self.wrong.append(call.shown())
        if call.began:
            return
        if call.name in ("write", "pwrite64", "ftruncate"):
            opened = self.open_file(call)
            if opened is not None:
                self._written.setdefault(opened.inode.key, self._moment)
        self.apply(call)
        if call.name == "openat":
            self._born[self._table(call), call.opened()[0]] = self._moment
        elif call.name == "fsync":
            self._look(call)

    def _table(self, call: Call) -> int:
        return id(self.opened.setdefault(call.pid, {}))

    def set(self, path: str, inode: Inode | None) -> bool:
        self._changed.setdefault(os.path.dirname(path), self._moment)
        return super().set(path, inode)

    def _look(self, call: Call) -> None:
        number, path = call.descriptor(0)
        inside = self.inside(path)
        if inside is None:
            return
        self.synced.append(inside)
        opened = self.open_file(call)
        if inside in self.directories:
            first = self._changed.pop(inside, None)
        else:
            first = self._written.pop(opened.inode.key, None) if opened else None
        if first is not None and self._born.get((self._table(call), number), self._moment) > first:
            self.wrong.append(call.shown())

    def left(self) -> list[str]:
        """Return the names below the root of files that were written and not synced since."""
        names = {history.newest.key: path for path, history in self.names.items() if history.newest is not None}
        return sorted(names[key] for key in self._written if key in names)
