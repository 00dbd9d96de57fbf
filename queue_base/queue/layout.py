"""The files of a message on disk: their paths, which of them exist, and the state that this makes.

`open_layout` looks at a queue directory once: split is the number of directories in mess/, and todo/ and intd/ may be
flat or hashed. A class of mail but the first (queue_wire.control.priorities) has a tree of its own in the place of
todo/, queue/priority/CLASS/B/I, always hashed. The Layout turns ids into paths. It raises Temporary for a queue that
cannot be read, and Permanent for a queue whose directories do not fit together.

    S1  nothing    S2  mess    S3  mess, intd    S4  mess, todo: queued    S5  mess, info: classified

The file of a message in the tree of a class is its todo: there is one in todo/ or in one of the trees.
"""

import errno
import os
import stat
import time

from queue_base.durable import is_in_memory
from queue_base.errors import Permanent, Temporary, reason, why_refused
from queue_wire.files.envelope import is_class_name

HASHED = ("mess", "info", "local", "remote")
# Modes of new files. The group may read mess/, for queue-remote, and nothing else.
MESS_MODE = 0o640
FILE_MODE = 0o600
# The bit of an envelope in todo/ whose message was queued with a mark in hold/. A message that was put on hold later
# does not have it: queue-send knows that one.
HELD_BIT = stat.S_ISVTX
# The bit of a file in info/ that has the record of a class, so that queue-send reads no other file in info/ at start.
CLASS_BIT = stat.S_ISVTX
BIRTH_MAX = 2**62 - 1
PRIORITY = "priority"  # The directory of the trees of the classes.
LOOK_SECONDS = 1.0  # Between looks whether a tree was made since.


class Layout:
    """The paths of one queue, as str; `split` is the number of directories in mess/.

    `lower` are the classes that have a tree, by name. Where a class is a str, an empty one is the first class. A tree
    that is made by another process is known within LOOK_SECONDS.
    """

    __slots__ = ("_look_at", "_seen", "flat_intd", "flat_todo", "lower", "queue", "split")

    def __init__(
        self, queue: str, split: int, flat_todo: bool = False, flat_intd: bool = False, lower: tuple[str, ...] = ()
    ) -> None:
        self.queue = queue
        self.split = split
        self.flat_todo = flat_todo
        self.flat_intd = flat_intd
        self.lower = lower
        self._look_at, self._seen = 0.0, -1

    def hashed(self, kind: str, message: int) -> str:
        """Return the path of a message's file in a hashed directory: mess, info, local, remote, hold, corrupt, last."""
        return f"{self.queue}/{kind}/{message % self.split}/{message}"

    def mess(self, message: int) -> str:
        return f"{self.queue}/mess/{message % self.split}/{message}"

    def todo(self, message: int) -> str:
        """Return the path of a message's envelope; it is looked for if there are several classes."""
        return self.todo_in(self.class_of(message), message)

    def todo_in(self, priority: str, message: int) -> str:
        """Return the path that the envelope of a message of a class has."""
        if priority:
            return f"{self.queue}/{PRIORITY}/{priority}/{message % self.split}/{message}"
        return f"{self.queue}/todo/{message}" if self.flat_todo else self.hashed("todo", message)

    def class_of(self, message: int) -> str:
        """Return the class in whose tree a message's envelope is; the first class if it is in none."""
        self._look_again()
        for priority in self.lower:
            try:
                os.lstat(self.todo_in(priority, message))
            except FileNotFoundError:
                continue
            except OSError:
                pass  # Whoever uses the path gets the error.
            return priority
        return ""

    def todo_paths(self, message: int) -> list[str]:
        """Return all paths that the envelope of a message may have."""
        self._look_again()
        return [self.todo_in(priority, message) for priority in ("", *self.lower)]

    def intd(self, message: int) -> str:
        return f"{self.queue}/intd/{message}" if self.flat_intd else self.hashed("intd", message)

    def bounce(self, message: int) -> str:
        return f"{self.queue}/bounce/{message}"

    def directories(self, kind: str) -> list[str]:
        """Return the directories that hold files of a kind: the numbered ones, or one if it is flat.

        Those of todo are followed by those of the other classes.
        """
        if kind == "todo":
            return [path for priority in ("", *self.lower) for path in self.todo_directories(priority)]
        flat = {"intd": self.flat_intd, "bounce": True}.get(kind, False)
        top = f"{self.queue}/{kind}"
        return [top] if flat else [f"{top}/{number}" for number in range(self.split)]

    def todo_directories(self, priority: str) -> list[str]:
        """Return the directories that hold the envelopes of one class."""
        if self.flat_todo and not priority:
            return [f"{self.queue}/todo"]
        top = f"{self.queue}/{PRIORITY}/{priority}" if priority else f"{self.queue}/todo"
        return [f"{top}/{number}" for number in range(self.split)]

    def lower_directories(self, number: int) -> list[str]:
        """Return the directories of one bucket in the trees of the lower classes."""
        self._look_again()
        return [f"{self.queue}/{PRIORITY}/{priority}/{number}" for priority in self.lower]

    def learn_classes(self) -> None:
        """Look for trees that were made since. Raises Temporary, Permanent."""
        seen = self._look()
        self.lower = find_classes(self.queue, self.split)
        self._seen = seen

    @property
    def has_changed(self) -> bool:
        """Whether a tree was made since `learn_classes`, as far as that can be told."""
        return self._look() != self._seen

    def _look(self) -> int:
        try:
            return os.stat(f"{self.queue}/{PRIORITY}").st_mtime_ns
        except OSError:
            return -1

    def _look_again(self) -> None:
        now = time.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + LOOK_SECONDS
        try:
            if self.has_changed:
                self.learn_classes()
        except (Temporary, Permanent):
            pass  # Those that are known stay.


def open_layout(queue: str) -> Layout:
    """Return the layout of the queue directory `queue`. Raises Temporary or Permanent."""
    split = count_buckets(queue, "mess")
    if split == 0:
        raise Permanent(f"unable to use {queue}/mess: it has no numbered directories; queuectl init makes a queue")
    for kind in HASHED[1:]:
        _check_buckets(queue, kind, split)
    flat_todo, flat_intd = _is_flat(queue, "todo", split), _is_flat(queue, "intd", split)
    return Layout(queue, split, flat_todo, flat_intd, find_classes(queue, split))


def find_classes(queue: str, split: int) -> tuple[str, ...]:
    """Return the classes that have a tree, by name. Raises Temporary, and Permanent for an incomplete tree.

    Anything else in priority/ is nobody's.
    """
    try:
        names = sorted(os.listdir(f"{queue}/{PRIORITY}"))
    except (FileNotFoundError, NotADirectoryError):
        return ()
    except OSError as error:
        raise Temporary(f"unable to read {queue}/{PRIORITY}: {reason(error)}") from error
    found = tuple(
        name for name in names if is_class_name(os.fsencode(name)) and is_class_tree(f"{queue}/{PRIORITY}/{name}")
    )
    for name in found:
        _check_buckets(queue, f"{PRIORITY}/{name}", split)
    return found


def is_class_tree(path: str) -> bool:
    """Return whether a path in priority/ is a directory with numbered ones. Raises Temporary."""
    try:
        with os.scandir(path) as entries:
            return any(entry.name.isdigit() and entry.is_dir(follow_symlinks=False) for entry in entries)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        if error.errno == errno.ELOOP:
            return False
        raise Temporary(f"unable to read {path}: {why_refused(error)}") from error


def queue_in_memory(layout: Layout) -> bool:
    """Return whether no sync of a file in the queue waits for a disk, because there is none."""
    try:
        return all(is_in_memory(f"{layout.queue}/{kind}") for kind in (*HASHED, "intd", "todo"))
    except OSError:
        return False


def count_buckets(queue: str, kind: str) -> int:
    """Return the number of numbered directories in queue/kind. Raises Temporary, and Permanent if one is missing."""
    try:
        with os.scandir(f"{queue}/{kind}") as entries:
            found = {entry.name for entry in entries if entry.name.isdigit() and entry.is_dir(follow_symlinks=False)}
    except FileNotFoundError as error:
        why = f"{reason(error)}; mount its disk, or make the queue with queuectl init"
        raise Temporary(f"unable to read {queue}/{kind}: {why}") from error
    except OSError as error:
        raise Temporary(f"unable to read {queue}/{kind}: {why_refused(error)}") from error
    # Such as a person's `007`, which is no directory of the queue.
    names = {name for name in found if name.isascii() and (name == "0" or name[0] != "0")}
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
    """Return whether a path is a directory. Raises Temporary if stat fails, except with ENOENT or ENOTDIR."""
    try:
        return stat.S_ISDIR(os.stat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise Temporary(f"unable to look at {path}: {why_refused(error)}") from error


def _is_flat(queue: str, kind: str, split: int) -> bool:
    top = f"{queue}/{kind}"
    # Not listed, because a flat directory may hold very many files. Only a hashed one contains directories.
    if any(is_directory(f"{top}/{number}") for number in (0, split - 1)):
        _check_buckets(queue, kind, split)
        return False
    if not is_directory(top):
        raise Permanent(f"unable to use {top}: it is not a directory that is there; queuectl init makes a queue")
    return True


def birth_by(found: os.stat_result) -> int:
    """Return the birth that a message's file says, in microseconds since the epoch: 0 to BIRTH_MAX.

    A clock that was wrong, or a backup, may have set any time. Pipes and long ids have no room for larger ones.
    """
    return min(max(0, found.st_mtime_ns // 1000), BIRTH_MAX)


def is_there(path: str) -> bool:
    """Return whether a name exists. Raises OSError for any error but ENOENT.

    os.path.exists takes every error for absence: with a directory that may not be searched or a disk that cannot be
    read, mail would look as if it did not exist.
    """
    try:
        os.lstat(path)
    except FileNotFoundError:
        return False
    return True


class Presence:
    """Which files of a message exist."""

    __slots__ = ("bounce", "info", "intd", "local", "mess", "remote", "todo")

    def __init__(self, layout: Layout, message: int, listed: dict[str, set[int]] | None = None) -> None:
        """Look at the disk. Raises OSError if that fails for a file.

        `listed` are the messages that have a file of each kind, where the directories have been read.
        """
        if listed is not None:
            self.mess = message in listed["mess"]
            self.intd = message in listed["intd"]
            self.todo = message in listed["todo"]
            self.info = message in listed["info"]
            self.local = message in listed["local"]
            self.remote = message in listed["remote"]
            self.bounce = message in listed["bounce"]
            return
        self.mess = is_there(layout.mess(message))
        self.intd = is_there(layout.intd(message))
        self.todo = is_there(layout.todo(message))
        self.info = is_there(layout.hashed("info", message))
        self.local = is_there(layout.hashed("local", message))
        self.remote = is_there(layout.hashed("remote", message))
        self.bounce = is_there(layout.bounce(message))

    def state(self) -> int | None:
        """Return the state, 1 to 5, or None for a combination that no crash of the suite can leave."""
        rest = self.local or self.remote
        if not self.mess:
            anything = self.intd or self.todo or self.info or rest or self.bounce
            return None if anything else 1
        if self.todo:
            return None if self.bounce else 4
        if self.info:
            return None if self.intd else 5
        if rest or self.bounce:
            return None
        return 3 if self.intd else 2


def files_beside_mess(layout: Layout, message: int) -> list[str]:
    """Return the paths of all files that a message may have, except mess/B/I."""
    kinds = ("info", "local", "remote", "hold", "corrupt")
    hashed = [layout.hashed(kind, message) for kind in kinds]
    return [*layout.todo_paths(message), layout.intd(message), *hashed, layout.bounce(message)]
