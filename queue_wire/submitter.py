"""For whom a daemon has injected a message: the user who has authenticated, or else the host of the network. Pure.

The submitter has a share of the places for deliveries (queue_send.scheduler.shares), so it is not what a client can
vary, as a sender is: a host counts by the network that limits count it by, a user in lower case. In the files of the
queue it is a hash, so that it is short, of one length, and nobody's name.
"""

from hashlib import blake2b

from queue_wire.control.networks import counted_networks
from queue_wire.files.envelope import SUBMITTER_BYTES


def pack_submitter(address: str, user: bytes = b"") -> bytes:
    """Return the submitter for a client with this address, and a user, who is empty if nobody has authenticated."""
    who = b"user " + user.lower() if user else b"host " + counted_networks(address)[0].encode("utf-8", "replace")
    return blake2b(who, digest_size=SUBMITTER_BYTES // 2).hexdigest().encode("ascii")
