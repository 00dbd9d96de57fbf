"""Files that hold secrets: who may read them, besides those who read all mail anyway.

The owner must be root, the account that runs this, or whoever made control/. The group may read the file where it is
the queue's, whose members read messages: so the account queuer can, when root starts the suite.
"""

import os
import stat

from queue_base.home import Home


def find_fault(home: Home, path: str) -> str | None:
    """Return what is wrong with a file's owner, group or mode, None where it is kept well. Raises OSError."""
    found = os.stat(path)
    mode = f"mode {stat.S_IMODE(found.st_mode):04o}"
    if not stat.S_ISREG(found.st_mode):
        return "it is not a regular file"
    if found.st_uid not in (0, os.geteuid(), os.stat(home.control).st_uid):
        return f"uid {found.st_uid} owns it; it should be root's, or that of the owner of control/"
    if found.st_mode & 0o007:
        return f"everybody can use it ({mode}); chmod o= takes that away"
    if found.st_mode & 0o030:
        return f"its group can change it ({mode}); chmod g-wx takes that away"
    if found.st_mode & 0o040 and found.st_gid != os.stat(f"{home.queue}/mess").st_gid:
        return f"gid {found.st_gid} can read it ({mode}); its group should be that of queue/mess, or chmod g="
    return None
