"""Finds and reads the .qmail file of a mailbox, in the current directory, which is the account's home.

Everything here runs as the account. Raises Temporary for a home or a file that others may write, and for temporary
failures; Permanent for an extension without a file (dot-qmail(5)).
"""

import errno
import os
import stat
from typing import NamedTuple

from queue_base.errors import Permanent, Temporary, reason
from queue_wire.address import DOUBLE_BOUNCE_SENDER
from queue_wire.dotqmail import Instruction, default_part, owner_names, qmail_names, unpack_dotqmail
from queue_wire.format_error import FormatError
from queue_wire.mailbox import Mailbox

NO_MAILBOX = "Sorry, no mailbox here by that name. (#5.1.1)"
_WRITABLE = stat.S_IWGRP | stat.S_IWOTH
# A list of two million addresses. A larger file is not one.
QMAIL_MAX = 64 << 20
# A name that cannot exist does not exist. O_NONBLOCK: a FIFO must not block the delivery.
_ABSENT = frozenset((errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.EINVAL, errno.EILSEQ, errno.ENXIO))
_OPEN = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class QmailFile(NamedTuple):
    """Instructions, the path of their file, and what `default` in its name stands for, None if not in it."""

    source: str
    instructions: list[Instruction]
    default: bytes | None


def enter_home(path: str) -> None:
    """Change to the home directory, unless others may write it, or it is sticky: the user is editing."""
    try:
        os.chdir(path)
        mode = os.stat(".").st_mode
    except OSError as error:
        raise Temporary(f"Unable to switch to {path}: {reason(error)}. (#4.3.0)") from error
    if mode & _WRITABLE:
        raise Temporary("Uh-oh: home directory is writable. (#4.7.0)")
    if mode & stat.S_ISVTX:
        raise Temporary("Home directory is sticky: user is editing his .qmail file. (#4.2.1)")


def read_instructions(mailbox: Mailbox, default: bytes) -> QmailFile:
    """Return the instructions for a mailbox.

    `default` is control/defaultdelivery, for an empty file, and for an address without dash and without file.
    """
    source, data, executable, part = "", b"", False, None
    for name in qmail_names(mailbox.dash, mailbox.extension):
        found = _read(name)
        if found is not None:
            source, (data, executable) = os.path.join(mailbox.account.home, os.fsdecode(name)), found
            part = default_part(mailbox.dash, mailbox.extension, name)
            break
    else:
        if mailbox.dash:
            raise Permanent(NO_MAILBOX)
    if not data:
        # The execute bit of an empty file means nothing.
        source, data, executable = "control/defaultdelivery", default, False
    try:
        return QmailFile(source, unpack_dotqmail(data, executable), part)
    except FormatError as error:
        raise Temporary(str(error)) from error


def require_file(mailbox: Mailbox) -> None:
    """Raise what `read_instructions` raises if no file takes the extension, or its file cannot be used; read none."""
    for name in qmail_names(mailbox.dash, mailbox.extension):
        opened = _open(name)
        if opened is not None:
            os.close(opened[0])
            return
    if mailbox.dash:
        raise Permanent(NO_MAILBOX)


def new_sender(mailbox: Mailbox, sender: bytes, local: bytes, host: bytes) -> bytes:
    """Return the sender of forwards, NEWSENDER: the list's owner if there is one. A bounce keeps its sender."""
    if sender in (b"", DOUBLE_BOUNCE_SENDER):
        return sender
    owner, verp = owner_names(mailbox.dash, mailbox.extension)
    if not _exists(owner):
        return sender
    return b"%s-owner-@%s-@[]" % (local, host) if _exists(verp) else b"%s-owner@%s" % (local, host)


def _exists(name: bytes) -> bool:
    try:
        os.stat(name)
    except OSError as error:
        if error.errno in _ABSENT:
            return False
        raise _unreadable(name, error) from error
    return True


def _read(name: bytes) -> tuple[bytes, bool] | None:
    """Return the contents of a file and whether it is executable, None if it is not a regular file."""
    opened = _open(name)
    if opened is None:
        return None
    handle, mode = opened
    try:
        with open(handle, "rb", closefd=False) as file:
            data = file.read(QMAIL_MAX + 1)
    except OSError as error:
        raise _unreadable(name, error) from error
    finally:
        os.close(handle)
    if len(data) > QMAIL_MAX:
        raise Temporary(f"Unable to read {os.fsdecode(name)}: it is over {QMAIL_MAX} bytes. (#4.3.0)")
    return data, bool(mode & stat.S_IXUSR)


def _open(name: bytes) -> tuple[int, int] | None:
    """Return the descriptor of a file and its mode, None if it is not a regular file."""
    try:
        handle = os.open(name, _OPEN)
    except OSError as error:
        if error.errno in _ABSENT:
            return None
        raise _unreadable(name, error) from error
    try:
        mode = os.fstat(handle).st_mode
        if stat.S_ISREG(mode):
            if mode & _WRITABLE:
                raise Temporary("Uh-oh: .qmail file is writable. (#4.7.0)")
            return handle, mode
    except BaseException as error:
        os.close(handle)
        if isinstance(error, OSError):
            raise _unreadable(name, error) from error
        raise
    os.close(handle)
    return None


def _unreadable(name: bytes, error: OSError) -> Temporary:
    return Temporary(f"Unable to open {os.fsdecode(name)}: {reason(error)}. (#4.3.0)")
