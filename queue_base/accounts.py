"""Who owns queue/ decides who runs what (docs/design/processes.md).

The accounts are `queue` (todo, send, clean, pickup, and the files), `queuer` in group `queue`
(queue-remote), and `queuea`, which owns alias/ and nothing else. Where another user owns queue/,
that user is the only one who can run the suite.
"""

import os

from queue_base.errors import Permanent, Temporary, reason
from queue_base.home import Home

QUEUE_ACCOUNT = "queue"
REMOTE_ACCOUNT = "queuer"
ALIAS_ACCOUNT = "queuea"
QMAIL_ACCOUNT = "qmailq"
INSTALL_ADVICE = "install the suite, and the Python that runs it, where every account may read them, such as /opt"


class Owner:
    """uid and gid that own queue/."""

    __slots__ = ("gid", "uid")

    def __init__(self, uid: int, gid: int) -> None:
        self.uid = uid
        self.gid = gid


def queue_owner(home: Home) -> Owner:
    """Return who owns queue/. Raises Temporary, naming the path, where it cannot be looked at."""
    try:
        found = os.stat(home.queue)
    except OSError as error:
        raise Temporary(f"unable to use {home.queue}: {reason(error)}; queuectl init makes a home") from error
    return Owner(found.st_uid, found.st_gid)


def become(owner: Owner) -> None:
    """Give up root for good and be the owner, with no other groups. Raises Permanent where it cannot be done."""
    try:
        os.setgroups([])
        os.setgid(owner.gid)
        os.setuid(owner.uid)
    except OSError as error:
        raise Permanent(f"unable to become uid {owner.uid} gid {owner.gid}: {reason(error)}") from error


def become_reader(owner: Owner) -> None:
    """Be the owner, as `become`, and go on only where it may read our code: some of it is imported when it is needed.

    Raises Permanent, naming the path that hides it.
    """
    become(owner)
    for path in (os.__file__, __file__):
        if not os.access(path, os.R_OK):
            raise Permanent(
                f"unable to read {first_hidden(path)} as uid {owner.uid}: permission denied; {INSTALL_ADVICE}"
            )


def first_hidden(path: str) -> str:
    """Return the first directory on the way to a path that we may not search, else the path itself."""
    parent = os.path.dirname(path)
    hidden = ""
    while parent != os.path.dirname(parent):
        if not os.access(parent, os.X_OK):
            hidden = parent
        parent = os.path.dirname(parent)
    return hidden or path
