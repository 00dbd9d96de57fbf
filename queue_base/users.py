"""users/cdb: which account a local part is assigned to (qmail-users(5), qmail-lspawn(8)).

Whoever can write that file chooses the user that a delivery runs as. So it, and users/, must belong to root or to
the one who starts queue-local, and nobody else may write there; otherwise it is not believed. Trouble of any kind
is UsersTrouble and never "not assigned", because that would deliver mail to somebody else, or bounce it.
"""

import ctypes
import errno
import os
import pwd
import stat

from queue_base.accounts import QUEUE_ACCOUNT, queue_owner
from queue_base.cdb import Cdb
from queue_base.errors import Temporary, reason
from queue_base.home import Home
from queue_wire.control.assign import lookup_keys, shown_key, unpack_record
from queue_wire.errors import FormatError
from queue_wire.mailbox import ASSIGNED, Account, Mailbox, find_mailbox

_OPEN = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_WRITABLE = stat.S_IWGRP | stat.S_IWOTH
# A buffer as large as any entry; the C library wants it in advance.
_ROOM = 65536
# What getpwnam_r(3) lists as "not found", beside 0.
_UNKNOWN = frozenset((0, errno.ENOENT, errno.ESRCH, errno.EBADF, errno.EPERM))


class _Passwd(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("password", ctypes.c_char_p),
        ("uid", ctypes.c_uint),
        ("gid", ctypes.c_uint),
        ("comment", ctypes.c_char_p),
        ("home", ctypes.c_char_p),
        ("shell", ctypes.c_char_p),
    )


_getpwnam_r = ctypes.CDLL(None).getpwnam_r
_getpwnam_r.argtypes = (
    ctypes.c_char_p,
    ctypes.POINTER(_Passwd),
    ctypes.c_char_p,
    ctypes.c_size_t,
    ctypes.POINTER(ctypes.c_void_p),
)
_getpwnam_r.restype = ctypes.c_int


def passwd_entry(name: bytes) -> Account | None:
    """Return the passwd entry of a name, None where there is none. Raises Temporary."""
    entry, room, found = _Passwd(), ctypes.create_string_buffer(_ROOM), ctypes.c_void_p()
    code = _getpwnam_r(name, ctypes.byref(entry), room, _ROOM, ctypes.byref(found))
    if found.value is not None:
        return Account(os.fsdecode(entry.name), entry.uid, entry.gid, os.fsdecode(entry.home or b""))
    if code in _UNKNOWN:
        return None
    raise Temporary(f"Unable to look up user {os.fsdecode(name)}: {os.strerror(code).lower()}. (#4.3.0)")


def takes_mail(account: Account | None) -> Account | None:
    """Return the account if it may have mail delivered, None otherwise. Raises Temporary."""
    if account is None or not account.uid or not account.home.startswith("/"):
        return None
    try:
        owner = os.stat(account.home).st_uid
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise Temporary(f"Unable to stat {account.home}: {reason(error)}. (#4.3.0)") from error
    return account if owner == account.uid else None


def find_user(name: bytes) -> Account | None:
    """Return the account of a user who takes mail; the lookup of find_mailbox."""
    return takes_mail(passwd_entry(name))


def alias_account(home: Home) -> Account:
    """Return the account for alias/: whoever owns that directory, in the group that passwd gives that account.

    Raises Temporary where it is not there. (The group of a qmail home's alias/ is qmail, that of its account is not.)

    Mail comes here when nobody else was found, so this is where that has to be sure: a C library that
    cannot open /etc/passwd goes on to its next source and says "not found" as well.
    """
    if passwd_entry(b"root") is None:
        raise Temporary("Unable to look up users: not even root is found. (#4.3.0)")
    try:
        found = os.stat(home.alias)
    except OSError as error:
        raise Temporary(f"Unable to find alias user: unable to stat {home.alias}: {reason(error)}. (#4.3.0)") from error
    try:
        entry = pwd.getpwuid(found.st_uid)
    except KeyError:
        return Account("alias", found.st_uid, found.st_gid, home.alias)
    return Account(entry.pw_name, found.st_uid, entry.pw_gid, home.alias)


class UsersTrouble(Temporary):
    """users/cdb cannot be used. The text is for the report; `what` says the same to the administrator."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"Trouble reading users/cdb: {why}. (#4.3.0)")
        self.what = f"unable to use {path}: {why}"


def why_not_trusted(found: os.stat_result, starter: int) -> str:
    """Return why a file or directory that says who delivers as whom is not believed; "" where it is.

    `starter` is the uid that starts queue-local.
    """
    if found.st_uid not in (0, starter):
        return f"it belongs to uid {found.st_uid}; it must belong to {'root' if not starter else f'uid {starter}'}"
    if found.st_mode & _WRITABLE:
        return "its group or others may write there; chmod go-w it"
    return ""


def find_assigned(home: Home, local: bytes, starter: int) -> Mailbox | None:
    """Return the mailbox that users/cdb assigns a local part to, None where it says nothing or is not there.

    Raises UsersTrouble. As in qmail-lspawn, a home that is not absolute is one below HOME.
    """
    path = f"{home.users}/cdb"
    try:
        handle = os.open(path, _OPEN)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsersTrouble(path, reason(error)) from error
    try:
        for shown, found in ((home.users, os.stat(home.users)), (path, os.fstat(handle))):
            why = why_not_trusted(found, starter)
            if why:
                raise UsersTrouble(shown, why)
            if shown == path and not stat.S_ISREG(found.st_mode):
                raise UsersTrouble(path, "it is not a file")
        return _find(home, Cdb(handle), local)
    except FormatError as error:
        raise UsersTrouble(path, f"it is damaged: {error}") from error
    except OSError as error:
        raise UsersTrouble(path, reason(error)) from error
    finally:
        os.close(handle)


def _find(home: Home, users: Cdb, local: bytes) -> Mailbox | None:
    breaks = users.get(b"")
    if breaks is None:
        raise FormatError("it has no record of wildcards; queuectl users build makes it")
    for key, rest in lookup_keys(local, breaks):
        data = users.get(key)
        if data is not None:
            found = unpack_record(data, rest)
            place = os.path.join(home.path, os.fsdecode(found.home))
            account = Account(os.fsdecode(found.user), found.uid, found.gid, place)
            return Mailbox(account, found.dash, found.extension, ASSIGNED, shown_key(key))
    return None


def look_up_mailbox(home: Home, local: bytes, starter: int) -> Mailbox:
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
