"""Whether a recipient is local or remote, and the address it is delivered to: qmail-send(8)'s rules.

1. An address without a host gets `@envnoathost`.
2. While the host is in percenthack, `user%there@here` becomes `user@there`.
3. A host in locals is local.
4. virtualdomains, the most specific entry first (user@host, host, .suffixes, the empty catch-all):
   `prepend` makes it local as `prepend-address`, an empty prepend makes it remote.
5. Everything else is remote.
Hosts and entries ignore case (ASCII) and a final dot, and U-labels are equal to their A-labels. The address keeps its
case; that of a local recipient gets A-labels, and no final dot.
"""

from collections.abc import Iterator, Mapping, Set
from typing import NamedTuple

from queue_wire.address import domain_key, without_final_dot
from queue_wire.control.lines import unpack_map

LOCAL = True
REMOTE = False


class Rules(NamedTuple):
    """The control files that classification uses; sets and keys are as `rule_key` makes them."""

    envnoathost: bytes
    locals: Set[bytes]
    percenthack: Set[bytes]
    virtualdomains: Mapping[bytes, bytes]


def rule_key(entry: bytes) -> bytes:
    """Return an entry of locals, percenthack or virtualdomains as the rules have it."""
    user, at, host = entry.rpartition(b"@")
    return user.lower() + at + domain_key(host)


def unpack_prepends(data: bytes) -> dict[bytes, bytes]:
    """Return virtualdomains: what is put before an address, by keys as `rule_key` makes them."""
    return {rule_key(key): prepend for key, prepend in unpack_map(data).items()}


def rewrite(address: bytes, rules: Rules, steps: list[bytes] | None = None) -> tuple[bool, bytes]:
    """Return (LOCAL or REMOTE, the address to deliver to); `steps` gets a description of each rule that applied."""
    if b"@" not in address:
        address += b"@" + rules.envnoathost
        if steps is not None:
            steps.append(b"envnoathost: no host, so it is " + address)
    user, _, host = address.rpartition(b"@")
    while domain_key(host) in rules.percenthack and b"%" in user:
        if steps is not None:
            steps.append(b"percenthack: %s: the host is what follows the last %%" % host)
        # The part after the `%` is the next host, even if it contains an `@` (as in qmail-send).
        user, _, host = user.rpartition(b"%")
    address = user + b"@" + host
    host = address.rpartition(b"@")[2]
    plain, kept = domain_key(host), without_final_dot(host)
    # A host that cannot be converted stays as it is.
    found = address[: len(address) - len(host)] + (kept if plain == kept.lower() else plain)
    if plain in rules.locals:
        if steps is not None:
            steps.append(b"locals: %s" % host)
        return LOCAL, found
    if rules.virtualdomains:
        for key in _keys(found, plain):
            prepend = rules.virtualdomains.get(key)
            if prepend is not None:
                if steps is not None:
                    steps.append(b"virtualdomains: %s:%s" % (key, prepend))
                return (LOCAL, prepend + b"-" + found) if prepend else (REMOTE, address)
    return REMOTE, address


def _keys(address: bytes, host: bytes) -> Iterator[bytes]:
    """Yield the keys of virtualdomains that match an address, the most specific first; its host is a key already."""
    yield address.lower()
    yield host
    dot = host.find(b".", 1) if host[:1] != b"." else 0
    while dot >= 0:
        if dot:
            yield host[dot:]
        dot = host.find(b".", dot + 1)
    yield b""


def split_recipients(recipients: list[bytes], rules: Rules) -> tuple[list[bytes], list[bytes]]:
    """Return (local, remote) recipients, rewritten, in their order."""
    sides: tuple[list[bytes], list[bytes]] = ([], [])
    for recipient in recipients:
        channel, address = rewrite(recipient, rules)
        sides[channel is REMOTE].append(address)
    return sides
