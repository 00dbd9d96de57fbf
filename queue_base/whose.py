"""Whose a local part is, by what this host has: users/cdb, then passwd, then alias/ (qmail-lspawn(8))."""

from queue_base.accounts import QUEUE_ACCOUNT, queue_owner
from queue_base.home import Home
from queue_base.passwd import alias_account, find_user, passwd_entry
from queue_base.users import find_assigned
from queue_wire.mailbox import Mailbox, find_mailbox


def whose_mailbox(home: Home, local: bytes, starter: int) -> Mailbox:
    """Return the mailbox of a local part; `starter` is the uid that queue-local was started as.

    Raises UsersTrouble where users/cdb cannot be used, Temporary for other trouble.
    """
    return find_mailbox(
        local,
        find_user,
        lambda: alias_account(home),
        lambda local: find_assigned(home, local, starter),
    )


def starter_of(home: Home) -> int:
    """Return the uid that queue-start is to be run as: root where account `queue` owns queue/, else that owner's.

    Raises Temporary.
    """
    owner = queue_owner(home)
    account = passwd_entry(QUEUE_ACCOUNT.encode())
    return 0 if account is not None and account.uid == owner.uid else owner.uid
