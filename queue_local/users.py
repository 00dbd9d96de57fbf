"""Whose a delivery is, and what is never done: nothing as root, no file or program as the owner of the queue."""

import mmap
import os
import time

from queue_base.errors import Temporary, complain
from queue_base.home import Home
from queue_base.users import UsersTrouble, look_up_mailbox
from queue_wire.dotqmail import FORWARD, Instruction
from queue_wire.mailbox import ASSIGNED, Account, Mailbox

# qmail-lspawn's.
NOT_AS_ROOT = "Not allowed to perform deliveries as root. (#4.7.0)"
# Seconds. All local mail meets the same trouble, and one line is enough for a person.
ALERTS_APART = 60
# When the last alert was written, in all deliveries: they share this page with queue-local, which forks them.
_last_alert = mmap.mmap(-1, 8)


def find_recipient(home: Home, local: bytes) -> Mailbox:
    """Return the mailbox of a local part. Raises Temporary, with an alert on stderr where users/cdb is the trouble."""
    try:
        mailbox = look_up_mailbox(home, local, os.geteuid())
    except UsersTrouble as error:
        _alert(f"alert: {error.what}; local mail is deferred until it is mended, or made by queuectl users build")
        raise
    if mailbox.source == ASSIGNED and not mailbox.account.uid:
        raise Temporary(NOT_AS_ROOT)
    return mailbox


def _alert(text: str) -> None:
    now = int(time.monotonic()) + 1
    last = int.from_bytes(_last_alert[:], "little")
    if not last or now - last >= ALERTS_APART:
        _last_alert[:] = now.to_bytes(8, "little")
        complain("queue-local", text)


def refuse_all_but_forwards(account: Account, source: str, instructions: list[Instruction]) -> None:
    """Raise Temporary for a line that would write a file, or run a program, as the owner of the queue."""
    for instruction in instructions:
        if instruction.kind != FORWARD:
            raise Temporary(
                f"Not allowed to carry out a {instruction.kind} line of {source} as {account.name} "
                f"(uid {account.uid}), who owns the queue; give {account.home} to another account, "
                "such as queuea. (#4.7.0)"
            )
