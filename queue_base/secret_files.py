"""Whether files of secrets are safe to use: control/smtpauth, smtpdusers and srssecrets, and the keys of DKIM and ARC.

Root, our own account or the owner of control/ must own the file. Nobody else may use it, but its group may read it, if
it is a group of ours, or that of queue/mess, whose members may read all mail. For smtpdusers that of account queued
will do, too: root gives it the file, and may run queue-smtpd itself. Of a key of TLS only the mode counts: it belongs
to whoever renews the certificate.
"""

import os
import pwd
import stat
from contextlib import suppress

from queue_base.accounts import SMTPD_ACCOUNT
from queue_base.control import read_control
from queue_base.errors import Temporary, reason
from queue_base.home import Home
from queue_wire.control.lines import unpack_lines

# With this mode, and the right group, the daemon that needs a secret can read it, and nobody else.
SECRET_MODE = 0o640


def find_fault(home: Home, found: os.stat_result, of_smtpd: bool = False) -> str | None:
    """Return what is wrong with the owner, group or mode of a file of secrets, None if it is safe. Raises OSError.

    `of_smtpd`: queue-smtpd alone reads it.
    """
    if not stat.S_ISREG(found.st_mode):
        return "it is not a regular file"
    if found.st_uid not in (0, os.geteuid(), os.stat(home.control).st_uid):
        return f"uid {found.st_uid} owns it; it should be root's, or that of the owner of control/"
    fault = find_open_mode(found)
    if fault is None and found.st_mode & 0o040 and not _may_read(home, found.st_gid, of_smtpd):
        mode = stat.S_IMODE(found.st_mode)
        return f"gid {found.st_gid} can read it (mode {mode:04o}); its group should be that of queue/mess, or chmod g="
    return fault


def find_open_mode(found: os.stat_result) -> str | None:
    """Return what the mode lets others do with a secret that they must not, None if nothing."""
    mode = f"mode {stat.S_IMODE(found.st_mode):04o}"
    if found.st_mode & 0o007:
        return f"everybody can use it ({mode}); chmod o= takes that away"
    if found.st_mode & 0o030:
        return f"its group can change it ({mode}); chmod g-wx takes that away"
    return None


def smtpd_group() -> int | None:
    """Return the group of queue-smtpd's account, None if there is no such account."""
    try:
        return pwd.getpwnam(SMTPD_ACCOUNT).pw_gid
    except KeyError:
        return None


def _may_read(home: Home, gid: int, of_smtpd: bool) -> bool:
    if gid == os.getegid() or gid in os.getgroups():
        return True
    with suppress(OSError):  # queue-smtpd may not look into the queue.
        if gid == os.stat(f"{home.queue}/mess").st_gid:
            return True
    return of_smtpd and gid == smtpd_group()


def read_srs_secrets(home: Home) -> list[bytes]:
    """Return the secrets in control/srssecrets, the newest first. Raises Temporary if none may be used."""
    path = f"{home.control}/srssecrets"
    secrets = [line for line in unpack_lines(read_control(home, "srssecrets") or b"") if line]
    if not secrets:
        raise Temporary(f"unable to rewrite senders: {path} has no secret")
    try:
        fault = find_fault(home, os.stat(path))
    except OSError as error:
        raise Temporary(f"unable to read {path}: {reason(error)}") from error
    if fault is not None:
        raise Temporary(f"unable to use {path}: {fault}")
    return secrets
