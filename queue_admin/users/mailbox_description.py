"""Describes which mailbox a local address has, and why, using the code of queue-local. Reads only."""

import os
import stat
from typing import NamedTuple

from queue_admin.printable import visible
from queue_base.accounts import queue_owner
from queue_base.errors import PERMANENT, TEMPORARY, Temporary, reason
from queue_base.home import Home
from queue_base.users import look_up_mailbox, starter_of
from queue_wire.address import split_address
from queue_wire.dotqmail import qmail_names
from queue_wire.mailbox import ASSIGNED, PASSWD, Mailbox


class MailboxDescription(NamedTuple):
    """`lines` tell whose an address is, and why; the last one begins with `failure:` if the exit code of queuectl route
    and users find, `code`, is 100, and with `deferral:` if it is 111. `mailbox` is None if there is none, `file` is the
    .qmail file that decides, None for none.
    """

    lines: list[str]
    code: int
    mailbox: Mailbox | None = None
    file: str | None = None


def describe_mailbox(home: Home, address: bytes) -> MailboxDescription:
    """Describe the mailbox of an address that is delivered here. Raises Temporary."""
    local = split_address(address)[0]
    if not local:
        return MailboxDescription(["nobody: mail for it is thrown away"], 0)
    starter = starter_of(home)
    try:
        mailbox = look_up_mailbox(home, local, starter)
    except Temporary as error:
        return MailboxDescription([f"deferral: {visible(os.fsencode(str(error)))}"], TEMPORARY)
    account = mailbox.account
    place = visible(os.fsencode(account.home))
    name = visible(os.fsencode(account.name))
    lines = [
        _source(home, mailbox, name),
        f"account: {name}, uid {account.uid}, gid {account.gid}, home {place}",
        f'dash: "{visible(mailbox.dash)}", extension: "{visible(mailbox.extension)}"',
    ]
    owner = queue_owner(home).uid
    # queue-local delivers as root only if root owns the queue, and never by users/assign.
    if not account.uid and (owner or mailbox.source == ASSIGNED):
        lines.append("deferral: not allowed to perform deliveries as root")
        return MailboxDescription(lines, TEMPORARY, mailbox)
    if starter and account.uid != starter:
        lines.append(f"deferral: queue-local runs as uid {starter}, who cannot deliver to others")
        return MailboxDescription(lines, TEMPORARY, mailbox)
    told, code, file = _files(mailbox)
    if account.uid == owner != starter:
        lines.append("only forwards are carried out: this account owns the queue")
    return MailboxDescription(lines + told, code, mailbox, file)


def _source(home: Home, mailbox: Mailbox, name: str) -> str:
    if mailbox.source == ASSIGNED:
        kind = "exactly" if mailbox.key.startswith(b"=") else "the longest wildcard that fits"
        return f"users/cdb: {visible(mailbox.key)}, {kind}"
    before = "users/cdb has nothing for it" if os.path.exists(f"{home.users}/cdb") else "no users/cdb"
    if mailbox.source == PASSWD:
        return f"passwd: {name} ({before})"
    return f"alias/: nobody else has it ({before}, and no user in passwd who takes mail)"


def _files(mailbox: Mailbox) -> tuple[list[str], int, str | None]:
    """Return lines about the .qmail files that are looked for, the exit code, and the first file that exists."""
    lines: list[str] = []
    home = mailbox.account.home
    try:
        os.stat(home)
    except OSError as error:
        # Without access to the home, no verdict can be given.
        denied = isinstance(error, PermissionError)
        return [f"{'home' if denied else 'deferral: home'}: {reason(error)}"], 0 if denied else TEMPORARY, None
    for name in qmail_names(mailbox.dash, mailbox.extension):
        path = os.path.join(home, os.fsdecode(name))
        shown = f"file: {visible(os.fsencode(path))}"
        try:
            there = stat.S_ISREG(os.stat(path).st_mode)
        except (FileNotFoundError, NotADirectoryError):
            there = False
        except OSError as error:
            return [*lines, f"{shown}: {reason(error)}"], 0, None
        if there:
            return [*lines, f"{shown}: it decides"], 0, path
        lines.append(f"{shown}: not there")
    if mailbox.dash:
        return [*lines, "failure: no mailbox here by that name"], PERMANENT, None
    return [*lines, "control/defaultdelivery decides"], 0, None
