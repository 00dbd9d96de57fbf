"""Looks up a host's TLSA records (RFC 7672 section 2.2), as far as DNSSEC vouches for them."""

from typing import NamedTuple

from queue_remote.route.lookup import Resolver
from queue_remote.route.order import Target
from queue_remote.tls.dane import Tlsa, usable

_SHOWN = 3


class TlsaFound(NamedTuple):
    """`name` is the host that the records are for, `records` those that are usable, if any; `text` names them."""

    name: bytes
    records: list[Tlsa]
    text: str


async def find_tlsa(resolver: Resolver, target: Target, port: int) -> TlsaFound | None:
    """Return a host's records for a port; None where there are none, or DNSSEC does not vouch for them.

    The target's own address must be secure. Raises Unroutable where the lookup failed: then nobody knows whether the
    host has records, and it gets no mail (section 2.1.2).
    """
    answer = await resolver.ask(target.host, "AAAA" if ":" in target.address else "A", True)
    # Section 2.2.2: where the host is an alias, what it stands for comes first.
    for base in dict.fromkeys([answer.canonical, target.host]):
        name = b"_%d._tcp.%s" % (port, base)
        found = await resolver.ask(name, "TLSA", True)
        if found.secure and found.records:
            records = [Tlsa(record.usage, record.selector, record.mtype, record.cert) for record in found.records]
            return TlsaFound(base, usable(records), f"DANE, {name.decode('ascii')} TLSA {_shown(records)}")
    return None


def _shown(records: list[Tlsa]) -> str:
    more = f" and {len(records) - _SHOWN} more" if len(records) > _SHOWN else ""
    return ", ".join(str(record) for record in records[:_SHOWN]) + more
