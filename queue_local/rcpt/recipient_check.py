"""Whether queue-local, or an LMTP server, has a mailbox for a recipient: the steps of a delivery that decide it.

`check_recipient` runs in a process of its own, which it changes permanently, as a delivery does: it looks up the
mailbox, becomes its account, goes to its home, and looks for the .qmail file. So it sees what a delivery would see, by
the same code and with the same rights, and no user's file is opened as root. It reads the contents of none.
"""

import os
import time

from queue_base.accounts import become, queue_owner
from queue_base.control import read_local_servers, read_value
from queue_base.errors import Permanent, Temporary
from queue_base.home import Home
from queue_local.local_delivery import find_recipient, take_account
from queue_local.qmailfile import enter_home, require_file
from queue_local.rcpt.lmtp_question import ask_servers
from queue_local.srs.sender_rewriting import read_setup, restore
from queue_local.srs.srs_address import BadSrs, is_ours
from queue_wire.address import domain_of
from queue_wire.control.registry import SMTPROUTES, SRS
from queue_wire.control.smtproutes import find_route, is_lmtp
from queue_wire.pipes.recipient_question import RecipientQuestion


def check_question(home: Home, question: RecipientQuestion) -> None:
    """Return if there is a mailbox, or nobody to be asked. Raises as check_recipient does."""
    if not question.relayed:
        check_recipient(home, question.address)
        return
    servers = find_route(read_value(home, SMTPROUTES), domain_of(question.address))
    # Since the question was asked the route may have become another one.
    if servers is not None and is_lmtp(servers):
        ask_servers(home, servers, question.address)


def check_recipient(home: Home, recipient: bytes) -> None:
    """Return if there is a mailbox. Raises Permanent if mail would bounce, Temporary if it would be deferred."""
    local, at, _ = recipient.rpartition(b"@")
    if not at:
        raise Permanent("Sorry, address must include host name. (#5.1.3)")
    servers = read_local_servers(home, recipient)
    if servers is not None:
        ask_servers(home, *servers)
        return
    if not local:
        # A delivery discards mail to `@host`.
        return
    if is_ours(read_value(home, SRS), recipient):
        check_srs(home, recipient)
        return
    everything_is_ours = queue_owner(home).uid == os.geteuid()
    mailbox = find_recipient(home, local)
    take_account(mailbox.account, local, everything_is_ours)
    enter_home(mailbox.account.home)
    require_file(mailbox)


def check_srs(home: Home, recipient: bytes) -> None:
    """Check an address of SRS in our domain, as the queue's owner, who alone may read the secrets."""
    owner = queue_owner(home)
    if not os.geteuid() and owner.uid:
        become(owner)
    setup = read_setup(home)
    if setup is None:
        raise Temporary("control/srs has changed. (#4.3.0)")
    try:
        restore(setup, recipient, time.time())
    except BadSrs as error:
        raise Permanent(f"Sorry, this address of SRS is not good: {error}. (#5.1.1)") from error
