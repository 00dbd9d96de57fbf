"""Checks whose mail a file in maildrop/ is: its owner must have created it there.

The message gets the uid of the file's owner, so the owner must have created the file in maildrop/ itself: it must have
one name, the group that the directory gives to files created in it, and the sticky bit. A file of another user that an
attacker moved or linked into maildrop/ does not have that group, unless it comes from a directory that was created in
maildrop/ and passes on the group. But such a file lacks the sticky bit, which no program sets on files.
"""

import os
import stat

from queue_inject.pickup.untrusted import NotMail


class OriginRules:
    """Checks that a file was created in maildrop/ by its owner.

    gid: the group of files created there, or None if any group will do; root: whether files of root are accepted. Root
    writes to the queue itself, so a file of root was smuggled in, unless the queue belongs to root.
    """

    __slots__ = ("gid", "root")

    def __init__(self, gid: int | None, root: bool) -> None:
        self.gid = gid
        self.root = root

    def check(self, status: os.stat_result) -> None:
        """Raise NotMail if it was not."""
        if status.st_nlink != 1:
            raise NotMail("it has a second name" if status.st_nlink else "it was removed while it was opened")
        if self.gid not in (None, status.st_gid):
            groups = f"its group is {status.st_gid}, and that of files made there {self.gid}"
            raise NotMail(f"it was not made there: {groups}")
        if status.st_uid == 0 and not self.root:
            raise NotMail("root leaves no mail there")
        if not status.st_mode & stat.S_ISVTX:
            raise NotMail("it lacks the sticky bit, which queue-inject gives to what it leaves there")
