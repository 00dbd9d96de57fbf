"""One delivery, from the recipient's address to the text of the report (qmail-local(8)).

Runs in a process of its own, which it changes for good: user, current directory, umask. Returns the
text of a success; raises Temporary or Permanent with the text for the report.
"""

import os

from queue_base.accounts import Owner, become, queue_owner
from queue_base.errors import Failure, Permanent, Temporary, reason
from queue_base.home import Home
from queue_local.headers import delivered_to, header_has, return_path
from queue_local.limits import apply_limits
from queue_local.maildir import deliver_maildir
from queue_local.qmailfile import enter_home, read_instructions
from queue_local.users import NOT_AS_ROOT, find_recipient, refuse_all_but_forwards
from queue_wire.address import split_address, verp_sender
from queue_wire.dotqmail import MAILDIR, Instruction
from queue_wire.job import Job
from queue_wire.mailbox import Account, Mailbox

LOOPING = "This message is looping: it already has my Delivered-To line. (#5.4.6)"


def deliver(home: Home, job: Job, message: int, default: bytes) -> str:
    """Deliver the open file `message` to the job's recipient; `default` is control/defaultdelivery."""
    recipient = job.recipients[0]
    local, at, _ = recipient.rpartition(b"@")
    if not at:
        raise Permanent("Sorry, address must include host name. (#5.1.3)")
    if not local:
        # `@host` means nobody: an empty doublebounceto discards double bounces in this way (qmail-lspawn(8)).
        return count_text(0, 0, 0)
    mailbox = find_recipient(home, local)
    owner = queue_owner(home).uid
    # A queue that belongs to whoever started the suite is served as that user, be it root (the demo).
    everything_is_ours = owner == os.geteuid()
    # What runs as the queue's owner, or writes files as it, could write to the queue.
    forwards_only = mailbox.account.uid == owner and not everything_is_ours
    apply_limits(home)
    sender = verp_sender(job.sender, recipient)
    return deliver_as(mailbox, sender, recipient, message, default, everything_is_ours, forwards_only)


def deliver_as(
    mailbox: Mailbox,
    sender: bytes,
    recipient: bytes,
    message: int,
    default: bytes,
    everything_is_ours: bool = False,
    forwards_only: bool = False,
) -> str:
    """Become the mailbox's account, go to its home and follow its .qmail file."""
    take_account(mailbox.account, split_address(recipient)[0], everything_is_ours)
    os.umask(0o077)
    enter_home(mailbox.account.home)
    line = delivered_to(recipient)
    try:
        with open(message, "rb", closefd=False) as stream:
            looping = header_has(stream, line)
    except OSError as error:
        raise Temporary(f"Unable to read message: {reason(error)}. (#4.3.0)") from error
    if looping:
        raise Permanent(LOOPING)
    source, instructions = read_instructions(mailbox, default)
    if forwards_only:
        refuse_all_but_forwards(mailbox.account, source, instructions)
    return follow(source, instructions, return_path(sender) + line, message)


def take_account(account: Account, local: bytes, everything_is_ours: bool = False) -> None:
    """Become the account for good. Raises Temporary where only root could do it, or where it is root.

    Where root owns queue/ as well as alias/, root is who asked for it.
    """
    if not account.uid and everything_is_ours and not os.geteuid():
        return
    if not account.uid:
        raise Temporary(NOT_AS_ROOT)
    if not os.geteuid():
        try:
            become(Owner(account.uid, account.gid))
        except Failure as error:
            raise Temporary(f"{error} (#4.3.0)") from error
    if account.uid != os.geteuid() or account.uid != os.getuid():
        raise Temporary(
            f"Unable to deliver to {os.fsdecode(local)} as user {account.name} (uid {account.uid}): "
            f"queue-local runs as uid {os.geteuid()}; start it as root to deliver to other users. (#4.3.0)"
        )


def follow(source: str, instructions: list[Instruction], head: bytes, message: int) -> str:
    """Carry out the instructions in order; the first that fails ends the delivery."""
    # Looked at before anything is done, so that a retry does not repeat the lines above a line like this.
    for instruction in instructions:
        if instruction.kind != MAILDIR:
            raise Temporary(
                f"Unable to carry out a {instruction.kind} line of {source}: "
                "this version of queue-local delivers into maildirs only. (#4.3.5)"
            )
    for instruction in instructions:
        deliver_maildir(os.fsdecode(instruction.argument), head, message)
    return count_text(len(instructions), 0, 0)


def count_text(files: int, forwards: int, programs: int) -> str:
    """Return the text of a success: how many deliveries of each kind were made (qmail-local(8))."""
    return f"did {files}+{forwards}+{programs}\n"
