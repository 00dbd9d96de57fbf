"""The order in which the addresses of equally preferred hosts are tried.

Hosts are tried in random order (RFC 5321 section 5.1), and so are the addresses of one host, since a cached answer
always has the same order. IPv4 and IPv6 addresses alternate, IPv4 first where a host has both, because receivers judge
IPv4 senders by rules that more senders meet. So if one family does not work, only every second attempt is lost.
"""

import random
from collections.abc import Sequence
from itertools import chain, zip_longest
from typing import NamedTuple

# No further hosts are looked up once there are this many addresses to try.
ADDRESSES_ENOUGH = 8
# Addresses of one host and family, so that the next host is tried too.
HOST_ADDRESSES_MAX = 4
# Addresses that one delivery tries; the others wait for the next attempt.
TARGETS_MAX = 20


class Target(NamedTuple):
    """One address to try.

    `host` is the exchanger's or relay's name (ASCII, lower case, no final dot), empty for a bare address. `secure`
    means that DNSSEC validated the name and the address. `lmtp`: it speaks LMTP. The address may be the path of a Unix
    socket then; the port is 0.
    """

    host: bytes
    address: str
    port: int
    secure: bool
    lmtp: bool = False

    @property
    def is_socket(self) -> bool:
        """Whether the address is the path of a Unix socket."""
        return self.address.startswith("/")

    @property
    def names(self) -> list[bytes]:
        """The names by which control files know a relay: its host name, or its address without and with brackets."""
        if self.host:
            return [self.host]
        address = self.address.encode("ascii")
        if self.is_socket:
            return [address]
        return [address, b"[%s]" % address]


def interleave(hosts: Sequence[Sequence[Target]], shuffled: bool = False) -> list[Target]:
    """Return the targets of equally preferred hosts in the order to try them; `shuffled` shuffles the hosts first."""
    order = [list(host) for host in hosts if host]
    if shuffled:
        random.shuffle(order)
    families: dict[bool, list[Target]] = {}
    for host in order:
        # The first family of the first host comes first in the whole.
        for six in sorted({":" in target.address for target in host}):
            family = [target for target in host if (":" in target.address) is six]
            random.shuffle(family)
            families.setdefault(six, []).extend(family[:HOST_ADDRESSES_MAX])
    return [target for target in chain.from_iterable(zip_longest(*families.values())) if target is not None]
