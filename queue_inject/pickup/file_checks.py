"""What is checked of a file in maildrop/ before it is mail. A file that fails a check is set aside (corrupt.py).

kind        a regular file; it is opened only if it is
origin      its owner has created it in maildrop/ (below)
holes       a file over HOLES_FROM occupies a good part of its size on the disk
length      its header, a line, gives the length of the message; what follows the message is as long as an envelope
            may be (queue_wire.files.maildrop has the format)
change      its size, times, names and owner are the same when all of it has been read

Origin: the message gets the uid of the file's owner, so the owner must have created the file in maildrop/ itself: it
must have one name, the group that the directory gives to files created in it, and the sticky bit. A file of another
user that an attacker moved or linked into maildrop/ does not have that group, unless it comes from a directory that was
created in maildrop/ and passes on the group. But such a file lacks the sticky bit, which no program sets on files.
"""

import os
import stat
from collections.abc import Container

from queue_wire.files.maildrop import ENVELOPE_MAX, HEADER_LENGTH

# A file over HOLES_FROM that occupies less than 1/SMALLEST_SHARE of its size on the disk consists of holes: it costs
# its owner nothing, but the copy would take its whole size. No file system compresses mail that much.
HOLES_FROM = 16 * 1024 * 1024
SMALLEST_SHARE = 64
_KINDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class NotMail(Exception):
    """A file cannot be mail; the text says why."""


def check_kind(status: os.stat_result) -> None:
    """Raise NotMail for a file that is not regular."""
    if not stat.S_ISREG(status.st_mode):
        raise NotMail(f"it is {describe_kind(status.st_mode)}")


def describe_kind(mode: int) -> str:
    """Return the kind of a file that is not regular, with an article."""
    return _KINDS.get(stat.S_IFMT(mode), "no regular file")


class OriginRules:
    """Checks that a file was created in maildrop/ by its owner.

    gid: the group of files created there, or None if any group will do; root: whether files of root are accepted. Root
    writes to the queue itself, so a file of root was smuggled in, unless the queue belongs to root. trusted: the users
    who may say for whom their mail is.
    """

    __slots__ = ("gid", "root", "trusted")

    def __init__(self, gid: int | None, root: bool, trusted: Container[int] = ()) -> None:
        self.gid = gid
        self.root = root
        self.trusted = trusted

    def check(self, status: os.stat_result) -> None:
        """Raise NotMail for a file that another user created, or that was created elsewhere."""
        if status.st_nlink != 1:
            raise NotMail("it has a second name" if status.st_nlink else "it was removed while it was opened")
        if self.gid not in (None, status.st_gid):
            groups = f"its group is {status.st_gid}, and that of files made there {self.gid}"
            raise NotMail(f"it was not made there: {groups}")
        if status.st_uid == 0 and not self.root:
            raise NotMail("root leaves no mail there")
        if not status.st_mode & stat.S_ISVTX:
            raise NotMail("it lacks the sticky bit, which queue-inject gives to what it leaves there")


def check_holes(status: os.stat_result) -> None:
    """Raise NotMail for a large file that consists of holes."""
    size, held = status.st_size, status.st_blocks * 512
    if size > HOLES_FROM and held * SMALLEST_SHARE < size:
        raise NotMail(f"it claims to be of {size} bytes but takes up {held} on the disk")


def check_length(status: os.stat_result, length: int) -> None:
    """Raise NotMail unless a message of `length` bytes, as the header says, and an envelope make up the file."""
    end = HEADER_LENGTH + length
    if not end < status.st_size <= end + ENVELOPE_MAX:
        raise NotMail(f"it has {status.st_size} bytes, and its message alone should have {length}")


def check_unchanged(before: os.stat_result, now: os.stat_result) -> None:
    """Raise NotMail if a file was changed between two looks at it."""
    if _attributes(before) != _attributes(now):
        raise NotMail("it changed while it was read")


def _attributes(status: os.stat_result) -> tuple[int, ...]:
    """Return what differs if a file was changed."""
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_nlink, status.st_uid
