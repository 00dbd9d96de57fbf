"""Turns a hashed todo/ or intd/ into a flat one, as stock qmail has them: KIND/B/I becomes KIND/I.

A file gets its new name, that is made safe, and only then the old name goes; so a crash leaves each
file with one name or both, and the next run finishes. The id of a file may be the number of a
directory (inode 12 is in directory 12): such a file waits under `.I` until the directory is gone.
"""

import os

from queue_admin.make import naming
from queue_base.durable import Commit
from queue_base.errors import Permanent
from queue_wire.errors import FormatError
from queue_wire.ids import unpack_id


def is_half_flat(queue: str, kind: str, split: int) -> bool:
    """Return whether a flattening began and did not end: some directories are gone, or files lie beside them."""
    top = f"{queue}/{kind}"
    with naming("read", top):
        names = os.listdir(top)
    buckets = [name for name in names if name.isdigit() and os.path.isdir(f"{top}/{name}")]
    waiting = [name for name in names if name[:1] == "." and name[1:].isdigit()]
    return bool(waiting or (buckets and (len(buckets) != split or len(names) > len(buckets))))


def flatten(queue: str, kind: str, split: int, commit: Commit) -> int:
    """Make queue/kind flat, durably; return how many files moved. Nothing may run meanwhile.

    Raises Permanent, before anything has changed, for names that are no message's; Temporary.
    """
    top = f"{queue}/{kind}"
    with naming("flatten", top):
        buckets, files = check_names(queue, kind, split)
        for name, bucket in files:
            _link(commit, f"{top}/{bucket}/{name}", f"{top}/.{name}" if name == bucket else f"{top}/{name}")
        commit.sync()
        for name, bucket in files:
            commit.unlink(f"{top}/{bucket}/{name}")
        # Before the directories go that the commit has to sync.
        commit.sync()
        for bucket in buckets:
            os.rmdir(f"{top}/{bucket}")
        commit.contents(top)
        commit.sync()
        waiting = [name for name in os.listdir(top) if name[:1] == "." and name[1:].isdigit()]
        for name in waiting:
            _link(commit, f"{top}/{name}", f"{top}/{name[1:]}")
        commit.sync()
        for name in waiting:
            commit.unlink(f"{top}/{name}")
        commit.sync()
    return len(files)


def check_names(queue: str, kind: str, split: int) -> tuple[list[str], list[tuple[str, str]]]:
    """Return the numbered directories left and the (name, directory) of the files in them. Raises as flatten does."""
    top = f"{queue}/{kind}"
    with naming("read", top):
        buckets = [name for name in os.listdir(top) if os.path.isdir(f"{top}/{name}")]
        files = [(name, bucket) for bucket in buckets for name in os.listdir(f"{top}/{bucket}")]
    for bucket in buckets:
        if not bucket.isdigit() or int(bucket) >= split:
            raise Permanent(f"unable to flatten {top}: directory {bucket} is not one of its {split}; move it away")
    for name, bucket in files:
        try:
            right = unpack_id(os.fsencode(name)) % split == int(bucket)
        except FormatError:
            right = False
        if not right:
            raise Permanent(f"unable to flatten {top}: {bucket}/{name} is not a message's name; move it away")
    return buckets, files


def _link(commit: Commit, old: str, new: str) -> None:
    try:
        commit.link(old, new)
    except FileExistsError:
        # Linked before a crash, or two messages with one number, which no crash of ours can leave.
        if not os.path.samefile(old, new):
            raise
        commit.contents(os.path.dirname(new))
