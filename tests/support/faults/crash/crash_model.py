"""What a power cut may leave of the files that a traced process changed, by POSIX's weakest reading.

A file's contents are safe after fsync of the file, a name (or its removal) after fsync of its
directory, everything after syncfs or sync. What is not safe yet may be there or not, each name and each
file by itself: a rename is two names, contents may be the old ones, any later version, a piece of
the newest, or its length full of NULs. A descriptor's fsync covers what was written before it began.

    model = CrashModel(root)                    # before the process: what is there is safe
    subprocess.run(strace_command(output, [...]))
    model.load(output)
    for crash in model.crashes(): ...

A call that changes files below `root` in a way that the model does not know raises Unsupported.
"""

import itertools
import random
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from support.faults.crash.crash_calls import Replay
from support.faults.crash.crash_disk import Disk, Inode, Unsupported
from support.faults.strace import Call, read_trace

__all__ = ["Crash", "CrashModel", "File", "Unsupported"]


class File(NamedTuple):
    """A file after the crash: its inode, its contents, and whether these have the file's full length and no hole."""

    inode: Inode
    content: bytes
    whole: bool


class Crash(NamedTuple):
    """One disk that a power cut after `call` may leave, and what the process had said by then.

    `files` maps paths relative to the root to File; `said` is all that was written to descriptors 1 outside
    the root; `exit_code` is the first process's, None while it runs.
    """

    point: int
    call: str
    files: dict[str, File]
    said: bytes
    exit_code: int | None


class CrashModel:
    """The files below `root` as they are now, and then as traces of processes change them."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()
        self.restart()

    def restart(self) -> None:
        """Take the files as they are now for safe, and forget what was loaded."""
        self._start = Replay.of_directory(self._root)
        self._calls: list[Call] = []

    def load(self, trace: Path) -> None:
        """Add the calls in a file that strace wrote (strace.strace_command) after those already there."""
        self._calls += read_trace(trace)

    def crashes(self, most: int = 2048, seed: int = 0) -> Iterator[Crash]:
        """Yield the disks that a power cut may leave after each call that changed something.

        Where there are more than `most` at one point, they are the extreme ones and random others. With `most` 0 it
        is what SIGKILL of all processes leaves: all that was done.
        """
        final = self._final_contents()
        disk = self._start.copy()
        said, exit_code, first = b"", None, None
        for point, call in enumerate(self._calls):
            first = call.pid if first is None else first
            if call.name == "exited":
                exit_code = int(call.result) if call.pid == first else exit_code
                changed = call.pid == first
            elif told := disk.told(call):
                said += told
                changed = True
            else:
                changed = disk.apply(call)
            if changed:
                for files in _disks(disk, final, most, random.Random(f"{seed} {point}")):
                    yield Crash(point, call.shown(), files, said, exit_code)

    def _final_contents(self) -> dict[int, bytes]:
        disk = self._start.copy()
        for call in self._calls:
            disk.apply(call)
        return {key: inode.contents.newest for key, inode in disk.inodes.items()}


def _disks(disk: Disk, final: dict[int, bytes], most: int, source: random.Random) -> Iterator[dict[str, File]]:
    """Yield {path: File} for the choices that are open at one point."""
    names = {path: disk.name_options(path) if most else [disk.now(path)] for path in disk.names}
    reachable = {inode.key: inode for options in names.values() for inode in options if inode is not None}
    open_names = [path for path, options in names.items() if len(options) > 1]
    contents = {key: inode.options() if most else [inode.contents.newest] for key, inode in reachable.items()}
    open_contents = [key for key, options in contents.items() if len(options) > 1]
    sizes = [len(names[path]) for path in open_names] + [len(contents[key]) for key in open_contents]
    for choice in _choices(sizes, max(most, 1), source):
        chosen_names = dict(zip(open_names, choice, strict=False))
        chosen_contents = dict(zip(open_contents, choice[len(open_names) :], strict=True))
        gone = tuple(
            path + "/" for path, at in chosen_names.items() if path in disk.directories and names[path][at] is None
        )
        files = {}
        for path, options in names.items():
            inode = options[chosen_names.get(path, 0)]
            if inode is None or path in disk.directories or (gone and path.startswith(gone)):
                continue
            content = contents[inode.key][chosen_contents.get(inode.key, 0)]
            files[path] = File(inode, content, _is_whole(inode, content, final[inode.key]))
        yield files


def _is_whole(inode: Inode, content: bytes, final: bytes) -> bool:
    # A file that only changed in place, as by DONE marks, was whole before each change, too.
    return content == final or (len(content) == len(final) and content in inode.contents.values)


def _choices(sizes: list[int], most: int, source: random.Random) -> Iterator[tuple[int, ...]]:
    """Yield one index for each size: all combinations, or the extreme ones and random ones up to `most`."""
    total = 1
    for size in sizes:
        total *= size
    if total <= most:
        yield from itertools.product(*(range(size) for size in sizes))
        return
    oldest, newest = (0,) * len(sizes), tuple(size - 1 for size in sizes)
    yield from (oldest, newest)
    # One name or file unlike all the others is what most wrong orders need.
    single = [
        (*base[:place], other, *base[place + 1 :])
        for base in (oldest, newest)
        for place, size in enumerate(sizes)
        for other in range(size)
        if base[place] != other
    ]
    yield from single if len(single) <= most else source.sample(single, most)
    for _ in range(most):
        yield tuple(source.randrange(size) for size in sizes)
