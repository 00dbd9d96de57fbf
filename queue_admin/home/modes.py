"""Owners and modes of everything in queue/: ours, and qmail's (hier.c of netqmail 1.03).

`None` as a file mode means that the owner and mode of the files are not changed. Mail in maildrop/, for example, keeps
its owner, who is its sender.
"""

from queue_base.accounts import Owner
from queue_base.queue.layout import CLASS_BIT, FILE_MODE, HELD_BIT, MESS_MODE
from queue_base.queue.postman import DIRECTORY as POSTMAN
from queue_base.queue.postman import DIRECTORY_MODE as POSTMAN_MODE
from queue_wire.files.cluster import SUFFIX
from queue_wire.files.stored_order import HOLD_DIRECTORY, ORDER_DIRECTORY
from queue_wire.pipes.qmtp import SOCKET_DIRECTORY, SOCKET_DIRECTORY_MODE

HOME_MODE = 0o755
CONTROL_MODE = 0o755
CONTROL_FILE_MODE = 0o644
ALIAS_MODE = 0o2755
USERS_MODE = 0o755
QUEUE_MODE = 0o711
MAILDROP_REJECTS = "corrupt/maildrop"
MAILDROP_HELD = "hold/maildrop"
UNPLACED = "corrupt/unplaced"
SENDMUTEX_MODE = 0o600
TRIGGER_MODE = 0o622

# A message is written in pid/ first, and after a crash a file may have names in both pid/ and mess/, so both have one
# file mode. mess/ comes after the other hashed directories: the split is read from it, so when it exists, they do.
OURS: dict[str, tuple[int, int | None]] = {
    "pid": (0o2700, MESS_MODE),
    "intd": (0o2700, FILE_MODE),
    "todo": (0o2700, FILE_MODE),
    "info": (0o2700, FILE_MODE),
    "local": (0o2700, FILE_MODE),
    "remote": (0o2700, FILE_MODE),
    "bounce": (0o2700, FILE_MODE),
    "hold": (0o2700, FILE_MODE),
    "corrupt": (0o2700, FILE_MODE),
    "last": (0o2700, FILE_MODE),
    "mess": (0o2750, MESS_MODE),
    # The set-group-id bit gives new files the directory's group, by which queue-pickup knows that they were made here.
    "maildrop": (0o3733, None),
    # Files of users that are not mail. They are never changed: each may be a hard link to another user's file.
    MAILDROP_REJECTS: (0o2700, None),
    # Copies for the postmaster: each is a file of mess/ as well, or was one.
    POSTMAN: (POSTMAN_MODE, None),
    # Files of messages that `queuectl repair` could not place.
    UNPLACED: (0o2700, None),
    "lock": (0o700, None),
    # All users may go to the socket in it, and only the owner may make one.
    SOCKET_DIRECTORY: (SOCKET_DIRECTORY_MODE, None),
}
# Bits of the modes of files that stay: those of a class, and of a message that was queued with a mark in hold/.
KEPT = {"info": CLASS_BIT, "todo": HELD_BIT}
# Those of run/, where a home has several queues.
RUN: dict[str, int] = {"lock": 0o700, SOCKET_DIRECTORY: SOCKET_DIRECTORY_MODE}
# Directories with one numbered subdirectory for each bucket.
BUCKETED = frozenset(("intd", "todo", "info", "local", "remote", "hold", "corrupt", "last", "mess"))
MAY_BE_FLAT = ("todo", "intd")
# What is stored for on-demand domains; queue-ondemand makes it.
ONDEMAND = "ondemand"
# In the directory of a domain: marks on what is stored, and orders about it.
ONDEMAND_ORDERS = (HOLD_DIRECTORY, ORDER_DIRECTORY)
# Of its directories, of its clusters by the suffix, and of its messages.
ONDEMAND_MODES = {"": 0o2750, SUFFIX: FILE_MODE, "mess": MESS_MODE}
# Directories that qmail does not have; undo removes them.
EXTRA = ("hold", "corrupt", "last", "maildrop", POSTMAN, SOCKET_DIRECTORY, ONDEMAND)

QMAIL_QUEUE_MODE = 0o750
# account, directory mode, file mode
QMAIL: dict[str, tuple[str, int, int | None]] = {
    "pid": ("qmailq", 0o700, 0o644),
    "intd": ("qmailq", 0o700, 0o644),
    "todo": ("qmailq", 0o750, 0o644),
    "info": ("qmails", 0o700, 0o600),
    "local": ("qmails", 0o700, 0o600),
    "remote": ("qmails", 0o700, 0o600),
    "bounce": ("qmails", 0o700, 0o600),
    "mess": ("qmailq", 0o750, 0o644),
    "lock": ("qmailq", 0o750, None),
}
TCPTO_MODE = 0o644
TCPTO_SIZE = 1024
QMAIL_ACCOUNTS = ("qmailq", "qmails", "qmailr", "alias")
QMAIL_GROUP = "qmail"


class QmailAccounts:
    """The ids of qmail's accounts: {account: uid} for each of QMAIL_ACCOUNTS, and the gid of group qmail."""

    __slots__ = ("gid", "uids")

    def __init__(self, uids: dict[str, int], gid: int) -> None:
        self.uids = uids
        self.gid = gid

    def owner(self, account: str) -> Owner:
        """Return the account with group qmail."""
        return Owner(self.uids[account], self.gid)
