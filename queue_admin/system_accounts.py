"""The system accounts: finds and makes ours, finds qmail's.

The rest of this package works with numeric ids (Owner, QmailAccounts).
"""

import grp
import os
import pwd
import shutil
import subprocess

from queue_admin.home.modes import QMAIL_ACCOUNTS, QMAIL_GROUP, QmailAccounts
from queue_base.accounts import (
    ALIAS_ACCOUNT,
    QMAIL_ACCOUNT,
    QUEUE_ACCOUNT,
    REMOTE_ACCOUNT,
    SMTPD_ACCOUNT,
    Owner,
    become,
    queue_owner,
)
from queue_base.errors import Permanent
from queue_base.home import Home

_SYSTEM_PATH = "/usr/sbin:/sbin:/usr/bin:/bin"
_USER_OPTIONS = ["--system", "--no-create-home", "--shell", "/usr/sbin/nologin"]


def account_uid(name: str) -> int | None:
    """Return the uid of an account, or None if it does not exist."""
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        return None


def group_gid(name: str) -> int | None:
    """Return the gid of a group, or None if it does not exist."""
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        return None


def ensure_accounts() -> tuple[Owner, list[str]]:
    """Make the missing groups and accounts; return the ids of account queue and what was made. Raises Permanent.

    The account of queue-smtpd is made here, too, though nobody may want that: the daemons look at their start who may
    speak for others. It has a group of its own, and may read nothing of the queue.
    """
    made = []
    if group_gid(QUEUE_ACCOUNT) is None:
        _run("groupadd", "--system", QUEUE_ACCOUNT)
        made.append(f"group {QUEUE_ACCOUNT}")
    for name in (QUEUE_ACCOUNT, REMOTE_ACCOUNT):
        if account_uid(name) is None:
            _run("useradd", *_USER_OPTIONS, "--home-dir", "/nonexistent", "--gid", QUEUE_ACCOUNT, name)
            made.append(f"account {name}")
    owner = _checked_owner()
    found, more = _own_account(SMTPD_ACCOUNT, "/nonexistent", owner)
    if found.gid == owner.gid:
        raise Permanent(f"unable to use account {SMTPD_ACCOUNT}: its group must not be {QUEUE_ACCOUNT}'s")
    return owner, made + more


def ensure_alias_account(home: Home, owner: Owner) -> tuple[Owner, list[str]]:
    """Make the account for alias/ if it is missing; return the owner of alias/, and what was made. Raises Permanent.

    The account has a group of its own, because group `queue` may read messages. It is not needed if alias/ exists and
    belongs to another account, such as qmail's, nor if the queue does not belong to account `queue`.
    """
    if myself().uid != 0 or owner.uid != account_uid(QUEUE_ACCOUNT):
        return owner, []
    if os.path.isdir(home.alias) and os.stat(home.alias).st_uid not in (owner.uid, account_uid(ALIAS_ACCOUNT)):
        return owner, []
    return _own_account(ALIAS_ACCOUNT, home.alias, owner)


def smtpd_owner(owner: Owner) -> Owner:
    """Return the account that queue-smtpd runs as, by the owner of the queue."""
    if myself().uid != 0 or owner.uid != account_uid(QUEUE_ACCOUNT):
        return owner
    found = pwd.getpwnam(SMTPD_ACCOUNT)
    return Owner(found.pw_uid, found.pw_gid)


def _own_account(name: str, directory: str, owner: Owner) -> tuple[Owner, list[str]]:
    """Make an account with a group of its own if they are missing; return its ids, and what was made.

    Raises Permanent, too if the account is root or the owner of the queue.
    """
    made = []
    if group_gid(name) is None:
        _run("groupadd", "--system", name)
        made.append(f"group {name}")
    if account_uid(name) is None:
        _run("useradd", *_USER_OPTIONS, "--home-dir", directory, "--gid", name, name)
        made.append(f"account {name}")
    uid = account_uid(name)
    if not uid or uid == owner.uid:
        raise Permanent(f"unable to use account {name}: it must exist, and be neither root nor the queue's")
    return Owner(uid, pwd.getpwnam(name).pw_gid), made


def _checked_owner() -> Owner:
    gid = group_gid(QUEUE_ACCOUNT)
    if gid is None:
        raise Permanent(f"unable to find group {QUEUE_ACCOUNT}, just made; is another name service in the way?")
    for name in (QUEUE_ACCOUNT, REMOTE_ACCOUNT):
        uid = account_uid(name)
        if not uid or pwd.getpwnam(name).pw_gid != gid:
            raise Permanent(f"unable to use account {name}: it must exist, not be root, and have group {QUEUE_ACCOUNT}")
    return Owner(account_uid(QUEUE_ACCOUNT) or 0, gid)


def _run(program: str, *arguments: str) -> None:
    found = shutil.which(program, path=_SYSTEM_PATH)
    if found is None:
        raise Permanent(f"unable to make account {arguments[-1]}: {program} is not there; make it by hand, then go on")
    done = subprocess.run([found, *arguments], capture_output=True, check=False)
    if done.returncode != 0:
        why = done.stderr.decode("utf-8", "replace").strip() or f"exit code {done.returncode}"
        raise Permanent(f"unable to make account {arguments[-1]}: {program}: {why}")


def find_qmail_accounts() -> QmailAccounts:
    """Return qmail's ids. Raises Permanent, naming every account that is missing."""
    uids = {name: account_uid(name) for name in QMAIL_ACCOUNTS}
    gid = group_gid(QMAIL_GROUP)
    missing = [f"account {name}" for name, uid in uids.items() if uid is None]
    missing += [f"group {QMAIL_GROUP}"] if gid is None else []
    if missing or gid is None:
        raise Permanent(f"unable to give the queue to qmail: no {', no '.join(missing)}; make them, then try again")
    return QmailAccounts({name: uid for name, uid in uids.items() if uid is not None}, gid)


def be_owner(home: Home) -> None:
    """If root works on another account's queue, become that account for the rest of the process.

    Links that the account may have put in the queue then lead nowhere that it has no access to itself. With qmail's
    queue, which belongs to several accounts, root stays root. Raises Permanent, Temporary.
    """
    if os.geteuid() != 0 or not os.path.isdir(home.owned):
        return  # The caller reports a missing queue when it opens it.
    owner = queue_owner(home)
    if owner.uid not in (0, account_uid(QMAIL_ACCOUNT)):
        # queue_base.durable imports it later, when the process may no longer be able to read the library.
        import ctypes  # noqa: F401

        become(owner)


def myself() -> Owner:
    """Return the ids of this process."""
    return Owner(os.geteuid(), os.getegid())


def choose_owner(home: Home, as_me: bool) -> tuple[Owner, list[str]]:
    """Return the owner for queue/, and the accounts that were made for it. Raises Permanent.

    An existing queue keeps its owner. A new one that root makes belongs to account queue, unless `as_me`; any other
    new one belongs to the user who makes it.
    """
    me = myself()
    if not os.path.isdir(home.owned):
        return (me, []) if as_me or me.uid != 0 else ensure_accounts()
    found = queue_owner(home)
    if found.uid == account_uid(QMAIL_ACCOUNT):
        raise Permanent(f"unable to use {home.owned}: it belongs to {QMAIL_ACCOUNT}; queuectl adopt takes it over")
    if found.uid != me.uid and (as_me or me.uid != 0):
        raise Permanent(f"unable to use {home.owned}: it belongs to uid {found.uid}, not to you")
    return ensure_accounts() if me.uid == 0 and found.uid == account_uid(QUEUE_ACCOUNT) else (found, [])
