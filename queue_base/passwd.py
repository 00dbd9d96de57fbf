"""Looks accounts up: passwd users who take mail, and the owner of alias/.

A user takes mail where the uid is not 0 and the home directory is there and belongs to that uid
(qmail-getpw(8)). Trouble that may pass is Temporary and never "no such user", because that bounces mail:
so getpwnam_r(3) is called here, which tells the two apart; Python's pwd.getpwnam does not.
"""

import ctypes
import errno
import os
import pwd

from queue_base.errors import Temporary, reason
from queue_base.home import Home
from queue_wire.mailbox import Account

# A buffer as large as any entry; the C library wants it in advance.
_ROOM = 65536
# What getpwnam_r(3) lists as "not found", beside 0.
_UNKNOWN = frozenset((0, errno.ENOENT, errno.ESRCH, errno.EBADF, errno.EPERM))


class _Entry(ctypes.Structure):
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
    ctypes.POINTER(_Entry),
    ctypes.c_char_p,
    ctypes.c_size_t,
    ctypes.POINTER(ctypes.c_void_p),
)
_getpwnam_r.restype = ctypes.c_int


def passwd_entry(name: bytes) -> Account | None:
    """Return the passwd entry of a name, None where there is none. Raises Temporary."""
    entry, room, found = _Entry(), ctypes.create_string_buffer(_ROOM), ctypes.c_void_p()
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
