"""The kind of file system that a path is on, from /proc/self/mountinfo; and which kinds are no place for a queue.

On a network file system a lock may not be seen by another host, a name may be safe on one host and absent on another,
and an inode number may change. queuectl init, queuectl check and queue-start refuse it, unless control/queuefilesystem
names its kind.
"""

import os

from queue_base.control import read_control
from queue_base.errors import Permanent, Temporary
from queue_base.home import Home
from queue_wire.control.lines import unpack_set

CONTROL = "queuefilesystem"
MOUNTS = "/proc/self/mountinfo"
NETWORK = frozenset(
    (
        "nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "lustre", "beegfs", "gpfs", "ocfs2",
        "gfs2", "davfs", "fuse", "ncpfs", "coda", "virtiofs", "orangefs", "pvfs2",
    )
)  # fmt: skip
# Inode numbers that change, or no hard links.
UNFIT = frozenset(("vfat", "exfat", "msdos", "ntfs", "ntfs3", "squashfs", "iso9660"))


def unpack_mounts(text: str) -> list[tuple[str, str]]:
    """Return (mount point, type of the file system) of each line of mountinfo, in order; odd lines are left out."""
    found = []
    for line in text.splitlines():
        head, dash, tail = line.partition(" - ")
        words, kinds = head.split(" "), tail.split(" ")
        if dash and len(words) > 4 and kinds[0]:
            point = words[4].encode("utf-8", "surrogateescape").decode("unicode_escape", "replace")
            found.append((point.encode("latin-1", "replace").decode("utf-8", "surrogateescape"), kinds[0]))
    return found


def find_kind(path: str, mounts: list[tuple[str, str]]) -> str:
    """Return the type of the file system of an absolute path without links, "" if it is not known."""
    best, kind = -1, ""
    for point, each in mounts:
        under = path == point or path.startswith(point.rstrip("/") + "/")
        # Of several mounts on one directory the last one counts.
        if under and len(point) >= best:
            best, kind = len(point), each
    return kind


def file_system_of(path: str) -> str:
    """Return the type of the file system of a path, "" if it is not known."""
    try:
        with open(MOUNTS, encoding="utf-8", errors="surrogateescape") as file:
            return find_kind(os.path.realpath(path), unpack_mounts(file.read()))
    except OSError:
        return ""


def why_unfit(kind: str) -> str:
    """Return why a queue should not be on a file system of this type, "" if nothing is known against it."""
    if kind.partition(".")[0] in NETWORK:
        return f"is on a network file system ({kind})"
    return f"is on a file system that is not made for it ({kind})" if kind in UNFIT else ""


def find_unfit(home: Home) -> str:
    """Return the kind of file system under queue/ if a queue should not be on it and no control file accepts it.

    Returns "" if nothing is known against it. A control file that cannot be read accepts nothing.
    """
    kind = file_system_of(home.queue)
    if not why_unfit(kind):
        return ""
    try:
        accepted = unpack_set(read_control(home, CONTROL) or b"")
    except Temporary:
        return kind
    return "" if kind.lower().encode("utf-8", "surrogateescape") in accepted else kind


def check_file_system(home: Home) -> None:
    """Raise Permanent if queue/ is on a file system that is not accepted."""
    kind = find_unfit(home)
    if kind:
        raise Permanent(
            f"unable to use {home.queue}: it {why_unfit(kind)}, where locks and inode numbers may fail and mail may be"
            f" lost; move it to a local disk, or write {kind} into {home.control}/{CONTROL}"
        )
