"""Which recipients of a message go together: those with the same nexthop, smtproutes applied. Pure.

The nexthop's name is what limits, rates and the log's `dest` lines know it by: the domain in lower case, or
the relay as `host` or `host:port` where smtproutes names one. For local mail it is the recipient.
"""

from queue_send.attempt import Recipient
from queue_wire.address import is_verp, split_address
from queue_wire.smtproutes import SMTP_PORT, Routes, find_route


def name_nexthop(domain: bytes, routes: Routes) -> bytes:
    """Return the name of the nexthop for a domain."""
    relay = find_route(routes, domain)
    if relay is None:
        return domain
    host = relay.host.lower()
    return host if relay.port == SMTP_PORT else b"%s:%d" % (host, relay.port)


def group_recipients(
    kind: str, sender: bytes, recipients: list[Recipient], routes: Routes
) -> list[tuple[bytes, list[Recipient]]]:
    """Return (nexthop, recipients) for each group; `kind` is local or remote.

    A VERP sender is another one for each recipient, so each of those goes alone.
    """
    if kind == "local":
        return [(recipient[1], [recipient]) for recipient in recipients]
    nexthops = [name_nexthop(split_address(address)[1].lower(), routes) for _, address in recipients]
    if is_verp(sender):
        return [(nexthop, [recipient]) for nexthop, recipient in zip(nexthops, recipients, strict=True)]
    groups: dict[bytes, list[Recipient]] = {}
    for nexthop, recipient in zip(nexthops, recipients, strict=True):
        groups.setdefault(nexthop, []).append(recipient)
    return list(groups.items())
