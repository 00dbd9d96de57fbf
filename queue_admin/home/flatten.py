"""Turns a hashed todo/ or intd/ into a flat one, as in stock qmail: KIND/B/I becomes KIND/I.

Each file is linked under its new name, and the old name is removed only when the new one is durable. So after a crash
each file has one name or both, and the next run finishes. If the number of a file is also the name of a directory
(inode 12 in directory 12), the file is named `.I` until the directory is removed. Names next to the directories that
belong to no message are ignored.

In the same way the trees of the lower classes, queue/priority/CLASS/B/I, are dissolved into todo/: qmail has no
classes.
"""

import errno
import os
import stat
import time

from queue_admin.home.tree import Tree, unable_to
from queue_base.errors import Permanent
from queue_base.queue.layout import PRIORITY
from queue_wire.format_error import FormatError
from queue_wire.ids import unpack_id


def is_half_flat(tree: Tree, kind: str, split: int) -> bool:
    """Return whether an earlier run was interrupted: directories are missing, or messages are next to them."""
    with unable_to("read", f"{tree.path}/{kind}"), tree.directory(kind) as top:
        buckets, others = _listed(top)
    numbered = [name for name in buckets if name.isdigit()]
    beside = any(_message(name) is not None for name in others)
    return bool(_waiting(others) or (numbered and (len(numbered) != split or beside)))


def flatten(tree: Tree, kind: str, split: int) -> int:
    """Make queue/KIND flat, durably, and return how many files were moved. The queue must be closed.

    Raises Permanent, before anything has changed, if a name belongs to no message; Temporary.
    """
    with unable_to("flatten", f"{tree.path}/{kind}"), tree.directory(kind) as top:
        buckets, files = check_names(tree, kind, split)
        for name, bucket in files:
            with tree.directory(f"{kind}/{bucket}") as below:
                _link(below, name, top, f".{name}" if name == bucket else name)
        tree.sync()
        for name, bucket in files:
            tree.unlink(f"{kind}/{bucket}/{name}")
        tree.sync()
        for bucket in buckets:
            os.rmdir(bucket, dir_fd=top)
        tree.sync()
        waiting = _waiting(_listed(top)[1])
        for name in waiting:
            _link(top, name, top, name[1:])
        tree.sync()
        for name in waiting:
            os.unlink(name, dir_fd=top)
        tree.sync()
    return len(files)


def check_names(tree: Tree, kind: str, split: int) -> tuple[list[str], list[tuple[str, str]]]:
    """Return the numbered directories and the (name, directory) of the files in them. Raises as flatten does."""
    path = f"{tree.path}/{kind}"
    files: list[tuple[str, str]] = []
    with unable_to("read", path), tree.directory(kind) as top:
        buckets = _listed(top)[0]
        for bucket in buckets:
            with tree.directory(f"{kind}/{bucket}") as below:
                files += [(name, bucket) for name in os.listdir(below)]
    for bucket in buckets:
        if not bucket.isdigit() or int(bucket) >= split:
            raise Permanent(f"unable to flatten {path}: directory {bucket} is not one of its {split}; move it away")
    for name, bucket in files:
        message = _message(name)
        if message is None or message % split != int(bucket):
            raise Permanent(f"unable to flatten {path}: {bucket}/{name} is not a message's name; move it away")
    return buckets, files


def class_files(tree: Tree) -> tuple[list[str], list[tuple[str, str]]]:
    """Return the directories of the trees of the classes, the upper ones first, and (directory, name) of their files.

    Raises Permanent if a name does not belong there, Temporary.
    """
    files: list[tuple[str, str]] = []
    directories: list[str] = []
    for name in tree.list(PRIORITY):
        top = f"{PRIORITY}/{name}"
        if not tree.is_directory(top):
            raise Permanent(f"unable to use {tree.path}/{top}: it is not the tree of a class; move it away")
        directories.append(top)
        for bucket in tree.list(top):
            below = f"{top}/{bucket}"
            if not tree.is_directory(below):
                raise Permanent(f"unable to use {tree.path}/{below}: it is no directory of a class; move it away")
            directories.append(below)
            for each in tree.list(below):
                if _message(each) is None:
                    raise Permanent(f"unable to use {tree.path}/{below}/{each}: it is no message; move it away")
                files.append((below, each))
    return directories, files


def dissolve_classes(tree: Tree, split: int) -> int:
    """Move what is in the trees of the classes to todo/, durably, and remove them; return how many files were moved.

    The queue must be closed. Raises as `class_files` does, before anything has changed.
    """
    return _dissolve(tree, split, *class_files(tree)) if tree.is_directory(PRIORITY) else 0


def dissolve_classes_but_strays(tree: Tree, split: int) -> int:
    """Do the same in a queue that may have anything in priority/.

    What is no file of a message is left where it is. A tree with such names is no tree any more: it gets a name that
    begins with a dot. Raises Permanent, Temporary.
    """
    if not tree.is_directory(PRIORITY):
        return 0
    files: list[tuple[str, str]] = []
    directories = [top for name in tree.list(PRIORITY) if tree.is_directory(top := f"{PRIORITY}/{name}")]
    for top in list(directories):
        below = [place for bucket in tree.list(top) if tree.is_directory(place := f"{top}/{bucket}")]
        directories += below
        for place in below:
            files += [(place, each) for each in tree.list(place) if _is_movable(tree, place, each, split)]
    return _dissolve(tree, split, directories, files, leaves_strays=True)


def _is_movable(tree: Tree, place: str, name: str, split: int) -> bool:
    """Return whether a name in the tree of a class is a file of a message whose place in todo/ is free."""
    message = _message(name)
    if message is None or not tree.has(f"{place}/{name}", stat.S_ISREG):
        return False
    new = f"todo/{message % split}/{name}" if tree.is_directory("todo/0") else f"todo/{name}"
    return not tree.has(new, lambda mode: True) or _is_same(tree, f"{place}/{name}", new)


def _is_same(tree: Tree, one: str, other: str) -> bool:
    found = []
    for name in (one, other):
        with tree.parent(name) as (handle, last):
            found.append(os.stat(last, dir_fd=handle, follow_symlinks=False))
    return os.path.samestat(*found)


def _dissolve(
    tree: Tree, split: int, directories: list[str], files: list[tuple[str, str]], leaves_strays: bool = False
) -> int:
    hashed = tree.is_directory("todo/0")
    with unable_to("move the files of", f"{tree.path}/{PRIORITY}"):
        for place, name in files:
            to = f"todo/{int(name) % split}" if hashed else "todo"
            with tree.directory(place) as old, tree.directory(to) as new:
                _link(old, name, new, name)
        tree.sync()
        for place, name in files:
            tree.unlink(f"{place}/{name}")
        tree.sync()
        for directory in (*sorted(directories, reverse=True), PRIORITY):
            try:
                tree.rmdir(directory)
            except OSError as error:
                if not leaves_strays or error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
        if tree.is_directory(PRIORITY):
            _rename_trees(tree)
        tree.sync()
    return len(files)


def _rename_trees(tree: Tree) -> None:
    with tree.directory(PRIORITY) as top:
        for name in os.listdir(top):
            if name[:1] != "." and tree.is_directory(f"{PRIORITY}/{name}"):
                os.rename(name, f".{name}.{time.time_ns()}", src_dir_fd=top, dst_dir_fd=top)


def _listed(top: int) -> tuple[list[str], list[str]]:
    """Return the names of the directories in a directory, and the other names."""
    buckets: list[str] = []
    others: list[str] = []
    with os.scandir(top) as entries:
        for entry in entries:
            (buckets if entry.is_dir(follow_symlinks=False) else others).append(entry.name)
    return buckets, others


def _waiting(names: list[str]) -> list[str]:
    return [name for name in names if name[:1] == "." and _message(name[1:]) is not None]


def _message(name: str) -> int | None:
    try:
        return unpack_id(os.fsencode(name))
    except FormatError:
        return None


def _link(old_directory: int, old: str, directory: int, new: str) -> None:
    try:
        os.link(old, new, src_dir_fd=old_directory, dst_dir_fd=directory, follow_symlinks=False)
    except FileExistsError:
        # The link was made before a crash. Otherwise these are two messages with one number, which is an error.
        first = os.stat(old, dir_fd=old_directory, follow_symlinks=False)
        if not os.path.samestat(first, os.stat(new, dir_fd=directory, follow_symlinks=False)):
            raise
