"""Where a message's files are: split read from the disk, todo/ and intd/ flat or hashed (docs/design/queue-on-disk.md).

`open_layout` looks at a queue directory once; the Layout it returns turns ids into paths. It raises
Temporary for a queue that cannot be read, and Permanent for one whose directories do not fit together.
"""

import os
import stat

from queue_base.errors import Permanent, Temporary, reason

HASHED = ("mess", "info", "local", "remote")
# Modes as they are made: mess/ may be read by the group, so that queue-remote can; nothing else may.
MESS_MODE = 0o640
FILE_MODE = 0o600


class Layout:
    """Paths of one queue's files, as str; `split` is the number of buckets."""

    __slots__ = ("flat_intd", "flat_todo", "queue", "split")

    def __init__(self, queue: str, split: int, flat_todo: bool = False, flat_intd: bool = False) -> None:
        self.queue = queue
        self.split = split
        self.flat_todo = flat_todo
        self.flat_intd = flat_intd

    def hashed(self, kind: str, message: int) -> str:
        """Return the path of a message's file in a hashed directory: mess, info, local, remote, hold, corrupt."""
        return f"{self.queue}/{kind}/{message % self.split}/{message}"

    def mess(self, message: int) -> str:
        return f"{self.queue}/mess/{message % self.split}/{message}"

    def todo(self, message: int) -> str:
        return f"{self.queue}/todo/{message}" if self.flat_todo else self.hashed("todo", message)

    def intd(self, message: int) -> str:
        return f"{self.queue}/intd/{message}" if self.flat_intd else self.hashed("intd", message)

    def bounce(self, message: int) -> str:
        return f"{self.queue}/bounce/{message}"

    def directories(self, kind: str) -> list[str]:
        """Return the directories that hold files of a kind: its buckets, or itself where it is flat."""
        flat = {"todo": self.flat_todo, "intd": self.flat_intd, "bounce": True}.get(kind, False)
        top = f"{self.queue}/{kind}"
        return [top] if flat else [f"{top}/{number}" for number in range(self.split)]


def open_layout(queue: str) -> Layout:
    """Return the layout of the queue directory `queue`. Raises Temporary or Permanent."""
    split = count_buckets(queue, "mess")
    if split == 0:
        raise Permanent(f"unable to use {queue}/mess: it has no numbered directories; queuectl init makes a queue")
    for kind in HASHED[1:]:
        _check_buckets(queue, kind, split)
    return Layout(queue, split, _is_flat(queue, "todo", split), _is_flat(queue, "intd", split))


def count_buckets(queue: str, kind: str) -> int:
    """Return the number of numbered directories in queue/kind. Raises Temporary, and Permanent where one is missing."""
    try:
        with os.scandir(f"{queue}/{kind}") as entries:
            names = {entry.name for entry in entries if entry.name.isdigit() and entry.is_dir(follow_symlinks=False)}
    except OSError as error:
        raise Temporary(f"unable to read {queue}/{kind}: {reason(error)}") from error
    missing = [number for number in range(len(names)) if str(number) not in names]
    if missing:
        raise Permanent(f"unable to use {queue}/{kind}: it has {len(names)} directories but lacks {missing[0]}")
    return len(names)


def _check_buckets(queue: str, kind: str, split: int) -> None:
    found = count_buckets(queue, kind)
    if found < split:
        raise Permanent(f"unable to use {queue}/{kind}: it lacks directory {found}, which mess/ has")
    if found > split:
        raise Permanent(f"unable to use {queue}/{kind}: it has directory {split}, which mess/ lacks")


def is_directory(path: str) -> bool:
    """Return whether a path is a directory. Raises Temporary where that cannot be found out: it is no answer."""
    try:
        return stat.S_ISDIR(os.stat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise Temporary(f"unable to look at {path}: {reason(error)}") from error


def _is_flat(queue: str, kind: str, split: int) -> bool:
    top = f"{queue}/{kind}"
    # A flat directory may hold very many files, so it is not listed: only a hashed one has directories in it.
    if any(is_directory(f"{top}/{number}") for number in (0, split - 1)):
        _check_buckets(queue, kind, split)
        return False
    if not is_directory(top):
        raise Permanent(f"unable to use {top}: it is not a directory that is there; queuectl init makes a queue")
    return True
