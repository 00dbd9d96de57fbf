"""users/cdb: which account a local part is assigned to (qmail-users(5), qmail-lspawn(8)).

Whoever can write that file chooses the user that a delivery runs as. So it, and users/, must belong to root or to
the one who starts queue-local, and nobody else may write there; otherwise it is not believed. Trouble of any kind
is UsersTrouble and never "not assigned", because that would deliver mail to somebody else, or bounce it.
"""

import os
import stat

from queue_base.cdb import Cdb
from queue_base.errors import Temporary, reason
from queue_base.home import Home
from queue_wire.control.assign import lookup_keys, shown_key, unpack_record
from queue_wire.format_error import FormatError
from queue_wire.mailbox import ASSIGNED, Account, Mailbox

_OPEN = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_WRITABLE = stat.S_IWGRP | stat.S_IWOTH


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
