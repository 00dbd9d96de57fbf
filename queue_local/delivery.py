"""One delivery, from the recipient's address to its outcome (qmail-local(8)).

Runs in a process of its own, which it changes for good: user, current directory, umask. Returns the
outcome of a success; raises Temporary or Permanent with the text for the report.
"""

import os
import time

from queue_base.accounts import Owner, become, queue_owner
from queue_base.errors import Failure, Permanent, Temporary, reason
from queue_base.home import Home
from queue_base.processes import program_path
from queue_local.environment import Lines, Site, make_environment
from queue_local.follow import Delivery, count_text, follow
from queue_local.headers import delivered_to, from_line, header_has, return_path
from queue_local.limits import apply_limits
from queue_local.qmailfile import enter_home, new_sender, read_instructions
from queue_local.result import Outcome
from queue_local.users import NOT_AS_ROOT, find_recipient, refuse_all_but_forwards
from queue_wire.address import split_address, verp_sender
from queue_wire.job import Job
from queue_wire.mailbox import Account, Mailbox

LOOPING = "This message is looping: it already has my Delivered-To line. (#5.4.6)"


def deliver(home: Home, job: Job, message: int, default: bytes) -> Outcome:
    """Deliver the open file `message` to the job's recipient; `default` is control/defaultdelivery."""
    recipient = job.recipients[0]
    local, at, _ = recipient.rpartition(b"@")
    if not at:
        raise Permanent("Sorry, address must include host name. (#5.1.3)")
    if not local:
        # `@host` means nobody: an empty doublebounceto discards double bounces in this way (qmail-lspawn(8)).
        return Outcome(count_text(0, 0, 0))
    mailbox = find_recipient(home, local)
    owner = queue_owner(home).uid
    # A queue that belongs to whoever started the suite is served as that user, be it root (the demo).
    everything_is_ours = owner == os.geteuid()
    # What runs as the queue's owner, or writes files as it, could write to the queue.
    forwards_only = mailbox.account.uid == owner and not everything_is_ours
    apply_limits(home)
    sender = verp_sender(job.sender, recipient)
    return deliver_as(home, mailbox, sender, recipient, message, default, everything_is_ours, forwards_only)


def deliver_as(
    home: Home,
    mailbox: Mailbox,
    sender: bytes,
    recipient: bytes,
    message: int,
    default: bytes,
    everything_is_ours: bool = False,
    forwards_only: bool = False,
) -> Outcome:
    """Become the mailbox's account, go to its home and follow its .qmail file."""
    local, host = split_address(recipient)
    # The programs are beside the one that runs, whose name may be relative to where we are now.
    site = Site(home.path, os.path.dirname(program_path("queue-local")))
    take_account(mailbox.account, local, everything_is_ours)
    os.umask(0o077)
    enter_home(mailbox.account.home)
    lines = Lines(from_line(sender, time.time()), return_path(sender), delivered_to(recipient))
    refuse_loop(message, lines.delivered_to)
    found = read_instructions(mailbox, default)
    if forwards_only:
        refuse_all_but_forwards(mailbox.account, found.source, found.instructions)
    owner = new_sender(mailbox, sender, local, host)
    environment = make_environment(site, mailbox, sender, owner, (local, host), found.default, lines)
    delivery = Delivery(message, lines, environment, owner, mailbox.account.uid)
    return follow(found.instructions, delivery)


def refuse_loop(message: int, line: bytes) -> None:
    """Raise Permanent where the message's header has this Delivered-To line already; Temporary if it is unreadable."""
    try:
        with open(message, "rb", closefd=False) as stream:
            looping = header_has(stream, line)
    except OSError as error:
        raise Temporary(f"Unable to read message: {reason(error)}. (#4.3.0)") from error
    if looping:
        raise Permanent(LOOPING)


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
