"""The accounts that the suite runs as. The owner of queue/ decides which.

Account `queue` owns the files and runs queue-todo, queue-send, queue-clean, queue-pickup and queue-intake; `queuer`, in
group `queue`, runs queue-remote; `queued` runs queue-smtpd; `queuea` owns alias/ and nothing else. If any other user
owns queue/, only that user can run the suite.
"""

import os

from queue_base.errors import Permanent, Temporary, reason
from queue_base.home import Home

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

QUEUE_ACCOUNT = "queue"
REMOTE_ACCOUNT = "queuer"
SMTPD_ACCOUNT = "queued"
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
    """Return the owner of queue/, or if there are several queues and none was chosen, of run/.

    Raises Temporary, naming the path, if stat fails.
    """
    try:
        found = os.stat(home.owned)
    except OSError as error:
        # Several queues have disks of their own. A queue that init made below the mount point would be hidden later.
        new = f"is its disk mounted? If it is new, queuectl --queue {home.name} init makes it"
        advice = new if home.several and home.is_chosen else "queuectl init makes a home"
        raise Temporary(f"unable to use {home.owned}: {reason(error)}; {advice}") from error
    return Owner(found.st_uid, found.st_gid)


def trusted_users(owner: Owner) -> frozenset[int]:
    """Return the users who may speak for others: root, the queue's owner, and queue-smtpd's account."""
    # Imported here because queue-inject does not need it.
    import pwd

    uids = {0, owner.uid}
    try:
        uids.add(pwd.getpwnam(SMTPD_ACCOUNT).pw_uid)
    except KeyError:
        pass  # There is no queue-smtpd on this host.
    return frozenset(uids)


def become(owner: Owner, groups: "Collection[int]" = ()) -> None:
    """Change to the owner's uid and gid permanently, with these supplementary groups. Raises Permanent on failure."""
    try:
        os.setgroups(list(groups))
        os.setgid(owner.gid)
        os.setuid(owner.uid)
    except OSError as error:
        raise Permanent(f"unable to become uid {owner.uid} gid {owner.gid}: {reason(error)}") from error


def become_reader(owner: Owner, groups: "Collection[int]" = ()) -> None:
    """Do the same as `become`, then check that this account may read the suite's code: some modules are imported later.

    Raises Permanent, naming the path that denies access.
    """
    become(owner, groups)
    for path in (os.__file__, __file__):
        if not os.access(path, os.R_OK):
            raise Permanent(
                f"unable to read {first_hidden(path)} as uid {owner.uid}: permission denied; {INSTALL_ADVICE}"
            )


def make_greylist_directory(home: Home, owner: Owner) -> bool:
    """Make the directory that queue-smtpd keeps its greylist in, if it is missing; return whether it was made.

    Raises OSError.
    """
    # Imported here because programs that inject import this module.
    from queue_base.safe_open import READ_DIRECTORY, open_below, open_given

    # By descriptors: another account may own the home, and put something else there.
    above, name = os.path.split(home.greylist)
    top = open_given(above, READ_DIRECTORY)
    try:
        os.mkdir(name, 0o700, dir_fd=top)
        handle = open_below(top, name, READ_DIRECTORY)
    except FileExistsError:
        return False
    finally:
        os.close(top)
    try:
        # One that is not empty was put in its place, and may be the home's control/.
        if os.fstat(handle).st_uid == os.geteuid() and not os.listdir(handle):
            os.fchown(handle, owner.uid, owner.gid)
    finally:
        os.close(handle)
    return True


def become_queue_owner(home: Home) -> Owner:
    """Become the owner of a queue, if root runs this, and return the owner. Raises Failure if another user runs it."""
    owner = queue_owner(home)
    if os.geteuid() == 0 and owner.uid != 0:
        become_reader(owner)
    elif os.geteuid() != owner.uid:
        raise Permanent(f"unable to write to {home.owned}: it belongs to uid {owner.uid}; run as that user")
    return owner


def first_hidden(path: str) -> str:
    """Return the topmost directory above a path that may not be searched, or the path itself if there is none.

    Symbolic links are followed: the directory, or the file, is that which the links lead to.
    """
    # Where a directory may not be searched, realpath takes what is below it as it is.
    path = os.path.realpath(path)
    parent = os.path.dirname(path)
    hidden = ""
    while parent != os.path.dirname(parent):
        if not os.access(parent, os.X_OK):
            hidden = parent
        parent = os.path.dirname(parent)
    return hidden or path
