"""In which order the addresses of equally good hosts are tried. Pure but for chance.

Hosts go by lot (RFC 5321 section 5.1), and so do the addresses of one, since a cached answer would always begin with
the same. IPv4 and IPv6 take turns, IPv4 first where a host has both: where one of them does not work, every second
attempt is to the other, so a black hole costs one connection timeout before the first useful attempt, not one for each
address. (IPv4 first, because receivers judge it by rules that more senders meet.)
"""

import random
from collections.abc import Sequence
from itertools import chain, zip_longest
from typing import NamedTuple

# No further hosts are looked up once there are this many addresses to try.
ADDRESSES_ENOUGH = 8
# Of one host and family: the next host shall have its turn.
HOST_ADDRESSES_MOST = 4
# For one delivery; what is left waits for the next attempt.
TARGETS_MOST = 20


class Target(NamedTuple):
    """One address to try. `host` is the exchanger's or relay's name (ASCII, lower case, no final dot), empty for a bare
    address; `secure`: DNSSEC vouches for the name and the address."""

    host: bytes
    address: str
    port: int
    secure: bool

    @property
    def names(self) -> list[bytes]:
        """What a control file may call it where smtproutes names it: its name, or its address, brackets or not."""
        if self.host:
            return [self.host]
        address = self.address.encode("ascii")
        return [address, b"[%s]" % address]


def in_turn(hosts: Sequence[Sequence[Target]], by_lot: bool = False) -> list[Target]:
    """Return the targets of equally good hosts in the order to try them.

    The hosts are in their order already, or are put into one `by_lot`.
    """
    order = [list(host) for host in hosts if host]
    if by_lot:
        random.shuffle(order)
    kinds: dict[bool, list[Target]] = {}
    for host in order:
        # The family that the first host's addresses begin with is the one that begins.
        for new in sorted({":" in target.address for target in host}):
            family = [target for target in host if (":" in target.address) is new]
            random.shuffle(family)
            kinds.setdefault(new, []).extend(family[:HOST_ADDRESSES_MOST])
    return [target for target in chain.from_iterable(zip_longest(*kinds.values())) if target is not None]
