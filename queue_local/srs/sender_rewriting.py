"""Sender rewriting for forwards: reads control/srs and control/srssecrets, and changes the addresses of a forward.

    srs           the domain of rewritten senders, which must be in locals; without the file nothing is rewritten
    srssecrets    a secret a line: the first one makes addresses, all of them are accepted

The sender of a forward is rewritten if a recipient is remote, and its own domain is not local. Empty senders and
those of VERP (`LIST-owner-@HOST-@[]`) stay. A recipient that is an address of SRS in our domain is replaced by the
address that it was made of; if that cannot be done, because it is forged or too old, the forward fails.

The forwarder does both, as the owner of the queue: the processes of users never have the secrets.
"""

import time
from typing import NamedTuple

from queue_base.control import read_value
from queue_base.control_files import read_rules
from queue_base.home import Home
from queue_base.secret_files import read_srs_secrets
from queue_local.result import Forward
from queue_local.srs.srs_address import is_ours, restore_sender, rewrite_sender
from queue_wire.address import DOUBLE_BOUNCE_SENDER, is_verp, split_address
from queue_wire.control.registry import SRS
from queue_wire.control.rewrite import LOCAL, Rules, rewrite


class SrsSetup(NamedTuple):
    """The domain of rewritten senders, the secrets, and the rules by which an address is local."""

    domain: bytes
    secrets: list[bytes]
    rules: Rules


def read_setup(home: Home) -> SrsSetup | None:
    """Return the setup as the files are now, None if there is no rewriting. Raises Temporary, naming the file."""
    domain = read_value(home, SRS)
    if not domain:
        return None
    return SrsSetup(domain, read_srs_secrets(home), read_rules(home))


def rewrite_forward(setup: SrsSetup, forward: Forward) -> Forward:
    """Return a forward with the addresses that it is queued with. Raises BadSrs if one of SRS is not good."""
    now = time.time()
    recipients = [restore(setup, recipient, now) for recipient in forward.recipients]
    sender = forward.sender
    remote = not all(_is_local(setup, recipient) for recipient in recipients)
    # A sender of VERP is a list's, and can be rewritten only when queue-send has made one of it for each recipient.
    kept = sender in (b"", DOUBLE_BOUNCE_SENDER) or is_verp(sender)
    if remote and not kept and not _is_local(setup, sender):
        sender = rewrite_sender(sender, setup.domain, setup.secrets[0], now)
    return forward._replace(sender=sender, recipients=recipients)


def restore(setup: SrsSetup, recipient: bytes, now: float) -> bytes:
    """Return the address that a recipient of SRS in our domain was made of, any other as it is. Raises BadSrs."""
    if not is_ours(setup.domain, recipient):
        return recipient
    return restore_sender(split_address(recipient)[0], setup.secrets, now)


def _is_local(setup: SrsSetup, address: bytes) -> bool:
    return rewrite(address, setup.rules)[0] is LOCAL
