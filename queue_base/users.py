"""Which mailbox a local part belongs to: users/cdb, then passwd, then alias/ (qmail-users(5), qmail-lspawn(8)).

Whoever can write users/cdb chooses the user that a delivery runs as. So that file and users/ must belong to root or to
the user who starts queue-local, and nobody else may write them; otherwise they are not used. A failure of any kind
raises UsersTrouble and never means "not assigned", because that would deliver the mail to another user, or bounce it.

A passwd user gets mail if the uid is not 0 and the home directory exists and belongs to that uid (qmail-getpw(8)). A
lookup that fails temporarily raises Temporary and never means "no such user", because that bounces mail. Therefore
getpwnam_r(3) is called here, which tells the two apart; Python's pwd.getpwnam does not.
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
from queue_wire.format_error import FormatError
from queue_wire.mailbox import ASSIGNED, Account, Mailbox, find_mailbox

_OPEN = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_WRITABLE = stat.S_IWGRP | stat.S_IWOTH
# A buffer as large as any entry, as getpwnam_r(3) needs.
_ROOM = 65536
# The codes that getpwnam_r(3) lists as "not found".
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
    """Return the passwd entry of a name, None if there is none. Raises Temporary."""
    entry, room, found = _Passwd(), ctypes.create_string_buffer(_ROOM), ctypes.c_void_p()
    code = _getpwnam_r(name, ctypes.byref(entry), room, _ROOM, ctypes.byref(found))
    if found.value is not None:
        return Account(os.fsdecode(entry.name), entry.uid, entry.gid, os.fsdecode(entry.home or b""))
    if code in _UNKNOWN:
        return None
    raise Temporary(f"Unable to look up user {os.fsdecode(name)}: {os.strerror(code).lower()}. (#4.3.0)")


def takes_mail(account: Account | None) -> Account | None:
    """Return the account if it gets mail, None otherwise. Raises Temporary."""
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
    """Return the account of a passwd user who gets mail, None if there is none. Raises Temporary."""
    return takes_mail(passwd_entry(name))


def alias_account(home: Home) -> Account:
    """Return the account for alias/: the owner of that directory, with the group that passwd gives this account.

    Raises Temporary if alias/ does not exist. (In a qmail home, the group of alias/ is not that of its owner.)

    Mail comes here if no other user was found. A C library that cannot open /etc/passwd reports "not found" as well,
    so this function makes sure that lookups work at all.
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
    """users/cdb cannot be used. The text is for the report, `what` for the administrator."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"Trouble reading users/cdb: {why}. (#4.3.0)")
        self.what = f"unable to use {path}: {why}"


def why_not_trusted(found: os.stat_result, starter: int) -> str:
    """Return why users/ or users/cdb is not trusted, "" if it is; `starter` is the uid that starts queue-local."""
    if found.st_uid not in (0, starter):
        return f"it belongs to uid {found.st_uid}; it must belong to {'root' if not starter else f'uid {starter}'}"
    if found.st_mode & _WRITABLE:
        return "its group or others may write there; chmod go-w it"
    return ""


def find_assigned(home: Home, local: bytes, starter: int) -> Mailbox | None:
    """Return the mailbox that users/cdb assigns to a local part, None if it assigns none or does not exist.

    Raises UsersTrouble. As in qmail-lspawn, a relative home directory is relative to HOME.
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
    """Return the mailbox of a local part; `starter` is the uid that started queue-local.

    Raises UsersTrouble if users/cdb cannot be used, Temporary for other failures.
    """
    return find_mailbox(
        local,
        find_user,
        lambda: alias_account(home),
        lambda local: find_assigned(home, local, starter),
    )


def starter_of(home: Home) -> int:
    """Return the uid that has to run queue-start: root if account `queue` owns queue/, otherwise the owner's uid.

    Raises Temporary.
    """
    owner = queue_owner(home)
    account = passwd_entry(QUEUE_ACCOUNT.encode())
    return 0 if account is not None and account.uid == owner.uid else owner.uid
